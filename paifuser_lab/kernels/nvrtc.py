"""NVIDIA's run-time compiler: CUDA C++ to machine code; needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from ..errors import KernelError, MissingExtraError, first_line
from . import driver

LIBRARIES = ("libnvrtc.so", "nvrtc64_")


@dataclass(frozen=True)
class Compiled:
    """Machine code, the mangled name of its entry, and the assembler's log."""

    cubin: bytes
    entry: str
    log: str


@cache
def nvrtc() -> Nvrtc:
    """The compiler of this machine: of its pip package, of the CUDA toolkit, or of the system."""
    failures = []
    for path in _library_paths():
        try:
            return load(Path(path))
        except (OSError, AttributeError) as error:
            failures.append(first_line(error))
    packages = driver.packages()
    if failures:
        raise KernelError(
            f"NVRTC was found and does not load: {failures[0]}; reinstall {packages.compiler}."
        )
    raise MissingExtraError(
        packages.compiler, extra=packages.compiler_extra, needed_for="Compiling a CUDA kernel"
    )


def load(library: Path) -> Nvrtc:
    """Load NVRTC after its built-in functions, which 13.0 searches on the system's path alone."""
    # by absolute path only, never from the current folder
    siblings = library.parent.glob("libnvrtc-builtins.so*") if library.is_absolute() else ()
    for builtins in sorted(siblings):
        ctypes.CDLL(str(builtins))
    return Nvrtc(ctypes.CDLL(str(library)))


class Nvrtc:
    """NVRTC's C functions, each of which returns an error code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._call("Version", byref(major), byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def architectures(self) -> tuple[int, ...]:
        """The architectures that it compiles for: 80, 90, 100 …"""
        count = c_int()
        self._call("GetNumSupportedArchs", byref(count))
        architectures = (c_int * count.value)()
        self._call("GetSupportedArchs", architectures)
        return tuple(architectures)

    def compile(
        self, source: str, headers: Mapping[str, str], entry: str, flags: Sequence[str]
    ) -> Compiled:
        """Compile one entry of a source: `depthwise<bfloat16, 3, 1, RELU, 8, 8, 64, 1>`."""
        program, lowered = c_void_p(), c_char_p()
        file, count = entry.split("<")[0].encode() + b".cu", len(headers)
        names, texts = _strings(headers), _strings(headers.values())
        self._call("CreateProgram", byref(program), source.encode(), file, count, texts, names)
        try:
            self._call("AddNameExpression", program, entry.encode())
            code = self._library.nvrtcCompileProgram(program, len(flags), _strings(flags))
            log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if code:
                raise KernelError(
                    f"{entry} does not compile ({self._error_text(code)}): {_first_error(log)}; "
                    "see kernels/README.md."
                )
            self._call("GetLoweredName", program, entry.encode(), byref(lowered))
            return Compiled(self._bytes(program, "CUBIN"), (lowered.value or b"").decode(), log)
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _bytes(self, program: c_void_p, output: str) -> bytes:
        size = c_size_t()
        self._call(f"Get{output}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{output}", program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, f"nvrtc{name}")(*arguments):
            raise KernelError(
                f"NVRTC failed: {self._error_text(code)}; is the CUDA installation complete?"
            )

    def _error_text(self, code: int) -> str:
        text: bytes = self._library.nvrtcGetErrorString(code)
        return text.decode()


def _library_paths() -> Iterator[str]:
    """Where NVRTC may be, the package for the driver's own CUDA first: an older driver may not load
    what a newer NVRTC compiles.
    """
    fitting = driver.packages()
    for package in sorted(driver.PACKAGES.values(), key=lambda package: package != fitting):
        try:
            libraries = files(package.compiler) or []
        except PackageNotFoundError:
            continue
        for file in libraries:
            is_part = "builtins" in file.name or ".alt." in file.name
            path = Path(str(file.locate()))
            if file.name.startswith(LIBRARIES) and not is_part and path.exists():
                yield str(path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield from (str(path) for path in sorted(Path(root).glob("lib*/libnvrtc.so")))
    if known := ctypes.util.find_library("nvrtc"):
        yield known


def _strings(texts: Iterable[str]) -> ctypes.Array[c_char_p]:
    encoded = [text.encode() for text in texts]
    return (c_char_p * len(encoded))(*encoded)


def _first_error(log: str) -> str:
    errors = [line.strip() for line in log.splitlines() if "error" in line]
    return errors[0] if errors else first_line(RuntimeError(log))
