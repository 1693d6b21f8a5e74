"""Strided 1×1 convolutions of few channels are trained contiguous, for any input layout."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from paifuser_lab.training.strided_pointwise import ContiguousStridedPointwise
from tests.support.processes import python

LAST = torch.channels_last


class Strides(TorchDispatchMode):
    """Records the strides of the inputs and weights of weight gradients."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.convolution_backward.default:
            self.seen += [(args[1].stride(), args[2].stride())]
        return function(*args, **(kwargs or {}))


def strides_of(convolution, channels):
    x = torch.randn(2, channels, 8, 8).to(memory_format=LAST).requires_grad_()
    with ContiguousStridedPointwise():
        output = convolution.to(memory_format=LAST)(x)
    assert torch.allclose(output, convolution(x), atol=1e-6)
    with Strides() as strides:
        output.sum().backward()
    return strides.seen


@pytest.mark.parametrize("stride", [2, (2, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_strided_pointwise_convolutions_of_few_channels_are_contiguous(stride, bias):
    (seen,) = strides_of(nn.Conv2d(4, 16, 1, stride=stride, bias=bias), 4)
    assert seen == ((256, 64, 8, 1), (4, 1, 1, 1))


@pytest.mark.parametrize(
    "convolution",
    [nn.Conv2d(4, 16, 1), nn.Conv2d(16, 16, 1, stride=2), nn.Conv2d(4, 16, 3, stride=2, padding=1)],
)
def test_other_convolutions_keep_their_layout(convolution):
    (seen,) = strides_of(convolution, convolution.in_channels)
    assert seen[0][1] == 1


def test_the_stride_may_be_a_keyword_argument():
    x, weight = torch.randn(1, 4, 4, 4).to(memory_format=LAST), torch.randn(8, 4, 1, 1)
    with ContiguousStridedPointwise():
        output = functional.conv2d(x, weight, stride=2)
    assert torch.allclose(output, functional.conv2d(x, weight, stride=2), atol=1e-6)


SCRIPT = """
import torch
import paifuser_lab as lab
torch.set_num_threads(1)
work = lab.load("resnet18-digits-tiny", trained=False)
images, labels = work.train[0]
work.train = [(images[:8], labels[:8])]
work.test = [(images[:4], labels[:4])]
cut = {"prune": {"ratio": 0.5, "importance": "magnitude", "repair": []}}
lab.apply(work, lab.Recipe([cut, {"qat": {"epochs": 2, "calibration_batches": 1}}]))
lab.apply(work, lab.Recipe(["layout", cut, {"distill": {"epochs": 2}}]))
junk = [torch.randn(7 * count + 1) for count in range(2000)]
print("whole")
"""


def test_training_a_narrow_model_in_int8_or_channels_last_does_not_crash():
    assert python("-c", SCRIPT).stdout.strip().endswith("whole")
