"""Every reader of a file, given a valid file with random damage, reads it or refuses it in one
sentence: no other error, no crash, no hang, no gigabyte.

`FUZZ_SECONDS=60 pytest tests/test_damaged_files.py` looks that long at each reader.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import shutil
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import paifuser_lab as lab
from paifuser_lab.cli.grid import values_of
from paifuser_lab.memory.snapshots import read_snapshot
from paifuser_lab.profiler import read_trace
from paifuser_lab.records import Record
from paifuser_lab.streaming.model import OpenModel
from paifuser_lab.streaming.serving.inputs import read_body
from paifuser_lab.zoo.language import save_tiny_llama
from tests.support.onnx_files import matrix_file
from tests.support.saved_folders import rewrite_manifest
from tests.support.snapshots import recorded

EXAMPLES = 25  # at a time
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
LONGEST_S = 5.0  # of a processor: other programs do not count
MOST_BYTES = 1 << 30
SAVED = Path(__file__).parent / "support" / "recorded" / "saved" / "resnet18-tiny"

RECIPE = """\
version: 1
workload: resnet18-tiny
limit: {metric_drop: 0.01}
steps:
  - prune: {layers: {"layer1.0.conv1": 0.5}, importance: taylor}
  - precision: {layers: {"fc": int8}}
  - backend: {name: onnxruntime, threads: 2}
