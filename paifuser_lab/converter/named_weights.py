"""The weights of a language model, or of a variant, as a file of another runtime names them: by
their places in transformers, layers in integers as their very integers.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from ..errors import ExportError
from ..model.formats import Quantized
from ..workload import Workload

BLOCK = 32  # weights of a row that share a scale in these files


def named_weights(
    work: Workload, model: nn.Module, files: str
) -> Iterator[tuple[str, Tensor | Quantized]]:
    """Each weight once, also where two layers share it, on the CPU and with the shapes of the
    workload's model; raises for a layer that these files cannot hold.
    """
    whole = work.model.state_dict()
    seen: set[int] = set()
    names: set[str] = set()
    for name, weight, memory in _weights(model):
        shape = (weight.values if isinstance(weight, Quantized) else weight).shape
        if name in whole and shape != whole[name].shape:
            raise ExportError(
                f"layer '{name.rpartition('.')[0]}' was cut to {tuple(shape)}; {files} are written "
                "for layers of their original size."
            )
        names.add(name)
        if memory not in seen:
            seen.add(memory)
            yield name, _on_cpu(weight)
    # a layer that is in integers in the workload already has other tensors there, and no weight
    if lost := [
        name
        for name in whole
        if name not in names and (_weight_of(name) in whole or _weight_of(name) not in names)
    ]:
        layer = lost[0].rpartition(".")[0]
        block = _nearest(model, layer)
        if not model.get_submodule(block).state_dict():
            raise ExportError(
                f"layer '{block}' was left out; {files} are written for models with all their "
                "layers."
            )
        raise ExportError(
            f"layer '{layer}' is in none of the formats that {files} are written in; choose "
            "floats, int8-weights or int4-weights."
        )


def _on_cpu(weight: Tensor | Quantized) -> Tensor | Quantized:
    if isinstance(weight, Quantized):
        return Quantized(weight.values.cpu(), weight.scales.cpu(), weight.channel)
    return weight.cpu()


def _nearest(model: nn.Module, layer: str) -> str:
    """The layer itself, or what stands in the place of the block that it was a part of."""
    known = dict(model.named_modules())
    while layer not in known:
        layer = layer.rpartition(".")[0]
    return layer


def _weight_of(name: str) -> str:
    """The weight of the layer that a tensor of this name belongs to."""
    return f"{name.rpartition('.')[0]}.weight"


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor | Quantized, int]]:
    """Each weight with its name and the address of its memory."""
    for name, module in model.named_modules():
        numbers = getattr(module, "numbers", None)
        if isinstance(numbers, Quantized):
            is_whole = numbers.channel == 0 and numbers.values.shape[1] % BLOCK == 0
            weight = numbers if is_whole else numbers.dequantized()
            yield f"{name}.weight", weight, module.values.data_ptr()
            if module.bias is not None:
                yield f"{name}.bias", module.bias, module.bias.data_ptr()
        for kind, parameter in module.named_parameters(recurse=False):
            yield f"{name}.{kind}", parameter.detach(), parameter.data_ptr()


def in_blocks(weight: Quantized) -> tuple[Tensor, Tensor, int]:
    """Integers (rows, blocks, BLOCK) with a scale of each block, and the bits that they need."""
    rows, columns = weight.values.shape
    blocks = columns // BLOCK
    is_int4 = weight.scales.shape[1] == blocks and int(weight.values.abs().max()) <= 8
    scales = weight.scales.repeat_interleave(blocks // weight.scales.shape[1], dim=1)
    return weight.values.reshape(rows, blocks, BLOCK), scales, 4 if is_int4 else 8
