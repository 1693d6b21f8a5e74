"""The command line: its output and its error messages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

import paifuser_lab as lab
from paifuser_lab import Workload
from paifuser_lab._files import asset
from paifuser_lab.cli import jupyterlab, program
from paifuser_lab.cli.search import _write
from paifuser_lab.errors import StepError
from paifuser_lab.planner import searching
from paifuser_lab.planner.space import Space
from paifuser_lab.records import TrainingFormats
from tests.support.drawn import search_result
from tests.support.models import Small, images


def test_models_are_listed_a_line_each(command):
    code, out, _ = command("models")
    assert code == 0
    assert out.split() == list(lab.models())


def test_hardware_can_be_replaced_by_a_published_device(command, monkeypatch):
    monkeypatch.setenv("PAIFUSER_HARDWARE", "H100")
    code, out, _ = command("hardware")
    assert code == 0
    assert "H100" in out and "989,500" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["plan", "resnet19"], "resnet18"),
        (["trace", "{bad}"], "not JSON"),
        (["run", "{recipe}", "--out", "{folder}/out"], "names no workload; say which with --model"),
        (["run", "{folder}/none.yaml", "--out", "{folder}/out"], "Cannot read"),
        (["run", "{bad}", "--out", "{folder}/out"], "Line 3: `- prun: {{}}`"),
        (["bench", "models", "resnet18-tiny", "--seconds", "x"], "Invalid value"),
        (["memory", "resnet18-tiny", "--limit", "1 kB"], "the smallest that works is"),
        (["memory", "{folder}/none.pickle"], "none.pickle: No such file"),
        (["search", "resnet18-tiny", "--out", "{bad}"], "Cannot make the folder"),
        (["export", "resnet18-tiny", "--to", "onnx", "--out", "{bad}"], "Cannot make the folder"),
        (["report", "--out", "{folder}"], "is not empty; give --force"),
    ],
)
def test_errors_are_one_sentence_without_a_traceback(command, tmp_path, arguments, sentence):
    names = {"folder": tmp_path, "recipe": tmp_path / "recipe.yaml", "bad": tmp_path / "bad.yaml"}
    lab.Recipe(["fold"]).save(names["recipe"])
    names["bad"].write_text("version: 1\nsteps:\n  - prun: {}\n")
    code, _, err = command(*(argument.format(**names) for argument in arguments))
    assert code == 2
    assert sentence.format() in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_search_leaves_recipe_record_page_and_model(command, tmp_path, monkeypatch):
    singles = Space.singles
    monkeypatch.setattr(Space, "singles", lambda self: singles(self)[:1])
    monkeypatch.setattr(searching, "MOST_TRIALS", 1)
    (tmp_path / "net.py").write_text(
        "import paifuser_lab as lab\ndef make():\n    return lab.load('resnet18-tiny')\n"
    )
    name = f"{tmp_path / 'net.py'}:make"
    code, out, _ = command("search", name, "--seconds", 30, "--out", tmp_path / "best")
    assert code == 0 and "in " in out.splitlines()[-1]
    found = lab.Record.load(tmp_path / "best" / "search.json")
    page = (tmp_path / "best" / "search.html").read_text()
    assert found.rows and found.rows[0].label in page and "<svg" in page and "<script" not in page
    recipe = lab.Recipe.load(tmp_path / "best" / "recipe.yaml")
    assert recipe == found.best and recipe.workload == name
    assert (tmp_path / "best" / "model").exists() == bool(found.best.steps)
    work = lab.load("resnet18-tiny")
    lab.apply(work, lab.Recipe(["fold"])).save(tmp_path / "best" / "model")
    _write(work, found.model_copy(update={"rows": ()}), tmp_path / "best")
    assert not (tmp_path / "best" / "model").exists()


def test_a_search_that_finds_nothing_leaves_what_it_did_not_save(tmp_path):
    found = search_result(workload="small")
    work, model = Workload(Small().eval(), images(), name="small"), tmp_path / "model"
    lab.apply(work, lab.Recipe(["fold"])).save(model)
    (model / "net.py").write_text("mine")
    for _ in range(2):
        _write(work, found, tmp_path)
        assert [path.name for path in model.iterdir()] == ["net.py"]


def test_a_plan_can_be_saved_and_read_back(command, tmp_path):
    code, out, _ = command(
        "plan", "resnet18-tiny", "--seconds", "0", "--save", tmp_path / "plan.yaml"
    )
    assert code == 0
    assert "fold batch-norm: " in out
    assert lab.Recipe.load(tmp_path / "plan.yaml").steps[0].kind == "fold"


@pytest.fixture
def started(monkeypatch):
    """The commands that are run instead of JupyterLab."""
    commands = []

    def popen(command, env):
        commands.append([*command, env["JUPYTER_CONFIG_PATH"]])
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr("subprocess.Popen", popen)
    return commands


STOPPED = """
import os, signal, sys, time
def end(*event):
    time.sleep(0.4)  # longer than subprocess waits after Ctrl-C
    sys.exit(7)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
