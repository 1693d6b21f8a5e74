"""The memory inside a convolution on a CPU: copies in oneDNN's layouts, or patches as columns.

oneDNN keeps 16 channels together (8 without AVX-512) and fills up the last ones. An image of few
channels is read as it is. Which copies exist at once was read off torch's allocator.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...model.tensors import is_channels_last, tensors_in

_BACKEND: Any = torch._C._ConvBackend  # type: ignore[attr-defined]
COLUMNS = {_BACKEND.Slow2d, _BACKEND.SlowDilated2d}
SLOW_TRANSPOSED = {_BACKEND.SlowTranspose2d, _BACKEND.SlowTranspose3d}
TOGETHER = {"AVX512": 16, "AVX2": 8}
NARROW = 8  # channels that are kept together where there are no more
COLOURS = 3  # channels whose gradient is computed without converting the image
LARGEST_KERNEL = 14  # beyond it, the gradient of the weight goes through columns
LARGEST_DEPTHWISE = 3  # beyond it, that of a depthwise convolution is computed for pairs
FP32 = 4  # bytes that a sum takes, in any precision
SUMS = 4  # copies of the weight that this gradient is summed in


def forward_workspace(args: tuple[Any, ...], output: Tensor) -> int:
    """The peak inside a convolution, beyond its output."""
    call = Convolution(args)
    if call.backend in COLUMNS:
        return call.columns(output)
    if not call.is_onednn:
        return 0
    if call.is_channels_last:
        return call.copies() + call.packed_weight()
    inside = _blocked(output, NARROW if call.transposed else None)
    converted = 2 * output.nbytes if call.transposed else output.nbytes
    peak = max(call.source() + call.packed_weight() + inside, inside + converted)
    return call.copies() + peak - output.nbytes


def backward_workspace(args: tuple[Any, ...], output: Any) -> int:
    """The peak inside the gradients of a convolution, computed one by one, beyond all of them."""
    gradient, image, weight, biases, *rest, mask = args
    call = Convolution((image, weight, biases, *rest), is_backward=True)
    if call.backend in COLUMNS:
        return call.columns(gradient) if mask[1] else 0
    if not call.is_onednn:
        return 0
    outputs = sum(tensor.nbytes for tensor in tensors_in(output))
    to_image = image.nbytes if mask[0] else 0
    copies = call.copies() + _layout_copy(gradient, call.layout)
    if call.is_channels_last:
        peak = to_image + max(2 * call.packed_weight(), call.dense_groups())
        return int(copies + peak - outputs)
    for_image = call.image_gradient(gradient) if mask[0] else 0
    for_weight = to_image + call.weight_gradient(gradient) if mask[1] else 0
    return int(copies + max(for_image, for_weight) - outputs)


class Convolution:
    """The arguments of a convolution, and how torch computes it."""

    def __init__(self, args: tuple[Any, ...], *, is_backward: bool = False) -> None:
        self.image, self.weight, bias, *rest = args
        self.stride, self.padding, dilation, self.transposed, extra, self.groups = rest
        known = {"bias": None, "bias_sizes": bias} if is_backward else {"bias": bias}
        self.backend = torch._C._select_conv_backend(
            self.image,
            self.weight,
            stride=self.stride,
            padding=self.padding,
            dilation=dilation,
            transposed=self.transposed,
            output_padding=extra,
            groups=self.groups,
            **known,
        )

    @property
    def is_onednn(self) -> bool:
        """Whether oneDNN computes it; torch gives no name to oneDNN's transposed one."""
        if self.transposed:
            return self.backend not in SLOW_TRANSPOSED
        return bool(self.backend == _BACKEND.Mkldnn)

    @property
    def is_channels_last(self) -> bool:
        """Whether oneDNN reads images as they are, channels last."""
        return is_channels_last(self.image) or is_channels_last(self.weight)

    @property
    def layout(self) -> torch.memory_format:
        """The layout that image and weight have to have."""
        return torch.channels_last if self.is_channels_last else torch.contiguous_format

    @property
    def is_narrow(self) -> bool:
        """Whether a kernel reads an image of few channels, as it is."""
        few = self.image.shape[1] < _together()
        return few and self.groups == 1 and not self.transposed and self.kernel > 1

    @property
    def kernel(self) -> int:
        """The positions that a kernel reads."""
        return math.prod(self.weight.shape[2:])

    def copies(self) -> int:
        """The bytes of image and weight in their layout, where they are in another."""
        return _layout_copy(self.image, self.layout) + _layout_copy(self.weight, self.layout)

    def source(self) -> int:
        """The image in oneDNN's layout."""
        return 0 if self.is_narrow else _blocked(self.image)

    def packed_weight(self, together: int | None = None, *, is_full: bool = False) -> int:
        """The weight in oneDNN's layout; `is_full` fills up the channels of a narrow image too."""
        outputs, inputs = self.weight.shape[:2]
        filled = _filled(outputs, together)
        if not (self.groups > 1 and inputs == 1) and (is_full or not self.is_narrow):
            inputs = _filled(inputs, together)
        return int(self.kernel * self.weight.element_size() * filled * inputs)

    def image_gradient(self, gradient: Tensor) -> int:
        """The gradient of the image, first in oneDNN's layout, then in torch's."""
        is_plain = self.transposed or (self.is_narrow and max(self.stride) > 1)
        own = int(self.image.nbytes) if is_plain else _blocked(self.image)
        incoming = _blocked(gradient, NARROW if is_plain else None)
        packed = self.packed_weight(is_full=True)
        return max(incoming + packed + own, own + int(self.image.nbytes))

    def weight_gradient(self, gradient: Tensor) -> int:
        """The gradient of the weight: both images, and the result in oneDNN's layout."""
        if max(self.weight.shape[2:]) > LARGEST_KERNEL:
            columns = self.columns(gradient) // gradient.shape[0]
            return self.packed_weight() + columns + SUMS * int(self.weight.nbytes)
        if self.is_large_depthwise:
            return 2 * int(self.weight.nbytes)
        has_colours = self.image.shape[1] <= COLOURS
        is_small = max(self.image.shape[1], gradient.shape[1]) <= NARROW and not has_colours
        together = NARROW if is_small or self.transposed else None
        source = 0
        if not has_colours:
            source = _blocked(self.image, NARROW if self.is_narrow else together)
        packed = self.packed_weight(together)
        incoming = _blocked(gradient, together)
        return max(source + incoming + packed, packed + int(self.weight.nbytes))

    @property
    def is_large_depthwise(self) -> bool:
        """Whether it is depthwise, with a kernel that oneDNN has no own gradient for."""
        is_depthwise = self.groups > 1 and self.weight.shape[1] == 1
        return bool(is_depthwise and max(self.weight.shape[2:]) > LARGEST_DEPTHWISE)

    def dense_groups(self) -> int:
        """The gradient of the weight of a large depthwise convolution, channels last: oneDNN
        computes it for each pair of the channels that it keeps together, and once more in the
        weight's precision where that is a lower one.
        """
        if not self.is_large_depthwise:
            return 0
        own = self.weight.element_size()
        return int(self.weight.numel() * (FP32 + own * (own < FP32)) * _together() ** 2)

    def columns(self, output: Tensor) -> int:
        """The patches of the image as columns; a 1×1 convolution reads the image itself."""
        if self.kernel == 1 and set(self.stride) == {1} and set(self.padding) == {0}:
            return 0
        positions = output.shape[0] * math.prod(output.shape[2:])
        return int(positions * self.weight[0].numel() * output.element_size())


def _blocked(image: Tensor, together: int | None = None) -> int:
    """The bytes of an image in oneDNN's layout, in which channels are filled up."""
    return int(image.nbytes // image.shape[1] * _filled(image.shape[1], together))


def _filled(channels: int, together: int | None = None) -> int:
    size = together or _together()
    return -(-channels // size) * size


def _together() -> int:
    return TOGETHER.get(torch.backends.cpu.get_cpu_capability(), NARROW)


def _layout_copy(tensor: Tensor, layout: torch.memory_format) -> int:
    return 0 if tensor.is_contiguous(memory_format=layout) else int(tensor.nbytes)
