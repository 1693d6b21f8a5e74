"""A deploy folder runs without torch, is checked by its own script, and is replaced whole or not at
all.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import paifuser_lab as lab
from paifuser_lab import _files
from paifuser_lab.deployment import deploying, folder
from paifuser_lab.deployment.deploying import TEMPLATES
from paifuser_lab.errors import ExportError, FileError, ParityError
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.serving import Predictor
from tests.support.models import Small
from tests.support.processes import python

LABELS = ["a", "b", "c", "d", "e"]
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
# what a script imports must not be there at all
ALONE = (
    "import runpy, sys\n"
    "for name in ('torch', 'onnx', 'paifuser_lab', 'pydantic'): sys.modules[name] = None\n"
    "sys.argv = sys.argv[1:]\n"
    "sys.path.insert(0, '.')\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
)


@pytest.fixture(scope="module")
def work():
    torch.manual_seed(0)
    return lab.Workload(Small().eval(), torch.rand(1, 3, 8, 8), name="Small Net")


@pytest.fixture(scope="module")
def variant(work):
    return lab.apply(work, lab.Recipe(["fold"]))


@pytest.fixture(scope="module")
def deployed(variant, tmp_path_factory):
    target = tmp_path_factory.mktemp("deployed") / "out"
    stated = {"mean": MEAN, "std": STD}
    record = lab.deploy(variant, target, seconds=0, labels=LABELS, preprocessing=stated)
    return target, record


@pytest.fixture
def copied(deployed, tmp_path):
    return shutil.copytree(deployed[0], tmp_path / "copied")


def script(name, *args, cwd):
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return python("-I", "-B", "-c", ALONE, name, *args, check=False, cwd=cwd, env=environment)


def live(work, images):
    with torch.no_grad():
        return work.model(images).numpy()


def test_the_script_has_at_most_34_lines_and_runs_where_torch_cannot_be_imported(
    deployed, variant, work, tmp_path
):
    assert len((TEMPLATES / "run.py").read_text().splitlines()) <= 34
    images = torch.rand(1, 3, 8, 8)
    np.save(tmp_path / "images.npy", images.numpy())
    ran = script("run.py", tmp_path / "images.npy", cwd=deployed[0])
    assert ran.returncode == 0, ran.stderr
    head, _, values = ran.stdout.partition("\n")
    assert head == "output (1, 5)"
    printed = np.fromstring(values.strip(" []\n"), sep=" ")
    assert np.allclose(printed, live(work, images).ravel(), atol=1e-4)


def test_the_folder_checks_itself_and_notices_one_flipped_byte(copied):
    ran = script("check.py", cwd=copied)
    assert ran.returncode == 0, ran.stderr
    assert "output differs by" in ran.stdout
    content = bytearray((copied / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (copied / "model.onnx").write_bytes(content)
    ran = script("check.py", cwd=copied)
    assert ran.returncode == 1 and "model.onnx is not the file that was written" in ran.stderr


def test_the_check_notices_another_answer(copied):
    expected = dict(np.load(copied / "expected.npz"))
    np.savez(copied / "expected.npz", output=expected["output"] + 1)
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["files"]["expected.npz"] = folder.sha256(copied / "expected.npz")
    (copied / "manifest.json").write_text(json.dumps(manifest))
    ran = script("check.py", cwd=copied)
    assert ran.returncode == 1 and "output differs by" in ran.stderr and "past" in ran.stderr


def test_the_example_holds_the_inputs_alone_also_in_an_older_numpy(tmp_path, monkeypatch):
    written = {}
    # as before numpy 2.2
    monkeypatch.setattr(np, "savez", lambda file, **arrays: written.update(arrays))
    deploying._write_arrays(tmp_path / "example.npz", ["images"], [torch.zeros(1)])
    assert list(written) == ["images"]


def test_equal_infinities_pass_the_check(tmp_path):
    class Masked(nn.Module):
        def forward(self, x):
            return x.masked_fill(torch.tensor([True, False, False]), float("-inf"))

    lab.deploy(lab.Workload(Masked(), torch.rand(2, 3), name="masked"), tmp_path / "masked")
    ran = script("check.py", cwd=tmp_path / "masked")
    assert ran.returncode == 0, ran.stderr


def test_the_record_lists_every_file_with_its_hash(deployed):
    target, record = deployed
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert {file.name for file in record.files} | {"manifest.json"} == found
    assert folder.read_manifest(target) == {file.name: file.sha256 for file in record.files}
    assert found >= {"model.onnx", "labels.json", "Dockerfile", "kubernetes/ray_serving.yaml"}
    assert record.rows[0].report.path == "model.onnx" and record.rows[0].report.runs_here
    assert type(record).load(record.save(target.parent / "record.json")) == record


def test_a_variant_of_a_model_with_an_engine_is_deployed_with_the_steps_of_both(work, tmp_path):
    engine = {"backend": {"name": "eager", "threads": 1}}
    saved = lab.apply(work, lab.Recipe([engine])).save(tmp_path / "saved")
    variant = lab.apply(lab.load(saved, work=work), lab.Recipe(["fold"]))
    record = lab.deploy(variant, tmp_path / "out", seconds=0)
    assert record.recipe == lab.Recipe(["fold", engine]).label and record.folder


def test_an_image_is_scaled_as_the_preprocessing_says(deployed, work, tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    run = loaded(deployed[0], "run", monkeypatch)
    output = run.answer(tmp_path / "image.png", ".png")["output"]
    scaled = (pixels / 255 - np.array(MEAN)) / np.array(STD)
    tensor = torch.tensor(scaled.transpose(2, 0, 1)[None], dtype=torch.float32)
    assert np.allclose(output, live(work, tensor), atol=1e-4)


def test_an_image_is_turned_as_its_exif_data_says(deployed, tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held sideways
    Image.fromarray(np.rot90(pixels)).save(tmp_path / "sideways.png", exif=exif)
    run = loaded(deployed[0], "run", monkeypatch)
    names = ("upright.png", "sideways.png")
    upright, sideways = (run.answer(tmp_path / name, ".png")["output"] for name in names)
    assert np.array_equal(upright, sideways)


def test_a_picture_is_stretched_as_a_server_does_that_is_told_to(
    deployed, variant, tmp_path, monkeypatch
):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    run = loaded(deployed[0], "run", monkeypatch)
    unchanged = types.SimpleNamespace(run=lambda names, inputs: list(inputs.values()))
    monkeypatch.setattr(run, "SESSION", unchanged)
    given = run.answer(tmp_path / "wide.png", ".png")["output"][0]
    server = Predictor(variant, how="stretch", mean=MEAN, std=STD)
    expected = server._prepared(Frame(pixels)).tensor.numpy()
    level = 1 / 255 / np.array(STD)[:, None, None]
    assert (np.abs(given - expected) < 1.01 * level).all()


def test_what_the_workload_states_is_what_the_script_does(tmp_path, work, monkeypatch):
    stated = {"mean": 0.4, "std": STD, "order": "BGR", "classes": ("one", "two")}
    own = lab.Workload(work.model, work.inputs, name="own", preprocessing=stated)
    lab.deploy(own, tmp_path / "out", seconds=0)
    assert json.loads((tmp_path / "out" / "labels.json").read_text()) == ["one", "two"]
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    output = loaded(tmp_path / "out", "run", monkeypatch).answer(tmp_path / "image.png", ".png")
    scaled = (pixels[..., ::-1] / 255 - 0.4) / np.array(STD)
    tensor = torch.tensor(scaled.transpose(2, 0, 1)[None], dtype=torch.float32)
    assert np.allclose(output["output"], live(work, tensor), atol=1e-4)


def test_an_image_is_refused_where_nobody_stated_mean_and_std(copied, tmp_path, monkeypatch):
    spec = json.loads((copied / "preprocessing.json").read_text())
    spec["inputs"][0]["mean"] = None
    (copied / "preprocessing.json").write_text(json.dumps(spec))
    run = loaded(copied, "run", monkeypatch)
    with pytest.raises(SystemExit, match="no mean and std: deploy again with preprocessing"):
        run.answer(io.BytesIO(), ".png")


def test_a_batch_runs_each_file_once_and_reports_those_that_fail(copied, tmp_path, monkeypatch):
    source, out = tmp_path / "in", tmp_path / "results"
    source.mkdir()
    for at in range(3):
        np.save(source / f"{at}.npy", np.full((1, 3, 8, 8), at, "float32"))
    (source / "broken.npy").write_text("no array")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    batch = loaded(copied, "batch", monkeypatch)
    assert batch.main(source, out) == 1
    assert sorted(path.name for path in out.iterdir()) == [f"{at}.npy.npz" for at in range(3)]
    calls = []
    original = batch.answer
    monkeypatch.setattr(batch, "answer", lambda *args: calls.append(args) or original(*args))
    (source / "broken.npy").unlink()
    (out / "1.npy.npz").unlink()
    assert batch.main(source, out) == 0 and len(calls) == 1


@contextmanager
def serving(cwd):
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    command = [sys.executable, "-I", "-B", "-c", ALONE, "serve.py", "--port", "0"]
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip().removeprefix("http://")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def asked(address, method, path="/", body=None, **headers):
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_the_server_answers_refuses_and_stays(deployed, work):
    images = torch.rand(1, 3, 8, 8)
    body = io.BytesIO()
    np.save(body, images.numpy())
    array = {"Content-Type": "application/x-npy"}
    with serving(deployed[0]) as address:
        assert address.startswith("127.0.0.1:")
        assert asked(address, "GET", "/healthz") == (200, {"ok": True})
        assert asked(address, "POST", body=b"no array", **array)[0] == 400
        assert asked(address, "POST", body=b"no image")[0] == 400
        status, content = asked(address, "POST", body=b"", **{"Content-Length": str(1 << 40)})
        assert status == 413 and "bytes" in content["error"]
        status, content = asked(address, "POST", body=body.getvalue(), **array)
    assert status == 200 and content["labels"] == LABELS
    assert np.allclose(content["outputs"]["output"], live(work, images), atol=1e-4)


class Request:
    """A request as Ray Serve hands it to a class."""

    def __init__(self, body, kind, length=None):
        self.content = body
        length = len(body) if length is None else length
        self.headers = {"content-type": kind, "content-length": str(length)}

    async def body(self):
        return self.content


def test_ray_serve_gets_the_same_answers_and_refusals(deployed, work, monkeypatch):
    def reply(content, status_code=200):
        return status_code, content

    monkeypatch.setitem(sys.modules, "starlette", types.ModuleType("starlette"))
    monkeypatch.setitem(
        sys.modules, "starlette.responses", types.SimpleNamespace(JSONResponse=reply)
    )
    serve = types.SimpleNamespace(
        deployment=lambda kind: types.SimpleNamespace(bind=lambda: kind())
    )
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(serve=serve))
    model = loaded(deployed[0], "ray_serve", monkeypatch).app({})
    images = torch.rand(1, 3, 8, 8)
    body = io.BytesIO()
    np.save(body, images.numpy())

    def asked_of_ray(*args, **more):
        return asyncio.run(model(Request(*args, **more)))

    status, content = asked_of_ray(body.getvalue(), "application/x-npy")
    assert status == 200 and content["labels"] == list(LABELS)
    assert np.allclose(content["outputs"]["output"], live(work, images), atol=1e-4)
    assert asked_of_ray(b"no array", "application/x-npy")[0] == 400
    assert asked_of_ray(b"x", "application/x-npy", length=1 << 40)[0] == 413


ON_RAY = """
import sys
import ray
from ray import serve
sys.path.insert(0, ".")
import ray_serve
quiet = {"log_to_driver": False, "logging_level": "ERROR"}
ray.init(num_cpus=1, address="local", include_dashboard=False, _node_ip_address="127.0.0.1",
         runtime_env={"env_vars": {"PYTHONPATH": "."}, "working_dir": "."}, **quiet)
