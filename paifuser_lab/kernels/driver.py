"""The CUDA version that this machine's NVIDIA driver runs, and the packages for it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

from ..errors import KernelError

LIBRARIES = ("libcuda.so.1", "nvcuda.dll")
LEAST, NEWEST = 12, 13  # CUDA, by its first number


class Packages(NamedTuple):
    """The packages for one CUDA version: CuPy, NVRTC, and the extras that install them."""

    package: str
    extra: str
    compiler: str
    compiler_extra: str


PACKAGES = {
    LEAST: Packages("cupy-cuda12x", "gpu12", "nvidia-cuda-nvrtc-cu12", "gpu12"),
    NEWEST: Packages("cupy-cuda13x", "gpu", "nvidia-cuda-nvrtc", "kernels"),
}


@cache
def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, such as (12, 8); None where there is no driver."""
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        version = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
            return version.value // 1000, version.value % 1000 // 10
    return None


def packages() -> Packages:
    """The packages for this driver; for the newest CUDA where there is none."""
    version = cuda_version()
    return PACKAGES[NEWEST if version is None or version[0] >= NEWEST else LEAST]


def check_driver() -> None:
    """Refuse a driver that is too old for every CuPy named here."""
    version = cuda_version()
    if version is not None and version[0] < LEAST:
        known = ".".join(map(str, version))
        raise KernelError(
            f"the NVIDIA driver knows CUDA {known}, and CuPy needs {LEAST} or later; update the "
            "driver."
        )
