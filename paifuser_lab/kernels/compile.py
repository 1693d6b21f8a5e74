"""Compiles a CUDA source to machine code for one architecture; no GPU is needed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .._files import asset, read_text
from ..errors import KernelError
from .nvrtc import Compiled, Nvrtc, nvrtc

FORMAT = 1  # raise it when what is stored beside the machine code changes
FLAGS = ("-std=c++17", "--ptxas-options=-v")
MIN_CAPABILITY = (8, 0)  # asynchronous copies and matrix products in bfloat16
_INCLUDE = re.compile(r'^#include "([^"]+\.cuh)"$', re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """Everything that the machine code depends on."""

    source: str
    headers: dict[str, str]
    entry: str
    flags: tuple[str, ...]

    def key(self, compiler: str) -> str:
        """The cache key of the machine code that this compiler generates."""
        parts = [
            FORMAT,
            self.source,
            sorted(self.headers.items()),
            self.entry,
            self.flags,
            compiler,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def compiled(self) -> Compiled:
        """Compile to machine code."""
        return nvrtc().compile(self.source, self.headers, self.entry, self.flags)


def program(kernel: str, entry: str, architecture: str) -> Program:
    """An entry of `kernels/<kernel>.cu` for an architecture: sm_80, sm_90a, sm_100 …"""
    source = read_text(asset(f"kernels/{kernel}.cu"))
    return Program(source, headers_of(source), entry, (f"-arch={architecture}", *FLAGS))


def headers_of(source: str) -> dict[str, str]:
    """Every header that a source includes from its own folder, directly or through another."""
    headers: dict[str, str] = {}
    waiting = [source]
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            if name not in headers:
                headers[name] = read_text(asset(f"kernels/{name}"))
                waiting.append(headers[name])
    return headers


def architecture_of(capability: tuple[int, int], compiler: Nvrtc) -> str:
    """The architecture to compile for: the device's own, or the nearest older one of its
    generation.

    9.0 uses sm_90a, whose machine code runs on that capability alone and may use all of it.
    """
    if capability < MIN_CAPABILITY:
        raise KernelError(
            "The kernels need compute capability 8.0 or later, and this GPU has "
            f"{_dotted(capability)}"
        )
    if capability == (9, 0):
        return "sm_90a"
    number = capability[0] * 10 + capability[1]
    fits = [known for known in compiler.architectures() if capability[0] * 10 <= known <= number]
    if not fits:
        known = _newest(compiler.architectures())
        raise KernelError(
            f"NVRTC {compiler.version} compiles up to sm_{known}, not for compute capability "
            f"{_dotted(capability)}"
        )
    return f"sm_{max(fits)}"


def _newest(architectures: Sequence[int]) -> int:
    return max(architectures, default=0)


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