number = int(sys.argv[1])
os.kill(os.getppid(), number)
if number == signal.SIGINT:
    os.kill(os.getpid(), number)  # as a terminal gives it to both
time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_open_ends_as_jupyterlab_ends_after_ctrl_c_or_sigterm(command, monkeypatch, number):
    child = [sys.executable, "-c", STOPPED, str(int(number))]
    monkeypatch.setattr(program, "command", lambda *given, **options: child)
    before = signal.getsignal(signal.SIGINT)
    assert command("open", asset("notebooks/00_tour.ipynb"))[0] == 7
    assert signal.getsignal(signal.SIGINT) is before


def test_open_serves_a_copy_of_the_tour_in_the_users_folder(
    command, started, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert command("open", "--no-browser", "--port", "8899")[0] == 0
    assert {"--no-browser", "--port=8899", "--LabApp.default_url=/lab/tree/00_tour.ipynb"} <= set(
        started[0]
    )
    assert f"--ServerApp.root_dir={tmp_path / 'paifuser-lab'}" in started[0]
    assert (Path(started[0][-1]) / "labconfig" / "default_setting_overrides.json").is_file()
    copied = json.loads((tmp_path / "paifuser-lab" / "00_tour.ipynb").read_text())["cells"]
    tour = json.loads(asset("notebooks/00_tour.ipynb").read_text())["cells"]
    assert [cell["source"] for cell in copied] == [cell["source"] for cell in tour]
    code = [cell for cell in copied if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "of another run"
    assert any(cell.get("outputs") for cell in tour)
    assert command("open", asset("notebooks/00_tour.ipynb"))[0] == 0, "a path is opened in place"
    assert f"--ServerApp.root_dir={asset('notebooks')}" in started[1]


def test_open_keeps_a_changed_notebook_and_brings_the_others_up_to_date(
    command, started, tmp_path, monkeypatch
):
    package = tmp_path / "package"
    package.mkdir()
    for name in ("00_tour.ipynb", "10_profile.ipynb"):
        (package / name).write_text(
            json.dumps({"cells": [{"cell_type": "markdown", "source": "first"}]})
        )
    monkeypatch.setattr(jupyterlab, "asset", lambda name: package)
    folder = tmp_path / "mine"
    assert command("open", "--folder", folder)[1] == ""
    (folder / "00_tour.ipynb").write_text("changed by the user")
    assert command("open", "--folder", folder)[1] == "", "the package has nothing newer"
    for name in ("00_tour.ipynb", "10_profile.ipynb"):
        (package / name).write_text(
            json.dumps({"cells": [{"cell_type": "markdown", "source": "second"}]})
        )
    code, out, _ = command("open", "--folder", folder)
    assert code == 0 and "00_tour.ipynb has your changes and stays" in out and "10_pro" not in out
    assert (folder / "00_tour.ipynb").read_text() == "changed by the user"
    assert "second" in (folder / "10_profile.ipynb").read_text()
    (tmp_path / "file").write_text("")
    code, _, err = command("open", "--folder", tmp_path / "file")
    assert code == 2 and "Cannot copy the notebooks into" in err and len(started) == 3


def test_notebooks_are_read_as_utf_8_where_the_locale_is_another(tmp_path, monkeypatch):
    read_text = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, encoding="ascii": read_text(path, encoding))
    jupyterlab.copy_notebooks(tmp_path / "mine")
    jupyterlab.copy_notebooks(tmp_path / "mine")
    assert (tmp_path / "mine" / "00_tour.ipynb").is_file()


def test_memory_is_predicted_by_category_and_written(command, tmp_path):
    path = tmp_path / "peak.json"
    code, out, _ = command("memory", "vit-s-tiny", "--batch", 3, "--json", path)
    assert code == 0
    assert "inference, batch 3 on cpu" in out and "activations" in out
    assert lab.Record.load(path).batch == 3
    code, out, _ = command("memory", "vit-s-tiny", "--train", "--limit", "8 GB")
    assert code == 0
    assert "training, adamw" in out and "optimizer state" in out and "more fit" in out


def test_train_writes_weights_and_record_and_goes_on_from_its_checkpoint(command, tmp_path):
    arguments = ("train", "tests.support.training_runs:work", "--out", tmp_path, "--epochs", 2)
    code, out, _ = command(*arguments)
    assert code == 0 and "learning rate" in out
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["checkpoint.safetensors", "training.json", "weights.safetensors"]
    first = lab.Record.load(tmp_path / "training.json")
    code, out, _ = command(*arguments)
    assert code == 0 and "nothing was trained anew" in out
    assert lab.Record.load(tmp_path / "training.json").losses == first.losses


def test_a_training_goes_on_with_the_plan_that_its_checkpoint_was_made_with(
    command, tmp_path, monkeypatch
):
    plans = []

    def planned(work):
        layer = next(name for name, _ in work.model.named_children())
        plans.append(
            TrainingFormats(
                workload=work.name, machine="m", budget=0.1, loss=1.0,
                formats={} if plans else {layer: "bf16"},
            )
        )  # fmt: skip
        return plans[-1]

    monkeypatch.setattr("paifuser_lab.planner.training.plan_training_formats", planned)
    arguments = ("train", "tests.support.training_runs:work", "--out", tmp_path, "--epochs", 1)
    for _ in range(2):
        code, out, err = command(*arguments, "--precision", "auto", "--learning-rate", 0.01)
        assert code == 0, err
    assert "nothing was trained anew" in out and len(plans) == 1


def test_the_rate_is_found_as_the_model_is_trained(command, monkeypatch):
    given = []

    def find_rate(work, **options):
        given.append(options)
        raise StepError("enough is known")

    plan = SimpleNamespace(is_within=True, layers=("first",))
    planner = "paifuser_lab.planner.training.plan_checkpoints"
    monkeypatch.setattr(planner, lambda *given, **options: plan)
    monkeypatch.setattr(lab, "find_rate", find_rate)
    limited = ("--memory-limit", "2 GB", "--precision", "bf16", "--seed", 3)
    code, _, err = command("train", "tests.support.training_runs:work", *limited)
    assert code == 2 and "enough is known" in err
    known = {"checkpointed": ("first",), "precision": "bf16", "optimizer": "adamw", "seed": 3}
    assert given[0].items() >= known.items()


def test_the_seed_of_a_training_seeds_the_weights_that_a_function_makes(command, tmp_path):
    (tmp_path / "seeded_net.py").write_text(
        "import torch\nimport paifuser_lab as lab\n"
        "def make():\n"
        "    batch = torch.ones(2, 4), torch.tensor([0, 1])\n"
        "    loss = torch.nn.functional.cross_entropy\n"
        "    return lab.Workload(torch.nn.Linear(4, 3), batch[0], loss=loss, train=[batch])\n"
    )
    weights = []
    for seed in (1, 1, 2):
        code, _, err = command(
            "train", f"{tmp_path / 'seeded_net.py'}:make", "--seed", seed, "--epochs", 1,
            "--learning-rate", 0.01, "--out", tmp_path / str(len(weights)),
        )  # fmt: skip
        assert code == 0, err
        weights.append(load_file(tmp_path / str(len(weights)) / "weights.safetensors")["weight"])
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


SCRIPT = """
import sys
import torch

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(int(sys.argv[1])):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    print("ended", sys.argv[2])
    sys.exit(int(sys.argv[3]))
"""


def test_a_training_script_runs_as_it_is_with_its_loop_accelerated(command, tmp_path):
    (tmp_path / "loop.py").write_text(SCRIPT)
    arguments = ("train", tmp_path / "loop.py", "--json", tmp_path / "status.json", "--")
    before = "paifuser-lab", sys.path[:]
    code, out, _ = command(*arguments, 5, "--with", 0)
    assert code == 0 and "ended --with" in out and "Linear with SGD on cpu" in out
    status = lab.Record.load(tmp_path / "status.json")
    assert status.steps and status.rows
    assert not lab.status().is_enabled and (sys.argv[0], sys.path) == before
    code, out, _ = command(*arguments, 2, "x", 3)
    assert code == 3 and "Linear with SGD" in out and not lab.status().is_enabled


@pytest.mark.parametrize("ending", ["lab.disable()", ""])
def test_a_script_with_its_own_enable_is_accelerated_by_that(command, tmp_path, ending):
    own = "import paifuser_lab as lab\n    lab.enable(precision=None, memory_pool=False)"
    script = SCRIPT.replace("torch.manual_seed(0)", own).replace(
        'print("ended"', f"{ending}\n    print('ended'"
    )
    (tmp_path / "loop.py").write_text(script.replace("print('ended'", 'print("ended"'))
    arguments = ("train", tmp_path / "loop.py", "--json", tmp_path / "status.json", "--")
    code, out, err = command(*arguments, 5, "x", 0)
    assert code == 0 and "Linear with SGD on cpu" in out, err
    names = {row.name for row in lab.Record.load(tmp_path / "status.json").rows}
    assert "channels_last" in names and not names & {"bf16", "memory_pool"}
    assert not lab.status().is_enabled


def test_a_script_refuses_the_options_of_a_model(command, tmp_path):
    (tmp_path / "loop.py").write_text(SCRIPT)
    for option, sentence in {
        ("--epochs", 3): "--epochs is not for a script in one process",
        ("--precision", "int8"): "--precision int8 is not for a script",
        ("--restarts", 1): "--restarts is not for a script in one process",
        ("--processes", 2, "--json", "x"): "--json is not for a script in several processes",
    }.items():
        code, _, err = command("train", tmp_path / "loop.py", *option)
        assert code == 2 and sentence in err
    code, _, err = command("train", tmp_path / "none.py")
    assert code == 2 and "There is no file" in err
    code, _, err = command("train", "resnet18-tiny", "more")
    assert code == 2 and "a model has no arguments" in err
    code, _, err = command("train", "resnet18-tiny", "--restarts", 1)
    assert code == 2 and "--restarts is for a script" in err


def test_profile_prints_the_tree_and_advice_and_writes_record_report_and_trace(command, tmp_path):
    names = {"--save": "profile.json", "--html": "report.html", "--trace": "trace.json"}
    options = [part for option, name in names.items() for part in (option, str(tmp_path / name))]
    code, out, _ = command(
        "profile", "resnet18-tiny", "--depth", "1", "--seconds", "0.2", "--backward", *options
    )
    assert code == 0
    assert "maxpool" in out and "layer1" in out and "conv2" not in out.split("rows add up")[0]
    assert "rows add up to" in out and "resnet18-tiny (ResNet)" in out and "→ fold saves" in out
    profile = lab.Profile.load(tmp_path / "profile.json")
    assert profile["layer1.0.conv2"].backward_self_ms > 0
    assert "backward ms" in out
    assert "layer1" in (tmp_path / "report.html").read_text()
    code, out, _ = command("trace", str(tmp_path / "trace.json"))
    assert code == 0 and "(BasicBlock)" in out and "convolution" in out


def test_a_mistyped_layer_loses_no_measurement(command, tmp_path):
    saved = tmp_path / "profile.json"
    code, out, err = command(
        "profile", "resnet18-tiny", "--layer", "layer9", "--seconds", "0.2", "--save", saved
    )
    assert code == 2 and "No layer 'layer9' ran in resnet18-tiny" in err and "Traceback" not in err
    assert "rows add up to" in out and lab.Profile.load(saved)["layer1"].total_ms > 0


def test_each_caption_of_a_table_is_a_line_of_its_own(capsys):
    from paifuser_lab.cli.terminal import print_table

    print_table(("a title", "the machine was busy"), [{"name": "a"}])
    assert capsys.readouterr().out.splitlines()[:2] == ["a title", "the machine was busy"]


def test_help_begins_with_the_commands_to_start_with(command):
    code, out, _ = command("--help")
    assert code == 0
    groups = [line for line in out.splitlines() if "─" in line and any(map(str.isalpha, line))]
    named = [next(group for group in program.COMMANDS if group in line) for line in groups[1:]]
    assert named == list(program.COMMANDS) and named[0] == "Start here"
    start = out[out.index("Start here") : out.index(named[1])]
    assert all(f"│ {name}" in start for name in program.COMMANDS["Start here"])


def test_every_command_has_a_group(command):
    grouped = {name for commands in program.COMMANDS.values() for name in commands}
    assert {one.name for one in program.app.registered_commands} == grouped
    assert all(one.rich_help_panel for one in program.app.registered_commands)


def test_the_version_is_printed(command):
    assert command("--version") == (0, f"paifuser-lab {lab.__version__}\n", "")


def test_a_plan_says_how_long_it_took(command):
    code, out, _ = command("plan", "resnet18-tiny", "--seconds", "2", "--max-error", "0")
    assert code == 0
    assert re.search(r"\d+ s of 2 for building and measuring \d+ recipe", out)


def test_the_command_starts_without_what_only_some_commands_use():
    slow = ["matplotlib", "nbformat", "tornado", "prometheus_client", "ray", "onnxruntime"]
    code = f"import sys, paifuser_lab.cli; print([name for name in {slow} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_history_lists_what_was_measured_and_prints_a_recipe(command, monkeypatch, tmp_path):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    work = lab.load("resnet18-tiny")
    lab.compare(work, lab.Recipe(["fold"]), lab.Recipe(["layout"]), rounds=1, metric=False)
    code, out, _ = command("history", "resnet18", "--save", tmp_path / "history.json")
    assert code == 0 and "2 measured" in out and "channels" in out
    assert len(lab.Record.load(tmp_path / "history.json").rows) == 2
    code, out, _ = command("history", "--recipe", 1)
    assert code == 0 and lab.Recipe.from_text(out) == lab.Recipe(["fold"])
    code, out, _ = command("history", "--pair", 1, 2)
    assert code == 0 and "Only A has" in out
    code, out, _ = command("history", "other")
    assert code == 0 and "nothing has been measured" in out
    code, _, error = command("history", "--since", "2026-11-1")
    assert code == 2 and "is no day; write it as 2026-11-01" in error
    code, _, error = command("history", "--recipe", 7)
    assert code == 2 and "There is no result 7" in error


def test_recipes_with_one_label_are_told_apart_by_their_files(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    files = {"a.yaml": "layout", "b.yaml": "layout", "c.yaml": "fold"}
    for file, step in files.items():
        lab.Recipe([step]).save(file)
    code, out, _ = command("compare", "resnet18-tiny", *files, "--rounds", 1, "--save", "all.json")
    assert code == 0 and "channels last (b.yaml): " in out
    names = [row.name for row in lab.Record.load("all.json").rows]
    assert names[1:] == ["channels last (a.yaml)", "channels last (b.yaml)", "fold batch-norm"]
