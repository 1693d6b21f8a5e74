"""The CUDA version that this machine's NVIDIA driver supports, and the packages for it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

from ..errors import KernelError

LIBRARIES = ("libcuda.so.1", "nvcuda.dll")
MIN_CUDA, MAX_CUDA = 12, 13  # major versions


class Packages(NamedTuple):
    """The packages for one CUDA version: CuPy, NVRTC, and the extras that install them."""

    package: str
    extra: str
    compiler: str
    compiler_extra: str


PACKAGES = {
    MIN_CUDA: Packages("cupy-cuda12x", "gpu12", "nvidia-cuda-nvrtc-cu12", "gpu12"),
    MAX_CUDA: Packages("cupy-cuda13x", "gpu", "nvidia-cuda-nvrtc", "kernels"),
}


@cache
def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA that the driver supports, such as (12, 8); None without a driver."""
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
    """The packages for this driver; for the newest CUDA without a driver."""
    version = cuda_version()
    return PACKAGES[MAX_CUDA if version is None or version[0] >= MAX_CUDA else MIN_CUDA]


def check_driver() -> None:
    """Raise if the driver is too old for every supported CuPy."""
    version = cuda_version()
    if version is not None and version[0] < MIN_CUDA:
        supported = ".".join(map(str, version))
        raise KernelError(
            f"the NVIDIA driver supports CUDA {supported}, and CuPy needs {MIN_CUDA} or later; "
            "update the driver."
        )
