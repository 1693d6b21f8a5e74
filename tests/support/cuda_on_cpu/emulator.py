"""Runs a launch on the CPU: the CUDA source compiled by g++, every launch a process of its own that
reads and answers bytes.

`Emulator(kernel, entries)` is called with a Launch as CuPy's runner is. What a sanitizer or the
runtime finds is raised as EmulationError, in its words. Builds are kept in the user's cache folder
by a hash of all that decides them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import platformdirs
from torch import Tensor

from paifuser_lab.kernels.compile import headers_of
from paifuser_lab.kernels.kernel import Argument, Launch

HERE = Path(__file__).parent
RUNTIME = ("fibers.cpp", "collectives.cpp", "program.cpp")
PLAIN = ("-std=c++17", "-O2", "-g0", "-ffp-contract=off")
# For the kernel, and for the runtime, which a sanitizer must not look into.
CHECKS = {
    "none": ((), ()),
    "races": (("-fsanitize=thread", "-g1", "-O1"), ("-DRACES",)),
    "bounds": (("-fsanitize=address", "-g1", "-O1"), ("-DBOUNDS",)),
}
ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0",
    "ASAN_OPTIONS": "detect_leaks=0:use_sigaltstack=0",
}


class EmulationError(Exception):
    """A kernel did on the CPU what it must not do on a GPU."""


class Emulator:
    """A CUDA source with some of its entries, able to run launches."""

    def __init__(
        self, source: str, entries: Iterable[str], check: str = "none", order: int = 0
    ) -> None:
        self.check, self.order = check, order
        self.program = _built(source, tuple(entries), check)

    def __call__(self, launch: Launch) -> None:
        """Run a launch and write back what its buffers then hold."""
        tensors = [one for one in launch.arguments if isinstance(one, Tensor)]
        aslr_off = (
            [shutil.which("setarch") or "", "-R"]
            if self.check == "races" and shutil.which("setarch")
            else []
        )
        done = subprocess.run(
            [*aslr_off, str(self.program)],
            input=_packed(launch, self.order),
            capture_output=True,
            env={**os.environ, **ENVIRONMENT},
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise EmulationError(said or f"{launch.entry} ended with signal {-done.returncode}")
        start = 0
        for tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            ctypes.memmove(tensor.data_ptr(), done.stdout[start : start + size], size)
            start += size


def compiler() -> str | None:
    """g++, where it is."""
    return shutil.which("g++")


def _packed(launch: Launch, order: int) -> bytes:
    name = launch.entry.encode()
    head = (
        order,
        *launch.grid,
        *launch.block,
        launch.shared_bytes,
        len(name),
        len(launch.arguments),
    )
    return (
        struct.pack("<10I", *head)
        + name
        + b"".join(_packed_argument(one) for one in launch.arguments)
    )


def _packed_argument(argument: Argument) -> bytes:
    if argument is None:
        return struct.pack("<3Q", 0, 0, 0)
    if isinstance(argument, Tensor):
        size = argument.numel() * argument.element_size()
        address = argument.data_ptr()
        return struct.pack("<3Q", 2, address % 256, size) + ctypes.string_at(address, size)
    return struct.pack("<3Q", 1, 0, argument.nbytes) + argument.tobytes()


def _built(source: str, entries: tuple[str, ...], check: str) -> Path:
    for_kernel, for_runtime = CHECKS[check]
    headers = {
        path.name: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.h"))
    } | headers_of(source)
    runtime = {name: (HERE / name).read_text(encoding="utf-8") for name in RUNTIME}
    kernel = f'#include "cuda_on_cpu.h"\n#line 1 "the.cu"\n{source}\n' + "".join(
        f"ENTRY({entry})\n" for entry in entries
    )
    object_ = _made(headers | runtime, ("-r", *PLAIN, *for_runtime, *RUNTIME))
    return _made(
        headers | {"kernel.cpp": kernel}, (*PLAIN, *for_kernel, "kernel.cpp", str(object_))
    )


def _made(files: dict[str, str], arguments: tuple[str, ...]) -> Path:
    """What g++ makes of some files, unless it has been made before."""
    parts = json.dumps([sorted(files.items()), arguments, _version()])
    folder = platformdirs.user_cache_path("paifuser-lab") / "cuda_on_cpu"
    target = folder / hashlib.sha256(parts.encode()).hexdigest()[:20]
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for file, text in files.items():
            (Path(name) / file).write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["g++", *arguments, "-o", "made"], cwd=name, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise EmulationError(f"g++ does not compile this:\n{done.stderr}")
        os.replace(Path(name) / "made", target)
    return target


@cache
def _version() -> str:
    return subprocess.run(
        ["g++", "--version"], check=True, capture_output=True, text=True
    ).stdout.splitlines()[0]
