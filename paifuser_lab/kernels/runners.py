"""The runner that launches kernels on a type of device: CuPy on a GPU, an emulator in tests, none
on a CPU.

CuPy launches on torch's current stream and memory; only here is it imported. What cannot run raises
a KernelError, and torch computes instead. Call a kernel once before a CUDA graph is captured, so
that it is compiled and loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import KernelError, MissingExtraError, first_line
from .compile import architecture_of, cubin_of, program, shipped
from .driver import check_driver, packages
from .kernel import DeclinedError, Launch
from .nvrtc import nvrtc

DEFAULT_SHARED_BYTES = 48 << 10  # more has to be requested

Runner = Callable[[Launch], None]
_runners: dict[str, Runner] = {}


def runner_of(device: torch.device) -> Runner | None:
    """The runner of a device; None on a CPU, where torch computes the result."""
    if device.type == "cuda" and "cuda" not in _runners:
        _runners["cuda"] = CupyRunner()
    return _runners.get(device.type)


class CupyRunner:
    """Loads each entry once per device and launches it; `source_of` finds a kernel's source."""

    def __init__(self, source_of: Callable[[str], str] = shipped) -> None:
        self._source_of = source_of
        self._functions: dict[tuple[int, str], Any] = {}
        self._failures: dict[tuple[int, str], str] = {}

    def __call__(self, launch: Launch) -> None:
        """Enqueue a launch on torch's current stream, without waiting for it."""
        device = launch.device.index
        function = self._function(device, launch)
        cupy = _cupy()
        arguments = tuple(map(_as_argument, launch.arguments))
        stream = cupy.cuda.Stream.from_external(torch.cuda.current_stream(device))
        try:
            with cupy.cuda.Device(device), stream:
                function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)
        except _errors_of(cupy) as error:
            raise KernelError(f"{launch.entry} does not launch ({first_line(error)})") from error

    def _function(self, device: int, launch: Launch) -> Any:
        key = (device, launch.entry)
        if key in self._failures:
            raise KernelError(self._failures[key])
        if key not in self._functions:
            with torch.cuda.device(device):
                if torch.cuda.is_current_stream_capturing():
                    raise DeclinedError(
                        "it was not loaded when a CUDA graph was captured; call it once before"
                    )
            try:
                self._functions[key] = self.load(
                    device, launch.kernel, launch.entry, launch.shared_bytes
                )
            except (KernelError, MissingExtraError) as error:
                self._failures[key] = str(error)  # tried once, not at every call
                raise KernelError(str(error)) from error
        return self._functions[key]

    def load(self, device: int, kernel: str, entry: str, shared_bytes: int) -> Any:
        """Load an entry on a device."""
        cupy = _cupy()
        architecture = architecture_of(torch.cuda.get_device_capability(device), nvrtc())
        cubin = cubin_of(program(self._source_of(kernel), entry, architecture))
        try:
            with cupy.cuda.Device(device):
                function = cupy.RawModule(path=str(cubin.path)).get_function(cubin.entry)
                if shared_bytes > DEFAULT_SHARED_BYTES:
                    function.max_dynamic_shared_size_bytes = shared_bytes
                return function
        except _errors_of(cupy) as error:
            compiler = f"CUDA {cubin.compiler.partition('.')[0]}"
            raise KernelError(
                f"{entry} does not load ({first_line(error)}); is the driver older than {compiler}?"
            ) from error


def _errors_of(cupy: Any) -> tuple[type[Exception], ...]:
    """The exceptions that CuPy raises for errors of the driver or the runtime."""
    return cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError


def _as_argument(argument: Any) -> Any:
    """An address as an int, which CuPy passes as 64 bits; numpy scalars keep their own width."""
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    return 0 if argument is None else argument


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        check_driver()
        needed = packages()
        raise MissingExtraError(
            needed.package, extra=needed.extra, needed_for="Running a CUDA kernel"
        ) from error
    return cupy
