"""What stands between an operator and a GPU: the fallback that is said once, and CuPy's half, driven with a stand-in for CuPy."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import attend_windows, convolve_depthwise, cupy_runner, launch, operators
from paifuser_lab.kernels.cubins import Cubin
from paifuser_lab.kernels.cupy_runner import CupyRunner
from paifuser_lab.kernels.launch import DeclinedError, Launch, run_by
from paifuser_lab.kernels.resources import Resources


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(operators, "_told", set())


def refuse(reason):
    def run(_):
        raise KernelError(reason)

    return run


def depthwise():
    x, weight = torch.randn(1, 8, 6, 6).bfloat16(), torch.randn(8, 1, 3, 3).bfloat16()
    return convolve_depthwise(x, weight), torch.nn.functional.conv2d(x, weight, padding=1, groups=8)


def test_a_kernel_that_cannot_run_is_said_once_and_torch_answers():
    with run_by(refuse("there is no driver."), "cpu"):
        with pytest.warns(UserWarning, match="depthwise runs in torch, not in its CUDA kernel: there is no driver"):
            made, expected = depthwise()
        assert made.equal(expected)
        depthwise()  # a second warning would be an error
        with pytest.warns(UserWarning, match="window_attention runs in torch"):
            attend_windows(torch.randn(1, 7, 7, 3, 1, 32).bfloat16(), torch.randn(1, 169), window=7)


def test_what_a_kernel_declines_is_said_with_its_reason():
    with run_by(refuse("never asked"), "cpu"), pytest.warns(UserWarning, match="not torch.float32"):
        convolve_depthwise(torch.randn(1, 8, 6, 6), torch.randn(8, 1, 3, 3))


def test_another_error_is_not_swallowed():
    def broken(_):
        raise RuntimeError("a mistake of ours")

    with run_by(broken, "cpu"), pytest.raises(RuntimeError, match="a mistake of ours"):
        depthwise()


def test_an_empty_batch_launches_nothing():
    with run_by(refuse("never asked"), "cpu"):
        made = convolve_depthwise(torch.zeros(0, 8, 6, 6), torch.zeros(8, 1, 3, 3))
    assert made.shape == (0, 8, 6, 6)


def test_on_a_cpu_nobody_runs_kernels_and_nothing_is_said():
    assert launch.runner_of(torch.device("cpu")) is None
    made, expected = depthwise()
    assert made.equal(expected)


class FakeCupy:
    """Notes what CuPy is asked for, in order."""

    def __init__(self):
        self.log = []
        self.cuda = SimpleNamespace(
            Device=self._context("device"),
            Stream=SimpleNamespace(from_external=self._context("stream")),
            driver=SimpleNamespace(CUDADriverError=type("CUDADriverError", (Exception,), {})),
            runtime=SimpleNamespace(CUDARuntimeError=type("CUDARuntimeError", (Exception,), {})),
        )
        self.fails = False

    def _context(self, name):
        @contextmanager
        def entered(value):
            self.log.append((name, value))
            yield

        return entered

    def RawModule(self, path):
        if self.fails:
            raise self.cuda.driver.CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image")
        self.log.append(("load", path))
        return SimpleNamespace(get_function=self._function)

    def _function(self, name):
        log = self.log

        class Function:
            max_dynamic_shared_size_bytes = None

            def __call__(self, grid, block, arguments, *, shared_mem):
                log.append(("launch", name, grid, block, arguments, shared_mem, self.max_dynamic_shared_size_bytes))

        return Function()


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy()
    made = Cubin(
        path=Path("x.cubin"),
        entry="_Z1k",
        sha256="",
        compiler="13.5",
        flags=(),
        resources=Resources(registers=1, spill_bytes=0, stack_bytes=0),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(cupy_runner, "nvrtc", lambda: None)
    monkeypatch.setattr(cupy_runner, "architecture_of", lambda capability, _: f"sm_{capability[0]}{capability[1]}")
    monkeypatch.setattr(cupy_runner, "cubin_of", lambda _: made)
    monkeypatch.setattr(cupy_runner, "program", lambda *parts: fake.log.append(("compile", *parts)))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"torch's stream of {device}")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return fake


def launched(shared_bytes=100):
    tensor = torch.zeros(4)
    made = Launch("k", "k<1>", (2, 1, 1), (32, 1, 1), shared_bytes, (tensor, None, np.int32(3), np.float32(0.5)))
    return tensor, made


def test_cupy_gets_addresses_scalars_of_their_width_and_torchs_stream(cupy):
    tensor, made = launched()
    run = CupyRunner()
    run(made)
    run(made)
    device = tensor.device.index
    load = [("compile", "k", "k<1>", "sm_86"), ("device", device), ("load", "x.cubin")]
    call = ("launch", "_Z1k", (2, 1, 1), (32, 1, 1), (tensor.data_ptr(), 0, np.int32(3), np.float32(0.5)), 100, None)
    each = [("stream", f"torch's stream of {device}"), ("device", device), call]
    assert [entry for entry in cupy.log if entry[0] in ("compile", "load")] == [load[0], load[2]]
    assert [entry for entry in cupy.log if entry[0] == "launch"] == [call, call]
    assert [type(one) for one in cupy.log[-1][4]] == [int, int, np.int32, np.float32]
    assert cupy.log.count(each[0]) == 2


def test_much_shared_memory_is_asked_for(cupy):
    CupyRunner()(launched(shared_bytes=60_000)[1])
    assert cupy.log[-1][-2:] == (60_000, 60_000)


def test_a_module_that_does_not_load_is_tried_once(cupy):
    cupy.fails = True
    run = CupyRunner()
    for _ in range(2):
        with pytest.raises(KernelError, match=r"does not load .*no kernel image.* driver older"):
            run(launched()[1])
    assert sum(entry[0] == "compile" for entry in cupy.log) == 1


def test_nothing_is_loaded_while_a_graph_is_captured(cupy, monkeypatch):
    run = CupyRunner()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(DeclinedError, match="call it once before"):
        run(launched()[1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    run(launched()[1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run(launched()[1])


def test_without_cupy_the_extra_is_named(cupy, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(KernelError, match=r"paifuser-lab\[gpu\]"):
        CupyRunner()(launched()[1])
