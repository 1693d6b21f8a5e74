"""Nothing is sent anywhere and nothing is downloaded at run time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import paifuser_lab

# An audit hook cannot be taken away again, so that the loop runs in a process of its own.
LOOP = """
import sys

def refuse(event, arguments):
    host = ""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    if event == "socket.connect" and isinstance(arguments[1], tuple):  # not one of a file
        host = arguments[1][0]
    if host and host not in ("localhost", "127.0.0.1", "::1"):
        sys.exit(f"{event} {host}")

sys.addaudithook(refuse)
CODE
print("done")
"""
USED = """
import paifuser_lab as lab
work = lab.load("resnet18-tiny")
variant = lab.apply(work, lab.Recipe(["fold", {"precision": {"default": "bf16"}}]))
lab.compare(work, variant, rounds=1)
lab.profile(work, runs=1, seconds=0.1)
lab.load("hf:bert", num_hidden_layers=1, hidden_size=8, num_attention_heads=2, vocab_size=32)
"""


def told(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOOP.replace("CODE", code)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_loading_applying_and_comparing_open_no_connection() -> None:
    run = told(USED)
    assert run.stdout.endswith("done\n"), run.stderr


def test_a_connection_would_be_seen() -> None:
    run = told("import urllib.request; urllib.request.urlopen('http://example.org')")
    assert "done" not in run.stdout and "example.org" in run.stderr


@pytest.mark.parametrize("first", ["import paifuser_lab", "RUN"])
def test_onnx_runtime_keeps_nothing_to_report(first: str, tmp_path: Path) -> None:
    run = Path(paifuser_lab.__file__).parent / "deployment" / "templates" / "run.py"
    code = run.read_text().partition("HERE = ")[0] if first == "RUN" else first
    left_out = ("CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [sys.executable, "-c", f"{code}\nimport onnxruntime"]
    subprocess.run(command, check=True, env={**env, "HOME": str(tmp_path)})
    assert not list(tmp_path.rglob("*onnxruntime*"))
