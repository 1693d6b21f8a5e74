"""A model opened for calls on batches of examples: from a name, folder, workload or variant."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..engines import Engine
from ..errors import StreamError, first_line
from ..model.copying import copied
from ..records import ImagePreprocessing
from ..variant import Variant
from ..variant.open import load
from ..workload import Inputs, Workload

ModelSource = str | Path | Workload | Variant
Example = Tensor | Sequence[Tensor]  # of one call, without their batch dimension


class _Bare(NamedTuple):
    """A module with its example inputs and preprocessing."""

    name: str
    module: torch.nn.Module
    inputs: Inputs
    preprocessing: ImagePreprocessing | None


class _Files(NamedTuple):
    """The files of a saved variant, and its original if the folder does not name one."""

    files: dict[str, bytes]
    original: Any


class OpenModel:
    """Answers lists of examples, each like the example inputs without their first dimension."""

    def __init__(self, source: ModelSource, *, trust: bool = False) -> None:
        self.work = _workload(source, trust=trust)
        self.name = self.work.name
        self.inputs = self.work.inputs
        module = self.work.model
        is_trained = any(layer.training for layer in module.modules())
        # a training of it goes on as it was
        self._module = copied(module).eval() if is_trained else module
        if not self.inputs.tensors or not self.inputs.is_flat:
            raise StreamError(
                f"{self.name} takes more than tensors, so that calls cannot be joined to batches; "
                "wrap it in a module that takes tensors alone."
            )
        if any(not tensor.dim() for tensor in self.inputs.tensors):
            raise StreamError(
                f"{self.name} takes a tensor without a batch dimension, so that calls cannot be "
                "joined."
            )

    @property
    def is_engine(self) -> bool:
        """Whether an engine runs it, which may take one call at a time."""
        return isinstance(self._module, Engine)

    @property
    def specs(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """The shape and type of each tensor of an example, by its name or position."""
        names = [*map(str, range(len(self.inputs.args))), *self.inputs.kwargs]
        return {
            name: (tuple(tensor.shape[1:]), tensor.dtype)
            for name, tensor in zip(names, self.inputs.tensors, strict=True)
        }

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width, if the model takes one image, whose values are floats."""
        specs = list(self.specs.values())
        if len(specs) != 1:
            return None
        shape, kind = specs[0]
        if len(shape) != 3 or shape[0] not in (1, 3) or not kind.is_floating_point:
            return None
        channels, height, width = shape
        return channels, height, width

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes, where it states them."""
        return self.work.preprocessing.classes if self.work.preprocessing is not None else ()

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        """The output for each example, from one call."""
        if not examples:
            return []
        tensors = [self._tensors(example) for example in examples]
        batch = [torch.stack(column) for column in zip(*tensors, strict=True)]
        count = len(self.inputs.args)
        inputs = Inputs(
            tuple(batch[:count]), dict(zip(self.inputs.kwargs, batch[count:], strict=True))
        )
        with torch.no_grad():
            output = inputs(self._module)
        return split(output, len(examples), self.name)

    def _tensors(self, example: Example) -> list[Tensor]:
        device = self.work.device
        found = [example] if isinstance(example, Tensor) else list(example)
        if len(found) != len(self.specs):
            raise StreamError(
                f"{self.name} takes {len(self.specs)} tensors ({', '.join(self.specs)}), not "
                f"{len(found)}."
            )
        return [
            tensor.to(device, kind if _are_floats(tensor.dtype, kind) else tensor.dtype)
            for tensor, (_, kind) in zip(found, self.specs.values(), strict=True)
        ]


def _are_floats(own: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether an example is cast to the model's type: an image is float32 before."""
    return own.is_floating_point and wanted.is_floating_point


def split(output: Any, count: int, name: str) -> list[Any]:
    """The output of a batch as one of each example."""
    leaves, spec = pytree.tree_flatten(output)
    for leaf in leaves:
        if not isinstance(leaf, Tensor | str | int | float | None):
            raise StreamError(
                f"{name} returned a {type(leaf).__name__}, which cannot be divided among the "
                "examples of a batch; wrap it in a module that returns tensors."
            )
        if isinstance(leaf, Tensor) and (not leaf.dim() or len(leaf) != count):
            raise StreamError(
                f"{name} returned a tensor of shape {tuple(leaf.shape)} for a batch of {count}; "
                "its first dimension must be the batch."
            )
    return [
        pytree.tree_unflatten(
            [leaf[index].cpu() if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec
        )
        for index in range(count)
    ]


def _workload(source: ModelSource, *, trust: bool) -> Workload:
    if isinstance(source, Variant):
        derived = source.workload
        derived.model = source.model
        return derived
    return source if isinstance(source, Workload) else load(source, trust=trust)


def portable(source: ModelSource) -> Any:
    """A model as data for another process: its name, a variant's saved files, or its module."""
    if isinstance(source, str | Path):
        return source
    if isinstance(source, Workload):
        return _Bare(str(source.name), source.model, source.inputs, source.preprocessing)
    with tempfile.TemporaryDirectory() as folder:
        source.save(folder)
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }
    original = None if source.has_named_original else portable(source.work)
    return _Files(files, original)


def received(source: Any, *, trust: bool = False) -> ModelSource:
    """The model that `portable` made data of."""
    if isinstance(source, _Bare):
        return Workload(
            source.module, source.inputs, name=source.name, preprocessing=source.preprocessing
        )
    if not isinstance(source, _Files):
        opened: ModelSource = source
        return opened
    original = received(source.original, trust=trust) if source.original is not None else None
    with tempfile.TemporaryDirectory() as folder:
        for name, content in source.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            work = original if isinstance(original, Workload) else None
            return Variant.load(folder, work, trained=False, trust=trust)
        except OSError as error:
            raise StreamError(f"A model could not be unpacked: {first_line(error)}.") from error
