"""NVIDIA's run-time compiler: CUDA C++ to machine code; needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

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
    missing = MissingExtraError(
        packages.compiler, extra=packages.compiler_extra, needed_for="Compiling a CUDA kernel"
    )
    raise (
        KernelError(
            f"NVRTC was found and does not load: {failures[0]}; reinstall {packages.compiler}."
        )
        if failures
        else missing
    )


def load(library: Path) -> Nvrtc:
    """Load NVRTC and before it its built-in functions: NVRTC 13.0 searches those on the system's
    path alone.
    """
    # by absolute path only, never from the current folder
    siblings = library.parent.glob("libnvrtc-builtins.so*") if library.is_absolute() else ()
    for builtins in sorted(siblings):
        ctypes.CDLL(str(builtins))
    return Nvrtc(ctypes.CDLL(str(library)))


class Nvrtc:
    """NVRTC's C functions, each of which returns an error code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        # looked up now: a library without it is not NVRTC
        self._compile = library.nvrtcCompileProgram
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def architectures(self) -> tuple[int, ...]:
        """The architectures that it compiles for: 80, 90, 100 …"""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        architectures = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(architectures))
        return tuple(architectures)

    def compile(
        self, source: str, headers: Mapping[str, str], entry: str, flags: Sequence[str]
    ) -> Compiled:
        """Compile one entry of a source, with its template arguments:
        `depthwise<bfloat16, 3, 1, RELU, 8, 8, 64, 1>`.
        """
        program = ctypes.c_void_p()
        names, texts = _strings(headers), _strings(headers.values())
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program),
                source.encode(),
                entry.split("<")[0].encode() + b".cu",
                len(headers),
                texts,
                names,
            )
        )
        try:
            self._check(self._library.nvrtcAddNameExpression(program, entry.encode()))
            code = self._compile(program, len(flags), _strings(flags))
            log = self._text(program, "ProgramLog")
            if code:
                raise KernelError(
                    f"{entry} does not compile ({self._error_text(code)}): {_first_error(log)}; "
                    "see kernels/README.md."
                )
            lowered = ctypes.c_char_p()
            self._check(
                self._library.nvrtcGetLoweredName(program, entry.encode(), ctypes.byref(lowered))
            )
            return Compiled(self._bytes(program, "CUBIN"), (lowered.value or b"").decode(), log)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, output: str) -> str:
        return self._bytes(program, output).rstrip(b"\0").decode(errors="replace")

    def _bytes(self, program: ctypes.c_void_p, output: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{output}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{output}")(program, buffer))
        return buffer.raw

    def _check(self, code: int) -> None:
        if code:
            raise KernelError(
                f"NVRTC failed: {self._error_text(code)}; is the CUDA installation complete?"
            )

    def _error_text(self, code: int) -> str:
        text: bytes = self._library.nvrtcGetErrorString(code)
        return text.decode()


def _packages() -> list[str]:
    """The packages of NVRTC, the one for the driver's own CUDA first.

    An older driver may not load what a newer NVRTC compiles.
    """
    fitting = driver.packages().compiler
    return sorted(
        (package.compiler for package in driver.PACKAGES.values()),
        key=lambda name: (name != fitting, name),
    )


def _library_paths() -> Iterator[str]:
    for package in _packages():
        try:
            libraries = [file for file in files(package) or [] if file.name.startswith(LIBRARIES)]
        except PackageNotFoundError:
            continue
        paths = [
            str(file.locate())
            for file in libraries
            if "builtins" not in file.name and ".alt." not in file.name
        ]
        yield from (path for path in paths if Path(path).exists())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield from (str(path) for path in sorted(Path(root).glob("lib*/libnvrtc.so")))
    if known := ctypes.util.find_library("nvrtc"):
        yield known


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _first_error(log: str) -> str:
    errors = [line.strip() for line in log.splitlines() if "error" in line]
    return errors[0] if errors else first_line(RuntimeError(log))