serve.start(http_options={"port": int(sys.argv[1])})
serve.run(ray_serve.app({}))
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
"""


@pytest.mark.timeout(180)
def test_a_real_ray_serve_runs_the_application(deployed, work):
    pytest.importorskip("ray.serve")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", ON_RAY, str(port)],
        cwd=deployed[0],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        images = torch.rand(1, 3, 8, 8)
        body = io.BytesIO()
        np.save(body, images.numpy())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/", body.getvalue(), {"Content-Type": "application/x-npy"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["labels"] == LABELS
        assert np.allclose(answer["outputs"]["output"], live(work, images), atol=1e-4)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_a_deployment_replaces_an_earlier_one_whole(variant, copied):
    (copied / "__pycache__").mkdir(exist_ok=True)
    (copied / "__pycache__" / "run.pyc").write_bytes(b"")
    before = {path.name for path in copied.iterdir()}
    lab.deploy(variant, copied, seconds=0)
    after = {path.name for path in copied.iterdir()}
    assert before - after == {"labels.json", "__pycache__"}
    assert [path.name for path in copied.parent.iterdir()] == ["copied"]


@pytest.mark.parametrize("has_exchange", [True, False])
def test_a_deployment_that_fails_at_its_end_leaves_the_earlier_one(
    variant, copied, monkeypatch, has_exchange
):
    before = {path.name: path.read_bytes() for path in copied.iterdir() if path.is_file()}
    if not has_exchange:
        monkeypatch.setattr(_files, "_exchanged", lambda first, second: False)
    with monkeypatch.context() as patch:
        patch.setattr(deploying, "model_card", lambda *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lab.deploy(variant, copied, seconds=0)
    after = {path.name: path.read_bytes() for path in copied.iterdir() if path.is_file()}
    assert before == after and [path.name for path in copied.parent.iterdir()] == ["copied"]
    lab.deploy(variant, copied, seconds=0)
    assert not (copied / "labels.json").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda path: (path / "manifest.json").unlink(), "files that no deployment wrote"),
        (lambda path: (path / "manifest.json").write_text("[]"), "files that no deployment wrote"),
        (lambda path: (path / "notes.txt").write_text("mine"), "a file 'notes.txt'"),
        (lambda path: (path / "MODEL_CARD.md").write_text("mine"), "a file 'MODEL_CARD.md'"),
    ],
)
def test_files_of_somebody_else_are_never_replaced(variant, copied, change, sentence):
    change(copied)
    before = {path.name: path.read_bytes() for path in copied.iterdir() if path.is_file()}
    with pytest.raises(ExportError, match=sentence):
        lab.deploy(variant, copied, seconds=0)
    assert before == {path.name: path.read_bytes() for path in copied.iterdir() if path.is_file()}


def test_a_file_or_a_link_is_no_folder_to_deploy_into(variant, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(ExportError, match="is no folder"):
            lab.deploy(variant, tmp_path / name)


def test_a_target_that_refuses_is_a_row_and_the_rest_is_written(variant, tmp_path, monkeypatch):
    original = deploying.export

    def export(subject, name, path, **options):
        if name == "onnx":
            return original(subject, name, path, **options)
        path.parent.mkdir()
        path.write_text("half")
        raise ExportError("layer 'conv' has no kernel there; leave it out.")

    monkeypatch.setattr(deploying, "export", export)
    monkeypatch.setattr(deploying, "target_of", another_target)
    record = lab.deploy(variant, tmp_path / "out", "other,onnx", seconds=0)
    assert [row.target for row in record.rows] == ["onnx", "other"]
    assert record.rows[1].refused.startswith("layer 'conv'")
    assert "Refused: Other" in record.sentence and not (tmp_path / "out" / "other").exists()
    assert "refused: layer 'conv'" in str(record.table())


def another_target(name):
    onnx = deploying_target_of("onnx")
    if name == "onnx":
        return onnx
    kind = type("Other", (type(onnx),), {"name": "other", "title": "Other"})
    return kind()


deploying_target_of = deploying.target_of


def test_where_onnx_refuses_nothing_is_written_and_the_layer_is_named(tmp_path):
    model = Small().eval()
    with torch.no_grad():
        model.conv.weight.mul_(1e7)
    loud = lab.Workload(model, torch.rand(1, 3, 8, 8), name="loud")
    with pytest.raises(ParityError, match="first at layer 'norm'") as caught:
        lab.deploy(loud, tmp_path / "out", precision="fp16", seconds=0)
    assert caught.value.difference.layer == "norm"  # joined with the one before
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_deployment_writes_nothing(variant, tmp_path):
    with pytest.raises(lab.PaifuserError, match="stopped"):
        lab.deploy(variant, tmp_path / "out", should_stop=lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_only_files_of_the_manifest_are_handed_out(copied):
    read = folder.checked_file
    assert read(copied, "run.py", 1 << 20) == (TEMPLATES / "run.py").read_bytes()
    with pytest.raises(FileError, match=r"no file '\.\./secret'"):
        read(copied, "../secret", 1 << 20)
    with pytest.raises(FileError, match="limit"):
        read(copied, "run.py", 10)
    (copied.parent / "secret").write_text("secret")
    (copied / "run.py").unlink()
    (copied / "run.py").symlink_to(copied.parent / "secret")
    with pytest.raises(FileError, match="leads out of"):
        read(copied, "run.py", 1 << 20)


def loaded(path, name, monkeypatch):
    """A script of the folder as a module, which is forgotten after the test."""
    import importlib

    monkeypatch.syspath_prepend(str(path))
    scripts = ("run", "batch", "serve", "ray_serve")
    for script in scripts:
        monkeypatch.delitem(sys.modules, script, raising=False)
    module = importlib.import_module(name)
    for imported in scripts:
        monkeypatch.delitem(sys.modules, imported, raising=False)
    return module