"""
TRACE = {
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "ts": 10 * index, "dur": 7,
         "pid": 1, "tid": 1, "args": {"External id": index}}
        for index, name in enumerate(("conv2d", "relu", "mm"))
    ]
}  # fmt: skip


def bytes_of(write: Callable[[Path], Any], name: str, folder: Path) -> bytes:
    write(folder / name)
    return (folder / name).read_bytes()


@cache
def valid(kind: str, folder: Path) -> bytes:
    """A file of this kind that its reader takes."""
    folder.mkdir(exist_ok=True)
    match kind:
        case "recipe.yaml":
            return RECIPE.encode()
        case "trace.json":
            return json.dumps(TRACE).encode()
        case "snapshot.pickle":
            return pickle.dumps(recorded(seed=1, steps=12).snapshot())
        case "model.onnx":
            return matrix_file()
        case "report.json":
            return (SAVED / "report.json").read_bytes()
        case "values.txt":
            return b"ratio=0.25,0.5,true,'a,b',1..4"
        case "request.json":
            return b'{"inputs": {"0": [[[0, 1], [2.5, 3]]]}}'
        case "request.npy":
            return bytes_of(lambda path: np.save(path, np.ones((1, 2, 2))), kind, folder)
        case "request.png":
            return bytes_of(lambda path: Image.new("L", (2, 2)).save(path), kind, folder)
        case "model.pt2":
            program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
            return bytes_of(lambda path: torch.export.save(program, path), kind, folder)
        case "model.gguf":
            pytest.importorskip("gguf")
            work = lab.load(f"hf:{save_tiny_llama(folder / 'llama')}")
            return bytes_of(lambda path: lab.export(work, "gguf", path, seconds=0), kind, folder)
    raise AssertionError(kind)


@cache
def served() -> OpenModel:
    """A model behind a server, which reads what clients send."""
    return OpenModel(lab.Workload(torch.nn.Conv2d(1, 1, 1), torch.rand(1, 1, 2, 2), name="small"))


def request(kind: str, path: Path) -> None:
    read_body(kind, path.read_bytes(), served())


READERS: dict[str, Callable[[Path], Any]] = {
    "recipe.yaml": lab.Recipe.load,
    "trace.json": read_trace,
    "snapshot.pickle": read_snapshot,
    "model.onnx": lab.load,
    "report.json": Record.load,
    "values.txt": lambda path: values_of([path.read_bytes().decode("utf-8", "replace")]),
    "request.json": partial(request, "application/json"),
    "request.npy": partial(request, "application/x-npy"),
    "request.png": partial(request, "image/png"),
    "model.pt2": lambda path: lab.load(str(path), trust=True),
    "model.gguf": lambda path: lab.load(str(path)),
}

# where in the file, as a share of it; what happens there; with which bytes
DAMAGE = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(["replace", "insert", "delete", "cut", "repeat"]),
        st.one_of(
            st.binary(min_size=1, max_size=4),
            st.sampled_from(
                [b"\xff" * 8, b"\x00" * 8, b"-1", b"1e999", b"[[[[", b"{}", b"null", b'"', b"\n"]
            ),
        ),
    ),
    min_size=1,
    max_size=3,
)
ROUNDS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def damaged(content: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    for share, what, new in edits:
        at = int(share * len(content))
        before, after = content[:at], content[at:]
        if what == "replace":
            content = before + new + after[len(new) :]
        elif what == "insert":
            content = before + new + after
        elif what == "delete":
            content = before + after[len(new) :]
        elif what == "repeat":
            content = before + after[: 8 * len(new)] * 3 + after
        else:
            content = before
    return content


@pytest.fixture
def look(record_property):
    """Runs a property, with other examples each time, until FUZZ_SECONDS have passed."""

    def repeat(holds: Callable[[], None]) -> None:
        ends, rounds = time.monotonic() + SECONDS, 0
        while not rounds or time.monotonic() < ends:
            holds()
            rounds += 1
        record_property("tried", EXAMPLES * rounds)  # the report of `python -m benchmarks fuzz`

    return repeat


def reads_or_refuses(read: Callable[[], Any]) -> None:
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read()
    except lab.PaifuserError as error:
        message = str(error)
        assert "\n" not in re.sub(r"\n +\S.*", "", message), message  # a line quoted from the file
    assert time.process_time() - started < LONGEST_S
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MOST_BYTES


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(kind, tmp_path_factory, tmp_path, look):
    content = valid(kind, tmp_path_factory.getbasetemp() / "valid")
    (tmp_path / kind).write_bytes(content)
    READERS[kind](tmp_path / kind)

    @ROUNDS
    @given(DAMAGE)
    def read(edits):
        (tmp_path / kind).write_bytes(damaged(content, edits))
        reads_or_refuses(lambda: READERS[kind](tmp_path / kind))

    look(read)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("recipe.yaml", b'version: 1\nsteps:\n  - prune: {"a\\nb": 1}\n', "no option 'a b'"),
        ("trace.json", b'{"traceEvents": [{"nam\xc1\x8f": 1}]}', "is not JSON"),
        # the index of an object, for which a table of 12 GB would be made
        ("snapshot.pickle", b"\x80\x02K\x01r\x61\x61\x61\x2e.", "is damaged"),
    ],
)
def test_what_was_read_wrongly_once_is_refused(kind, content, message, tmp_path):
    (tmp_path / kind).write_bytes(content)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(lab.PaifuserError, match=message) as raised:
        READERS[kind](tmp_path / kind)
    assert "\n" not in str(raised.value)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("file", ["structure.json", "recipe.yaml", "weights.safetensors",
                                  "report.json", "manifest.json"])  # fmt: skip
def test_a_saved_folder_with_one_damaged_file_is_loaded_or_refused(file, tmp_path, look):
    content = (SAVED / file).read_bytes()

    @ROUNDS
    @given(DAMAGE)
    def read(edits):
        folder = tmp_path / "saved"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SAVED, folder)
        (folder / file).write_bytes(damaged(content, edits))
        if file != "manifest.json":
            rewrite_manifest(folder)  # a hash that fits: the file itself has to be read
        reads_or_refuses(lambda: lab.load(str(folder)))

    look(read)


def test_a_variable_with_a_random_value_is_used_or_refused(look):
    for kind in ("", "avx2"):  # each is measured once, which takes more seconds than reading may
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PAIFUSER_CPU", kind)
            lab.hardware()

    @ROUNDS
    @given(name=st.sampled_from(["HARDWARE", "CACHE", "CPU", "HISTORY"]), text=st.text(max_size=8))
    def use(name, text):
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            return  # no environment can hold it
        with pytest.MonkeyPatch.context() as patch:
            if name != "CACHE":
                patch.setenv(f"PAIFUSER_{name}", text)
            reads_or_refuses(lab.hardware)

    look(use)
