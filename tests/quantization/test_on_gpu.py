"""Int8 layers by the CUDA kernels: the same numbers as oneDNN's, in steps and out of them; on a CPU
by torch or in the emulator.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.kernels.compile import shipped
from paifuser_lab.model.formats import Range
from paifuser_lab.quantization import (
    Int8Layer,
    Int8Tensor,
    Requantization,
    factory,
    quantized_layer,
)
from paifuser_lab.quantization.layers import on_gpu
from tests.support.kernel_checks import built, needs_compiler, run_by

LAYERS = {
    "linear": (lambda: nn.Linear(32, 48), (3, 5, 32)),
    "pointwise": (lambda: nn.Conv2d(16, 32, 1), (2, 16, 5, 7)),
    "depthwise": (lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), (1, 32, 9, 7)),
    "depthwise, stride 2": (
        lambda: nn.Conv2d(16, 16, 5, 2, padding="valid", groups=16, bias=False),
        (1, 16, 9, 12),
    ),
    "one image": (lambda: nn.Conv2d(16, 16, 7, padding="same", groups=16), (16, 9, 9)),
}


@pytest.fixture
def gpu(monkeypatch):
    """Every layer that a kernel would compute on a GPU goes that way."""
    monkeypatch.setattr(on_gpu, "has_cupy", lambda: True)
    monkeypatch.setattr(on_gpu, "takes", lambda layer, steps: on_gpu.obstacle(layer) is None)


def layer_and_steps(name):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, span = make(), Range(-1.7, 2.4)
    steps = torch.randint(0, 256, shape, dtype=torch.uint8)
    made = quantized_layer(layer, "int8", span)
    return made, Int8Tensor(steps, span)


@torch.no_grad
def both(made, given, monkeypatch):
    """What oneDNN outputs, and what a layer of the same numbers does when it is on a GPU."""
    twin = copy.deepcopy(made)
    expected = made(given)
    with monkeypatch.context() as patch:
        patch.setattr(on_gpu, "has_cupy", lambda: True)
        patch.setattr(on_gpu, "takes", lambda layer, steps: on_gpu.obstacle(layer) is None)
        found = twin(given)
    assert len(twin._packed) == 2, "the kernel's way was taken"
    return expected, found


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("clamp", [None, (0, None), (0, 6)])
def test_steps_are_those_of_onednn(name, clamp, monkeypatch):
    made, given = layer_and_steps(name)
    made.requantization = Requantization(Range(-0.9 if clamp is None else 0.0, 1.1), clamp)
    expected, found = both(made, given, monkeypatch)
    assert isinstance(found, Int8Tensor) and found.span == made.requantization.span
    apart = (expected.quantized.int() - found.quantized.int()).abs()
    assert apart.max() <= 1 and (apart > 0).double().mean() < 0.005, (
        "midway between two steps either is right"
    )


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_those_of_onednn(name, monkeypatch):
    made, given = layer_and_steps(name)
    expected, found = both(made, given, monkeypatch)
    assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_clamp_that_no_kernel_has_is_left_to_the_model(gpu):
    made, given = layer_and_steps("linear")
    made.requantization = Requantization(Range(-1.0, 1.0), (-1.0, 1.0))
    assert not on_gpu.can_requantize(made, given.quantized)
    made.requantization = Requantization(Range(0.0, 1.0), (0, 6))
    assert on_gpu.can_requantize(made, given.quantized)


@needs_compiler
def test_the_kernels_themselves_compute_a_quantized_model(gpu):
    torch.manual_seed(0)
    model = nn.Sequential(
        *(
            nn.Conv2d(16, 32, 1),
            nn.ReLU6(),
            nn.Conv2d(32, 32, 3, padding=1, groups=32),
            nn.ReLU6(),
            nn.Conv2d(32, 16, 1),
        ),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16)),
    )
    work = Workload(model.eval(), torch.randn(2, 16, 9, 9))
    variant = lab.apply(work, Recipe([{"precision": {"default": "int8"}}]))
    assert sum(isinstance(one, Int8Layer) for one in variant.module.modules()) == 4
    ran = []

    def run(launch):
        ran.append(launch)
        built(shipped(launch.kernel), (launch.entry,))(launch)

    with torch.no_grad():
        composed = variant.model(work.inputs.args[0])
        with run_by(run, "cpu"):
            emulated = variant.model(work.inputs.args[0])
    assert [launch.entry.split(", ")[1] for launch in ran] == ["uint8", "uint8", "float", "float"]
    torch.testing.assert_close(emulated, composed, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Conv2d(16, 16, 3), "pointwise convolutions and for depthwise ones"),
        (nn.Conv2d(16, 16, (3, 5), groups=16), "pointwise convolutions and for depthwise ones"),
        (
            nn.Conv2d(16, 16, 3, dilation=2, groups=16),
            "pointwise convolutions and for depthwise ones",
        ),
        (nn.Conv2d(16, 32, 3, groups=16), "pointwise convolutions and for depthwise ones"),
        (nn.Conv2d(16, 16, 1, stride=2), "pointwise convolutions and for depthwise ones"),
        (nn.Conv2d(16, 24, 1), "its widths must be multiples of 16"),
        (nn.Linear(24, 16), "its widths must be multiples of 16"),
        (nn.Conv1d(16, 16, 1), "only for 2d convolutions"),
        (nn.Conv2d(24, 24, 3, groups=24), "its widths must be multiples of 16"),
    ],
)
def test_what_no_kernel_computes_is_said(gpu, layer, reason):
    assert reason in on_gpu.obstacle(layer)


def test_without_cupy_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(on_gpu, "has_cupy", lambda: False)
    assert "paifuser-lab[gpu]" in on_gpu.obstacle(nn.Linear(16, 16))
    assert factory.obstacle(nn.Conv2d(16, 16, 1), "int8") is None
    assert "with CUDA, and it is on meta" in factory._int8_obstacle(
        nn.Conv2d(16, 16, 1, device="meta")
    )
