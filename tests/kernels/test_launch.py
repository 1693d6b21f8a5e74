"""Between an operator and a GPU: the fallback, which warns once, and the runner for CuPy, tested
with a fake CuPy.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import (
    KERNELS,
    attend_windows,
    convolve_depthwise,
    driver,
    operators,
    runners,
)
from paifuser_lab.kernels.compile import Cubin, Resources
from paifuser_lab.kernels.kernel import DeclinedError, Launch
from paifuser_lab.kernels.runners import CupyRunner
from tests.support.kernel_checks import run_by

ROOT = Path(__file__).parent.parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(autouse=True)
def no_earlier_warning(monkeypatch):
    monkeypatch.setattr(operators, "_warned", set())


def fail_with(reason):
    def run(_):
        raise KernelError(reason)

    return run


def depthwise_and_reference():
    x, weight = torch.randn(1, 8, 6, 6).bfloat16(), torch.randn(8, 1, 3, 3).bfloat16()
    return convolve_depthwise(x, weight), torch.nn.functional.conv2d(x, weight, padding=1, groups=8)


def test_a_kernel_that_cannot_run_warns_once_and_torch_computes():
    with run_by(fail_with("there is no driver."), "cpu"):
        with pytest.warns(
            UserWarning, match="depthwise runs in torch, not in its CUDA kernel: there is no driver"
        ):
            output, expected = depthwise_and_reference()
        assert output.equal(expected)
        depthwise_and_reference()  # a second warning would be an error
        with pytest.warns(UserWarning, match="window_attention runs in torch"):
            attend_windows(torch.randn(1, 7, 7, 3, 1, 32).bfloat16(), torch.randn(1, 169), window=7)


def test_a_declined_input_warns_with_the_reason():
    with (
        run_by(fail_with("never run"), "cpu"),
        pytest.warns(UserWarning, match="not torch.float32"),
    ):
        convolve_depthwise(torch.randn(1, 8, 6, 6), torch.randn(8, 1, 3, 3))


def test_another_error_is_not_swallowed():
    def broken(_):
        raise RuntimeError("a bug")

    with run_by(broken, "cpu"), pytest.raises(RuntimeError, match="a bug"):
        depthwise_and_reference()


def test_an_empty_batch_launches_nothing():
    with run_by(fail_with("never run"), "cpu"):
        output = convolve_depthwise(torch.zeros(0, 8, 6, 6), torch.zeros(8, 1, 3, 3))
    assert output.shape == (0, 8, 6, 6)


def test_a_cpu_has_no_runner_and_no_warning():
    assert runners.runner_of(torch.device("cpu")) is None
    output, expected = depthwise_and_reference()
    assert output.equal(expected)


class FakeCupy:
    """Records the calls of CuPy, in order."""

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
                log.append(
                    (
                        "launch",
                        name,
                        grid,
                        block,
                        arguments,
                        shared_mem,
                        self.max_dynamic_shared_size_bytes,
                    )
                )

        return Function()


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy()
    cubin = Cubin(
        path=Path("x.cubin"),
        entry="_Z1k",
        sha256="",
        compiler="13.5",
        resources=Resources(registers=1, spill_bytes=0, stack_bytes=0),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(runners, "nvrtc", lambda: None)
    monkeypatch.setattr(
        runners, "architecture_of", lambda capability, _: f"sm_{capability[0]}{capability[1]}"
    )
    monkeypatch.setattr(runners, "cubin_of", lambda _: cubin)
    monkeypatch.setattr(runners, "program", lambda *parts: fake.log.append(("compile", *parts)))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"torch's stream of {device}")
    monkeypatch.setattr(torch.cuda, "device", fake._context("torch's device"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return fake


SOURCE = "source of {}".format


def tensor_and_launch(shared_bytes=100):
    tensor = torch.zeros(4)
    launch = Launch(
        "k",
        "k<1>",
        (2, 1, 1),
        (32, 1, 1),
        shared_bytes,
        (tensor, None, np.int32(3), np.float32(0.5)),
    )
    return tensor, launch


def test_cupy_receives_addresses_scalars_of_their_width_and_torchs_stream(cupy):
    tensor, launch = tensor_and_launch()
    run = CupyRunner(SOURCE)
    run(launch)
    run(launch)
    device = tensor.device.index
    load = [("compile", "source of k", "k<1>", "sm_86"), ("load", "x.cubin")]
    call = (
        "launch",
        "_Z1k",
        (2, 1, 1),
        (32, 1, 1),
        (tensor.data_ptr(), 0, np.int32(3), np.float32(0.5)),
        100,
        None,
    )
    each = [("stream", f"torch's stream of {device}"), ("device", device), call]
    assert [entry for entry in cupy.log if entry[0] in ("compile", "load")] == load
    assert [entry for entry in cupy.log if entry[0] == "launch"] == [call, call]
    assert [type(value) for value in cupy.log[-1][4]] == [int, int, np.int32, np.float32]
    assert cupy.log.count(each[0]) == 2


def test_large_shared_memory_is_requested(cupy):
    CupyRunner(SOURCE)(tensor_and_launch(shared_bytes=60_000)[1])
    assert cupy.log[-1][-2:] == (60_000, 60_000)


def test_a_module_that_does_not_load_is_tried_once(cupy):
    cupy.fails = True
    run = CupyRunner(SOURCE)
    for _ in range(2):
        with pytest.raises(KernelError, match=r"does not load .*no kernel image.* driver older"):
            run(tensor_and_launch()[1])
    assert sum(entry[0] == "compile" for entry in cupy.log) == 1


def test_nothing_is_loaded_while_a_graph_is_captured(cupy, monkeypatch):
    run = CupyRunner(SOURCE)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(DeclinedError, match="call it once before"):
        run(tensor_and_launch()[1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    run(tensor_and_launch()[1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run(tensor_and_launch()[1])


def on(device, *shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device=device)


def rows_with_a_bias_on(device):
    return on("cuda:0", 2, 8), on("cuda:0", 8, 8), on(device, 8), None, "none"


def test_tensors_of_several_devices_are_refused_by_the_names_of_the_arguments():
    with FakeTensorMode(), pytest.raises(KernelError) as refused:
        torch.ops.paifuser.pointwise(*rows_with_a_bias_on("cpu"))
    assert str(refused.value) == (
        "pointwise takes all its tensors on one device, not x, weight on cuda:0 and bias on cpu; "
        "move them to one with .to(device)."
    )
    inputs = (on("meta", 1, 1, 64, 64), on("cpu", 1, 1, 64, 64), on("meta", 1, 1, 64, 64))
    with pytest.raises(KernelError, match="query, value, kept on meta and key on cpu"):
        torch.ops.paifuser.block_sparse_attention(
            *inputs, on("meta", 1, 1, 1, 1, dtype=torch.int32), None, False, 1.0
        )


def test_two_gpus_are_two_devices():
    with (
        FakeTensorMode(),
        pytest.raises(KernelError, match="x, weight on cuda:0 and bias on cuda:1"),
    ):
        torch.ops.paifuser.pointwise(*rows_with_a_bias_on("cuda:1"))
    with FakeTensorMode():
        assert torch.ops.paifuser.pointwise(*rows_with_a_bias_on("cuda:0")).device == torch.device(
            "cuda:0"
        )


def tensors_of(name):
    """The positions of an operator's tensors."""
    arguments = getattr(torch.ops.paifuser, name).default._schema.arguments
    return [index for index, one in enumerate(arguments) if "Tensor" in str(one.type)]


