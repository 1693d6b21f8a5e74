"""Distillation from the original: its outputs at a temperature, the outputs of its layers, where
these are large, and blended examples that the teacher labels.

Blending (mixup): Beyer et al., "Knowledge distillation: A good teacher is patient and consistent",
2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import StepError
from ..model.layers import SEQUENCE_CONVOLUTIONS
from ..model.tensors import tensors_in
from ..model.watch import FAILED, describe, watching
from ..workload import Inputs, running
from ..workload.data import Batch
from ..workload.seeding import preserve_rng, seed_all

Answers = Literal["auto", "classes", "values"]
# for each compared tensor of an output: the dimension of its classes, None for values
Kinds = dict[str, int | None]
ROWS = (nn.ModuleList, nn.Sequential)
CHANNELS_LAST = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RNNBase)
MOST_BYTES = 512 << 20  # of cached lessons
SMALLEST = 1e-12


def tensors_of(output: Any) -> dict[str, Tensor]:
    """The floating-point tensors of an output, by their path in it."""
    return {path: leaf for path, leaf in _leaves(output, "") if leaf.is_floating_point()}


def kinds_of(output: Any, target: Any, kind: Answers) -> Kinds:
    """Which tensors are compared, and how.

    With "auto", a tensor holds classes if it is named `logits`, or if labels have its shape without
    one dimension; if there is any such tensor, the others are not compared.
    """
    tensors = tensors_of(output)
    if not tensors:
        raise StepError(
            "its output has no tensor of floating-point numbers, so there is nothing to learn "
            "from the original."
        )
    if kind == "values":
        return dict.fromkeys(tensors)
    labels = [leaf for leaf in tensors_in(target) if not leaf.is_floating_point()]
    classes = {
        path: _class_dimension(path, leaf, labels, is_sure=kind == "classes")
        for path, leaf in tensors.items()
    }
    known = {path: dimension for path, dimension in classes.items() if dimension is not None}
    if kind == "classes" and not known:
        raise StepError(
            "no tensor of its output has a dimension of two classes or more; say answers: values."
        )
    return dict(known) or dict.fromkeys(tensors)


def distance(output: Any, taught: Mapping[str, Tensor], kinds: Kinds, temperature: float) -> Tensor:
    """The mean distance over the compared tensors, in fp32."""
    own = tensors_of(output)
    parts = [
        _apart(path, own.get(path), taught[path], dimension, temperature)
        for path, dimension in kinds.items()
    ]
    return torch.stack(parts).mean()


def divergence(own: Tensor, taught: Tensor, dimension: int, temperature: float) -> Tensor:
    """The Kullback-Leibler divergence of the student's softened probabilities from the teacher's,
    scaled so that its gradient does not depend on the temperature.
    """
    mine, theirs = (
        F.log_softmax(scores.float() / temperature, dimension) for scores in (own, taught)
    )
    return (
        F.kl_div(mine, theirs, reduction="none", log_target=True).sum(dimension).mean()
        * temperature**2
    )


def squares(own: Tensor, taught: Tensor) -> Tensor:
    """The mean square of the difference, divided by the teacher's mean square."""
    return (
        own.float() - taught.float()
    ).square().mean() / taught.float().square().mean().clamp_min(SMALLEST)


def _apart(
    path: str, own: Tensor | None, taught: Tensor, dimension: int | None, temperature: float
) -> Tensor:
    if own is None or own.shape != taught.shape:
        shape = "none" if own is None else tuple(own.shape)
        raise StepError(
            f"its output{path} has shape {shape} where the original's has {tuple(taught.shape)}; "
            "it cannot be compared."
        )
    return (
        squares(own, taught)
        if dimension is None
        else divergence(own, taught, dimension, temperature)
    )


def _class_dimension(path: str, leaf: Tensor, labels: list[Tensor], *, is_sure: bool) -> int | None:
    for dimension in (1, leaf.ndim - 1):
        if 1 <= dimension < leaf.ndim and leaf.shape[dimension] > 1:
            rest = leaf.shape[:dimension] + leaf.shape[dimension + 1 :]
            if any(label.shape == rest for label in labels):
                return dimension
    usual = leaf.ndim - 1 if leaf.ndim == 3 else 1
    is_named = path.rpartition(".")[2] == "logits"
    return usual if (is_sure or is_named) and leaf.ndim > 1 and leaf.shape[usual] > 1 else None


