"""CuPy's arrays in the memory of torch's caching allocator, on torch's current stream.

With an allocator of its own, CuPy would keep what torch could use, and torch could not reuse a
block in the order of a stream that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import MissingExtraError, PoolError


@contextmanager
def cupy_in_torch_memory(
    device: int | None = None, *, cupy: Any = None, cuda: Any = torch.cuda
) -> Iterator[None]:
    """Let CuPy allocate from torch's allocator and run on torch's current stream; arrays that live
    on afterwards stay valid, and are freed to torch.
    """
    cupy = cupy or _cupy()
    index = cuda.current_device() if device is None else device

    def allocate(size: int, on: int) -> int:
        stream = cuda.current_stream(on)
        if cupy.cuda.get_current_stream().ptr != stream.cuda_stream:
            raise PoolError(
                f"CuPy's current stream on cuda:{on} is another than torch's, from whose memory "
                "it would allocate; use both on one: "
                "cupy.cuda.Stream.from_external(torch.cuda.current_stream())."
            )
        return int(cuda.caching_allocator_alloc(size, on, stream))

    def free(address: int, on: int) -> None:
        cuda.caching_allocator_delete(address)

    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(allocate, free).malloc)
    try:
        stream = cupy.cuda.Stream.from_external(cuda.current_stream(index))
        with cupy.cuda.Device(index), stream:
            yield
    finally:
        cupy.cuda.set_allocator(before)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise MissingExtraError("cupy", extra="gpu", needed_for="CuPy in torch's memory") from error
    return cupy