@pytest.mark.parametrize("name", [name for name in KERNELS if len(tensors_of(name)) > 1])
def test_no_kernel_receives_an_address_of_another_device(name, monkeypatch):
    """The implementation checks the devices first, whichever argument is elsewhere."""
    monkeypatch.setattr(operators, "runner_of", lambda device: pytest.fail("the kernel was run"))
    arguments = getattr(torch.ops.paifuser, name).default._schema.arguments
    tensors = tensors_of(name)
    run = operators._implementation(KERNELS[name])
    for elsewhere in tensors:
        inputs = [
            on("meta" if index == elsewhere else "cpu", 2) if index in tensors else 0
            for index in range(len(arguments))
        ]
        with pytest.raises(KernelError, match=f"{arguments[elsewhere].name} on meta"):
            run(*inputs)


def fails_to_launch(cupy, error):
    def launch(*arguments, **options):
        raise error("CUDA_ERROR_INVALID_VALUE: invalid argument")

    cupy.RawModule = lambda path: SimpleNamespace(get_function=lambda name: launch)


@pytest.mark.parametrize("kind", ["driver.CUDADriverError", "runtime.CUDARuntimeError"])
def test_a_launch_that_fails_warns_once_and_torch_computes(cupy, kind):
    package, name = kind.split(".")
    fails_to_launch(cupy, getattr(getattr(cupy.cuda, package), name))
    with run_by(CupyRunner(), "cpu"):
        with pytest.warns(
            UserWarning,
            match=r"depthwise runs in torch.*does not launch \(CUDA_ERROR_INVALID_VALUE",
        ):
            output, expected = depthwise_and_reference()
        assert output.equal(expected)
        output, expected = depthwise_and_reference()  # a second warning would be an error
        assert output.equal(expected)