def _leaves(output: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(output, Tensor):
        yield path, output
    elif isinstance(output, Mapping):
        for key, value in output.items():
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(output, tuple | list):
        for index, value in enumerate(output):
            yield from _leaves(value, f"{path}.{index}")
    elif output is not None:  # a class that is registered with pytree
        yield from (
            (f"{path}.{index}", leaf)
            for index, leaf in enumerate(pytree.tree_leaves(output))
            if isinstance(leaf, Tensor)
        )


@contextmanager
def answers_of(model: nn.Module, layers: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """The last output of each of the layers, while the context is open."""
    outputs: dict[str, Tensor] = {}

    def keep(layer: str) -> Any:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if (tensor := _first(output)) is not None:
                outputs[layer] = tensor

        return leave

    handles = [model.get_submodule(layer).register_forward_hook(keep(layer)) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def stages(model: nn.Module, inputs: Inputs) -> list[str]:
    """The last block of each stage; a stage is a run of blocks whose outputs have one size,
    whatever their channels.

    Blocks are the composite layers in a ModuleList or Sequential; in a model without any, single
    layers are.
    """
    blocks = _blocks(model) or {
        name for name, module in model.named_modules() if not any(True for _ in module.children())
    }
    seen: list[tuple[str, tuple[int, ...]]] = []

    def leave(layer: str, output: Any) -> None:
        tensor = None if output is FAILED else _first(output)
        if layer in blocks and tensor is not None and tensor.ndim > 2:
            channels = channel_dimension(model, layer, tensor)
            seen.append((layer, _size(tensor, channels)))

    with running(model), watching(model, lambda layer, args, kwargs: None, leave):
        inputs.clone()(model)
    sizes = [*(size for _, size in seen), None]
    return list(
        dict.fromkeys(
            layer for (layer, size), after in zip(seen, sizes[1:], strict=True) if size != after
        )
    )


def _blocks(model: nn.Module) -> set[str]:
    """The children of a ModuleList or Sequential that are neither one nor inside another block."""
    blocks: set[str] = set()
    for name, module in model.named_modules():  # a layer comes before those in it
        parent = model.get_submodule(name.rpartition(".")[0])
        is_inside = any(name.startswith(f"{block}.") for block in blocks)
        if (
            isinstance(parent, ROWS)
            and not isinstance(module, ROWS)
            and not is_inside
            and any(True for _ in module.children())
        ):
            blocks.add(name)
    return blocks


def channel_dimension(model: nn.Module, layer: str, output: Tensor) -> int:
    """The dimension of the channels of a layer's output: second in images, last in sequences; but
    second in a sequence where, of the layers that decide, a 1-D convolution is the last one.
    """
    if output.ndim != 3:
        return 1
    dimension = decided = 2
    for name, module in model.named_modules():
        if isinstance(module, SEQUENCE_CONVOLUTIONS + CHANNELS_LAST):
            dimension = 1 if isinstance(module, SEQUENCE_CONVOLUTIONS) else 2
        if f"{name}.".startswith(f"{layer}."):  # the layer, and then those in it
            decided = dimension
    return decided


def _size(output: Tensor, channels: int) -> tuple[int, ...]:
    return (*output.shape[1:channels], *output.shape[channels + 1 :])


def _first(output: Any) -> Tensor | None:
    """The first floating-point tensor of an output."""
    return next((leaf for leaf in tensors_in(output) if leaf.is_floating_point()), None)


class Projection(nn.Linear):
    """A learned map from the student's channels to the teacher's, the same at every position; it is
    dropped after training.
    """

    def __init__(self, student: int, teacher: int, dimension: int) -> None:
        super().__init__(student, teacher)
        self.dimension = dimension

    def forward(self, output: Tensor) -> Tensor:
        return super().forward(output.movedim(self.dimension, -1)).movedim(-1, self.dimension)


class Projections(nn.ModuleDict):
    """A projection for each layer whose number of channels differs; the others are compared
    unchanged.
    """

    def __init__(
        self, model: nn.Module, own: Mapping[str, Tensor], taught: Mapping[str, Tensor], seed: int
    ) -> None:
        super().__init__()
        device = next(iter(taught.values())).device if taught else torch.device("cpu")
        with preserve_rng(device), torch.device("cpu"):
            seed_all(device, seed)
            for layer, output in own.items():
                if (dimension := differing(model, layer, output, taught[layer])) is not None:
                    self[_key(layer)] = Projection(
                        output.shape[dimension], taught[layer].shape[dimension], dimension
                    )
        self.to(device)

    def project(self, layer: str, output: Tensor) -> Tensor:
        """The output with as many channels as the teacher's."""
        key = _key(layer)
        return self[key](output) if key in self else output


def feature_distance(
    projections: Projections,
    own: Mapping[str, Tensor],
    taught: Mapping[str, Tensor],
    layers: Sequence[str],
) -> Tensor:
    """The mean over layers of the distance between their outputs."""
    return torch.stack(
        [squares(projections.project(layer, own[layer]), taught[layer]) for layer in layers]
    ).mean()


def attention_distance(
    model: nn.Module, own: Mapping[str, Tensor], taught: Mapping[str, Tensor], layers: Sequence[str]
) -> Tensor:
    """The mean over layers of the distance between their attention maps."""
    return torch.stack(
        [squares(*_maps(model, layer, own[layer], taught[layer])) for layer in layers]
    ).mean()


def attention_map(output: Tensor, dimension: int) -> Tensor:
    """The mean square over channels at each position, normalised for each example."""
    return F.normalize(output.float().square().mean(dimension).flatten(1), dim=1, eps=SMALLEST)


def differing(model: nn.Module, layer: str, own: Tensor, taught: Tensor) -> int | None:
    """The one dimension in which two outputs differ in size, or None; raises if there are more."""
    dimensions = [
        index
        for index in range(own.ndim)
        if own.ndim == taught.ndim and own.shape[index] != taught.shape[index]
    ]
    if own.ndim != taught.ndim or len(dimensions) > 1 or dimensions == [0]:
        shapes = f"{tuple(own.shape)} where the original's is {tuple(taught.shape)}"
        raise StepError(
            f"{describe(model, layer)} outputs shape {shapes}; only channels may differ: "
            "leave it out."
        )
    return dimensions[0] if dimensions else None


def _maps(model: nn.Module, layer: str, own: Tensor, taught: Tensor) -> tuple[Tensor, Tensor]:
    dimensions = [index for index in range(own.ndim) if own.shape[index] != taught.shape[index]]
    dimension = dimensions[0] if dimensions else channel_dimension(model, layer, taught)
    return attention_map(own, dimension), attention_map(taught, dimension)


def _key(layer: str) -> str:
    return layer.replace(".", "/")  # a module's name cannot contain a dot


@dataclass(frozen=True)
class Blend:
    """The share of each example in its blend, and the order of the other examples."""

    share: float
    order: Tensor

    def __call__(self, inputs: Inputs) -> Inputs:
        """The blended inputs; integers, such as counts or indices, stay."""
        return inputs.map(
            lambda tensor: (
                torch.lerp(tensor[self.order], tensor, self.share)
                if is_blendable(tensor)
                else tensor
            )
        )

    def loss(self, loss: Callable[[Any, Any], Tensor], output: Any, target: Any) -> Tensor:
        """The loss of an output by the labels of both blended examples."""
        others = pytree.tree_map_only(
            Tensor, lambda tensor: tensor[self.order.to(tensor.device)], target
        )
        return self.share * loss(output, target) + (1 - self.share) * loss(output, others)


def blend_of(inputs: Inputs) -> Blend:
    """A random blend of a batch."""
    first = next(tensor for tensor in inputs.tensors if is_blendable(tensor))
    return Blend(float(torch.rand(())), torch.randperm(len(first), device=first.device))


def is_blendable(tensor: Tensor) -> bool:
    """Whether a tensor holds several examples of floating-point numbers."""
    return tensor.is_floating_point() and tensor.ndim > 1 and len(tensor) > 1


class Lesson(NamedTuple):
    """The targets for a batch: the labels, and the outputs of the teacher and of its layers."""

    target: Any
    answers: dict[str, Tensor]
    layers: dict[str, Tensor]


class Teacher:
    """A model that is not trained; its outputs for batches of a list are cached while they are
    small.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str] = ()) -> None:
        self.model, self.layers = model, tuple(layers)
        self._taught: dict[int, Lesson] = {}
        self._bytes = 0

    def teach(self, batch: Batch) -> Batch:
        """The batch with a lesson as its target."""
        if batch.number is not None and batch.number in self._taught:
            return replace(batch, target=self._taught[batch.number])
        lesson = self.lesson(batch.inputs, batch.target)
        self._keep(batch.number, lesson)
        return replace(batch, target=lesson)

    def lesson(self, inputs: Inputs, target: Any) -> Lesson:
        """The lesson for some inputs."""
        with answers_of(self.model, self.layers) as layers, running(self.model):
            answers = tensors_of(inputs.clone()(self.model))
        return Lesson(target, answers, dict(layers))

    @property
    def kept(self) -> int:
        """The number of batches whose lessons are cached."""
        return len(self._taught)

    def _keep(self, number: int | None, lesson: Lesson) -> None:
        size = sum(tensor.nbytes for tensor in (*lesson.answers.values(), *lesson.layers.values()))
        if number is not None and self._bytes + size <= MOST_BYTES:
            self._taught[number] = lesson
            self._bytes += size
