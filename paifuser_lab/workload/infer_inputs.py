"""An example input of a model that came without one, where its first layer determines it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import signature

import torch
from torch import Tensor, nn

from .eval_mode import running
from .inputs import Inputs
from .seeding import preserve_rng

SIDES = (224, 192, 160, 128, 112, 96, 64, 48, 32, 28, 16, 8)  # of images, the first that runs
LENGTHS = (512, 128, 32, 8)  # of sequences of tokens or of samples
MOST_VALUES = 1 << 20  # of an input; a cube of 112 has more


def inferred_inputs(model: nn.Module) -> tuple[Inputs, str] | None:
    """An example input that the model runs on, and a note on where it comes from; None where its
    forward takes several arguments, or its first layer with weights does not say what it reads.
    """
    found = _first_layer(model)
    if found is None or not _takes_one(model.forward):
        return None
    name, layer = found
    for example in _examples(layer):
        if _runs(model, example):
            shape = "×".join(map(str, example.shape))
            where = f"'{name}' ({type(layer).__name__})" if name else type(layer).__name__
            return Inputs.of(example), (
                f"no inputs were given: {shape} was inferred from {where}; give your own for "
                "another size"
            )
    return None


def _first_layer(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The first module with weights of its own, and its name."""
    for name, module in model.named_modules():
        if next(module.parameters(False), None) is not None:  # a norm's weights may be None
            return name, module
    return None


def _takes_one(forward: Callable[..., object]) -> bool:
    """Whether a forward can be called with one argument by position."""
    try:
        signature(forward).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _examples(layer: nn.Module) -> Iterator[Tensor]:
    """Inputs that a layer takes, the likeliest first."""
    weight = next(layer.parameters(False))
    random = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(weight.device, weight.dtype)

    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        dims = len(layer.kernel_size)
        for size in LENGTHS if dims == 1 else SIDES:
            if layer.in_channels * size**dims <= MOST_VALUES:
                yield noise(1, layer.in_channels, *(size for _ in range(dims)))
    elif isinstance(layer, nn.Linear):
        yield noise(1, layer.in_features)
        yield noise(1, LENGTHS[-1], layer.in_features)
    elif isinstance(layer, nn.Embedding):
        for length in LENGTHS:
            tokens = torch.randint(layer.num_embeddings, (1, length), generator=random)
            yield tokens.to(weight.device)


def _runs(model: nn.Module, example: Tensor) -> bool:
    with torch.inference_mode(False), preserve_rng(example.device), running(model):
        try:
            model(example.clone())
        except Exception:  # of the model's code: an example of another size is tried
            return False
    return True


def inputs_of_shapes(model: nn.Module, shapes: Sequence[tuple[int, ...]], seed: int) -> Inputs:
    """Inputs of these shapes: noise, or tokens for a model that begins with an embedding."""
    random = torch.Generator().manual_seed(seed)
    first = _first_layer(model)
    layer = first[1] if first is not None else None
    like = torch.empty(()) if layer is None else next(layer.parameters(False))
    examples: list[Tensor] = [
        torch.randn(shape, generator=random).to(like.device, like.dtype) for shape in shapes
    ]
    if isinstance(layer, nn.Embedding):
        tokens = torch.randint(layer.num_embeddings, shapes[0], generator=random)
        examples[0] = tokens.to(like.device)
    return Inputs(tuple(examples))