def test_a_bug_at_a_launch_is_not_swallowed(cupy):
    fails_to_launch(cupy, TypeError)
    with run_by(CupyRunner(), "cpu"), pytest.raises(TypeError):
        depthwise_and_reference()


def test_graph_capture_is_checked_on_the_launchs_own_device(cupy, monkeypatch):
    inside, checked = [], []

    @contextmanager
    def device(index):
        inside.append(index)
        yield
        inside.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: bool(checked.append(list(inside)))
    )
    launch = tensor_and_launch()[1]
    monkeypatch.setattr(Launch, "device", property(lambda self: torch.device("cuda", 1)))
    CupyRunner(SOURCE)(launch)
    assert checked == [[1]] and not inside


@pytest.mark.parametrize(
    ("version", "package", "extra"),
    [
        ((13, 0), "cupy-cuda13x", "gpu"),
        ((12, 4), "cupy-cuda12x", "gpu12"),
        (None, "cupy-cuda13x", "gpu"),
    ],
)
def test_without_cupy_the_extra_for_the_driver_is_named(cupy, monkeypatch, version, package, extra):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(driver, "cuda_version", lambda: version)
    with pytest.raises(KernelError, match=rf"needs {package}, .*paifuser-lab\[{extra}\]'"):
        CupyRunner(SOURCE)(tensor_and_launch()[1])


def test_a_driver_older_than_any_cupy_is_reported(cupy, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(driver, "cuda_version", lambda: (11, 4))
    with pytest.raises(
        KernelError, match=r"driver .* CUDA 11\.4, .* 12 or later; update the driver"
    ):
        CupyRunner(SOURCE)(tensor_and_launch()[1])


class Driver:
    """A fake of NVIDIA's driver library."""

    def __init__(self, version, code=0):
        self.version, self.code = version, code

    def cuDriverGetVersion(self, into):
        into._obj.value = self.version
        return self.code


@pytest.mark.parametrize(
    ("library", "version"),
    [(Driver(12080), (12, 8)), (Driver(13000), (13, 0)), (Driver(0, code=34), None), (None, None)],
)
def test_the_cuda_version_is_read_from_the_drivers_library(monkeypatch, library, version):
    def load(name):
        if library is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    monkeypatch.setattr(driver.ctypes, "CDLL", load)
    assert driver.cuda_version.__wrapped__() == version


def extras_of(tmp_path, version):
    """The extras that the Makefile installs if `nvidia-smi` prints this; None without it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "cut", "head", "grep", "test", "python3", "echo"):
        (tools / name).symlink_to(shutil.which(name))
    if version is not None:
        (tools / "nvidia-smi").write_text(f"#!/bin/sh\necho '{version}'\n")
        (tools / "nvidia-smi").chmod(0o755)
    command = [
        shutil.which("make"),
        "--dry-run",
        "--no-print-directory",
        f"VENV={tmp_path / 'venv'}",
        "install",
    ]
    output = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(tools)}, capture_output=True, text=True, check=True
    ).stdout
    found = re.findall(r"--editable '\.\[(.*)\]'", output)
    return list(dict.fromkeys(",".join(found).split(",")))


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize(
    ("version", "extra"),
    [
        ("580.65.06", "gpu"),
        ("575.57.08", "gpu12"),
        ("525.60.13", "gpu12"),
        ("NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.", None),
        (None, None),
    ],
)
def test_make_installs_the_extra_for_the_driver(tmp_path, version, extra):
    assert [name for name in extras_of(tmp_path, version) if name.startswith("gpu")] == (
        [extra] if extra else []
    )


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_installs_all_extras_but_those_that_the_pages_name(tmp_path):
    assert EXTRAS.keys() - extras_of(tmp_path, None) == {"peers", "gpu", "gpu12"}
    for page in ("README.md", "README.zh.md", "CONTRIBUTING.md"):
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        (said,) = (line for line in lines if "`make test`" in line)
        assert {"`peers`", "`gpu`"} <= {*re.findall(r"`\w+`", said)}, page


def test_every_extra_for_a_gpu_is_one_of_the_project():
    for cupy in driver.PACKAGES.values():
        assert any(requirement.startswith(cupy.package) for requirement in EXTRAS[cupy.extra])
