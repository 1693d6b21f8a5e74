"""Runs a package of AOTInductor without Python: a C++ program, compiled once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .._files import asset, cache_folder
from ..errors import ExportError

SOURCE = "runners/run_package.cpp"
LIBRARIES = ("torch", "torch_cpu", "c10")
BUILD_S, RUN_S = 600, 300  # the most that a compilation and a run may take


def compiler() -> str | None:
    """The C++ compiler: that of the environment variable CXX, or g++."""
    return shutil.which(os.environ.get("CXX") or "g++")


def build_command(program: str | Path) -> list[str]:
    """The command that compiles the C++ program against the libraries of the installed torch."""
    home = Path(torch.__file__).parent
    abi = int(torch.compiled_with_cxx11_abi())
    return [
        compiler() or "g++",
        "-std=c++20",
        "-O1",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        "-isystem",
        str(home / "include"),
        "-isystem",
        str(home / "include" / "torch" / "csrc" / "api" / "include"),
        str(asset(SOURCE)),
        f"-L{home / 'lib'}",
        f"-Wl,-rpath,{home / 'lib'}",
        "-Wl,--no-as-needed",
        *(f"-l{name}" for name in LIBRARIES),
        "-o",
        str(program),
    ]


def runner() -> Path:
    """The compiled C++ program, from the cache if it is there."""
    key = f"{asset(SOURCE).read_text(encoding='utf-8')}|{torch.__version__}|{torch.__file__}"
    folder = cache_folder("runners")
    program = folder / f"run_package-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not program.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as stage:
            built = Path(stage) / "run_package"
            _call(build_command(built), BUILD_S, "The C++ program that runs a package")
            os.replace(built, program)
    return program


def run_without_python(
    package: str | Path, tensors: Sequence[Tensor], *, threads: int = 1, calls: int = 1
) -> tuple[list[Tensor], list[float]]:
    """The outputs of a package in a process without Python, and the ms of each call."""
    with tempfile.TemporaryDirectory(prefix="paifuser-run-") as folder:
        inputs, outputs = Path(folder) / "inputs", Path(folder) / "outputs"
        write_tensors(inputs, tensors)
        command = [str(runner()), str(package), str(inputs), str(outputs), str(calls)]
        lines = _call(command, RUN_S, f"{Path(package).name} without Python", threads)
        return read_tensors(outputs), [float(line) for line in lines.split()]


def write_tensors(path: Path, tensors: Sequence[Tensor]) -> None:
    """Write tensors as the C++ program reads them: a line each, an empty line, their values."""
    lines = [
        " ".join([str(tensor.dtype).removeprefix("torch."), *map(str, tensor.shape)])
        for tensor in tensors
    ]
    with path.open("wb") as file:
        file.write("".join(f"{line}\n" for line in [*lines, ""]).encode())
        for tensor in tensors:
            file.write(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def read_tensors(path: Path) -> list[Tensor]:
    """Read tensors that the C++ program wrote."""
    with path.open("rb") as file:
        lines = iter(lambda: file.readline().decode().strip(), "")
        described = [(words[0], [*map(int, words[1:])]) for words in map(str.split, lines)]
        tensors = []
        for name, sizes in described:
            empty = torch.empty(sizes, dtype=getattr(torch, name))
            values = bytearray(file.read(empty.nbytes))
            tensors.append(
                torch.frombuffer(values, dtype=empty.dtype).reshape(sizes) if values else empty
            )
    return tensors


def _call(command: list[str], limit_s: float, what: str, threads: int = 1) -> str:
    """What a command prints; its last line of errors as one sentence where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExportError(f"{what} failed: {error}.") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        reason = (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise ExportError(f"{what} failed: {reason.strip().rstrip('.')}.")
    return done.stdout
