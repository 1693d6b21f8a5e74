"""Machine code of a kernel's entry: compiled by NVRTC, which needs no GPU, and cached between runs
in the user's own folder, verified by its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from .._files import asset, cache_folder, read_text, replacing, write_text
from ..errors import FileError, KernelError, first_line
from .nvrtc import Compiled, Nvrtc, nvrtc

FORMAT = 2  # raise it when what is stored beside the machine code changes
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
        headers = sorted(self.headers.items())
        parts = [FORMAT, self.source, headers, self.entry, self.flags, compiler]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def compiled(self) -> Compiled:
        """Compile to machine code."""
        return nvrtc().compile(self.source, self.headers, self.entry, self.flags)


class Resources(BaseModel):
    """Registers, spills and stack of one entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    registers: int
    spill_bytes: int
    stack_bytes: int


class Cubin(BaseModel):
    """The machine code of one entry: path, name to load it by, and resources."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: Path
    entry: str
    sha256: str
    compiler: str
    resources: Resources


def shipped(kernel: str) -> str:
    """The source of a kernel, `kernels/<kernel>.cu`."""
    return read_text(asset(f"kernels/{kernel}.cu"))


def program(source: str, entry: str, architecture: str) -> Program:
    """An entry of a source for an architecture: sm_80, sm_90a, sm_100 …"""
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
    major, minor = capability
    if capability < MIN_CAPABILITY:
        raise KernelError(
            f"The kernels need compute capability 8.0 or later, and this GPU has {major}.{minor}"
        )
    if capability == (9, 0):
        return "sm_90a"
    known = compiler.architectures()
    fits = [number for number in known if 10 * major <= number <= 10 * major + minor]
    if not fits:
        raise KernelError(
            f"NVRTC {compiler.version} compiles up to sm_{max(known, default=0)}, not for compute "
            f"capability {major}.{minor}"
        )
    return f"sm_{max(fits)}"


def resources_in(log: str, entry: str) -> Resources:
    """Parse the assembler's lines about an entry in NVRTC's log (`--ptxas-options=-v`)."""
    match = re.search(
        rf"'{re.escape(entry)}'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes "
        r"spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    if match is None:
        raise KernelError(
            f"NVRTC's log has no resources of {entry}; is this version of NVRTC supported?"
        )
    stack, stores, loads, registers = (int(text) for text in match.groups())
    return Resources(registers=registers, spill_bytes=stores + loads, stack_bytes=stack)


def cubin_of(program: Program) -> Cubin:
    """The machine code of a program: cached, or compiled now."""
    compiler = nvrtc().version
    name = f"{program.entry.split('<')[0]}-{program.key(compiler)[:20]}.json"
    manifest = _folder() / name
    return _read(manifest) or _compile(program, compiler, manifest)


def _compile(program: Program, compiler: str, manifest: Path) -> Cubin:
    compiled = program.compiled()
    cubin = Cubin(
        path=manifest.with_suffix(".cubin"),
        entry=compiled.entry,
        sha256=hashlib.sha256(compiled.cubin).hexdigest(),
        compiler=compiler,
        resources=resources_in(compiled.log, compiled.entry),
    )
    try:
        _write(cubin, compiled.cubin, manifest)
    except FileError as error:
        warnings.warn(f"Machine code is cached for this run only: {error}", stacklevel=2)
        cubin = cubin.model_copy(update={"path": _folder_of_this_run() / cubin.path.name})
        cubin.path.write_bytes(compiled.cubin)
    return cubin


def _write(cubin: Cubin, code: bytes, manifest: Path) -> None:
    with replacing(cubin.path) as temporary:
        temporary.write_bytes(code)
    write_text(manifest, cubin.model_dump_json(indent=1) + "\n")
    for path in (cubin.path, manifest):
        path.chmod(0o600)


def _read(manifest: Path) -> Cubin | None:
    """The machine code cached under a manifest, or None; damage is a warning."""
    if not manifest.exists():
        return None
    path = manifest.with_suffix(".cubin")
    try:
        cached = Cubin.model_validate_json(manifest.read_bytes())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValidationError) as error:
        reason = first_line(error)
    else:
        if (cached.path, cached.sha256) == (path, digest):
            return cached
        reason = "its SHA-256 differs"
    warnings.warn(
        f"The machine code cached as {manifest.stem} is damaged ({reason}); it is compiled again.",
        stacklevel=2,
    )
    return None


def _folder() -> Path:
    """The user's own folder of machine code, or a temporary one if that is not private.

    Whoever can write there decides which code runs.
    """
    try:
        folder = cache_folder("kernels")
        folder.chmod(0o700)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            raise OSError(None, f"{folder} belongs to another user")
    except OSError as error:
        reason = error.strerror or first_line(error)
        warnings.warn(
            f"Machine code is cached for this run only: the cache is unusable ({reason}).",
            stacklevel=2,
        )
        return _folder_of_this_run()
    return folder


@cache
def _folder_of_this_run() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"paifuser-lab-{os.getpid()}-"))
