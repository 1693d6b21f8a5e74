"""CuPy in torch's memory, on stand-ins for both; and on a GPU where there is one."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest
import torch

from paifuser_lab.errors import MissingExtraError, PoolError
from paifuser_lab.memory.pools import cupy_in_torch_memory
from tests.support.allocators import ROUNDED, FakeCuda


class FakeCupy:
    """CuPy's allocator and streams."""

    def __init__(self):
        self.cuda = self
        self.allocator = self.before = object()
        self.stream = 7
        self.entered = []

    def get_allocator(self):
        return self.allocator

    def set_allocator(self, allocator):
        self.allocator = allocator

    def PythonFunctionAllocator(self, malloc, free):
        return SimpleNamespace(malloc=(malloc, free))

    def get_current_stream(self):
        return SimpleNamespace(ptr=self.stream)

    def Device(self, index):
        self.entered.append(index)
        return nullcontext()

    @property
    def Stream(self):
        return SimpleNamespace(
            from_external=lambda stream: nullcontext(self.entered.append(stream.cuda_stream))
        )


def test_cupy_allocates_from_torch_on_its_stream_and_gets_its_own_allocator_back():
    cupy, cuda = FakeCupy(), FakeCuda()
    with suppress(KeyError), cupy_in_torch_memory(cupy=cupy, cuda=cuda):
        malloc, free = cupy.allocator
        address = malloc(100, 0)
        assert cuda.memory_allocated(0) == ROUNDED
        assert sorted(cupy.entered) == [0, 7]
        raise KeyError
    assert cupy.allocator is cupy.before
    free(address, 0)
    assert cuda.memory_allocated(0) == 0, "an array that lives on is freed to torch"


def test_another_stream_than_torch_s_is_refused():
    cupy, cuda = FakeCupy(), FakeCuda()
    with cupy_in_torch_memory(cupy=cupy, cuda=cuda):
        cupy.stream = 8
        with pytest.raises(PoolError, match="another than torch's"):
            cupy.allocator[0](100, 0)
    assert cuda.memory_allocated(0) == 0


def test_without_cupy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with (
        pytest.raises(MissingExtraError, match=r"needs cupy.*paifuser-lab\[gpu\]"),
        cupy_in_torch_memory(0, cuda=FakeCuda()),
    ):
        pass


def test_without_a_gpu_cupy_s_allocator_stays(monkeypatch):
    cupy, cuda = FakeCupy(), FakeCuda()
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with (
        pytest.raises(PoolError, match="CuPy in torch's memory needs a GPU that torch can use"),
        cupy_in_torch_memory(cupy=cupy, cuda=cuda),
    ):
        pass
    assert cupy.allocator is cupy.before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_cupy_s_arrays_live_in_torch_s_memory_on_a_gpu():
    cupy = pytest.importorskip("cupy")
    before = torch.cuda.memory_allocated()
    with cupy_in_torch_memory():
        array = cupy.arange(1 << 20, dtype="float32")
        assert torch.cuda.memory_allocated() - before >= 4 << 20
        assert float(torch.as_tensor(array, device="cuda").sum()) == float(array.sum())
    del array
    assert torch.cuda.memory_allocated() == before
