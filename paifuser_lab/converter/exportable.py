"""What an exporter takes: a model, its inputs by name, and where it comes from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ExportError, MissingInputsError
from ..model.copying import copied
from ..model.formats import FLOATS
from ..model.weights import weights_hash
from ..quantization import QuantizedLayer
from ..quantization.float_formats import autocast_dtypes, cast_at_boundary
from ..workload import UNSEEN, Inputs, Workload, running
from .program import FlatModel, check_repeatable, exported_program, other_inputs


@runtime_checkable
class Changed(Protocol):
    """A model that a recipe has changed, such as a variant; `module` has the layers, and `model` is
    what is called, perhaps in an engine.
    """

    work: Workload
    module: nn.Module
    model: nn.Module
    recipe: Any
    original_hash: str

    @property
    def own_threads(self) -> int | None: ...


@runtime_checkable
class Encloses(Protocol):
    """A module around the one with the layers, such as an engine."""

    module: nn.Module
    around: Any


@dataclass(frozen=True)
class Exportable:
    """A model for an exporter; a target reads it and never changes its module.

    Every exporter sees `function`, which takes `tensors` in the order of `input_names` and returns
    a list of tensors in the order of `output_names`.
    """

    name: str
    module: nn.Module
    inputs: Inputs
    model: nn.Module  # what it is timed beside: the module, perhaps in an engine
    work: Workload = field(repr=False)
    recipe: tuple[dict[str, dict[str, Any]], ...] = ()  # the steps that it was changed by
    original_hash: str = ""  # of the weights before these steps
    own_threads: int | None = None  # that a backend fixed

    @classmethod
    def of(cls, subject: Any, inputs: Any = None) -> Exportable:
        """A workload, a variant or a model with its inputs as an exportable."""
        if isinstance(subject, cls):
            return subject
        if isinstance(subject, torch.jit.ScriptModule):
            raise ExportError(
                "A scripted or traced model cannot be exported: tracing fixes every branch to what "
                "one example took, and its layers are gone; give the model that it was made from."
            )
        if isinstance(subject, nn.Module):
            subject = _workload_of_module(subject, inputs)
        if not isinstance(subject, Workload | Changed):
            raise ExportError(
                f"A {type(subject).__name__} cannot be exported; give a model, a workload or a "
                "variant."
            )
        work = subject if isinstance(subject, Workload) else subject.work
        example = Inputs.of(inputs) if inputs is not None else work.inputs
        if example is UNSEEN:
            raise ExportError(f"{work.name} has no example inputs; give them: inputs=….")
        steps = () if isinstance(subject, Workload) else subject.recipe
        module = work.model if isinstance(subject, Workload) else subject.module
        if isinstance(module, Encloses):  # a loaded variant's model may be an engine
            module = module.module
        exportable = cls(
            name=work.name,
            module=module,
            inputs=example,
            model=work.model if isinstance(subject, Workload) else subject.model,
            recipe=(*work.applied, *({step.kind: step.options} for step in steps)),
            original_hash=subject.original_hash
            or work.original_hash
            or ("" if module is work.model else weights_hash(work.model)),
            own_threads=subject.own_threads,
            work=work,
        )
        check_repeatable(exportable.name, exportable.function, exportable.tensors)
        return exportable

    @cached_property
    def function(self) -> FlatModel:
        """The model from a list of tensors to a list of tensors."""
        function = FlatModel(self.module, self.inputs)
        function.training = False  # its own flag alone: `running` puts the model into eval mode
        return function

    @property
    def tensors(self) -> list[Tensor]:
        """Copies of the example's input tensors, which a model may change."""
        return self.inputs.clone().tensors

    @cached_property
    def reference(self) -> list[Tensor]:
        """The live outputs for the example inputs."""
        return self.outputs(self.tensors)

    def outputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The live module's outputs for other tensors of the same structure."""
        with running(self.module):
            return [leaf.detach() for leaf in self.function(*(t.clone() for t in tensors))]

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input tensor: the argument's, as the model's forward names it."""
        try:
            bound = signature(self.module.forward).bind_partial(
                *self.inputs.args, **self.inputs.kwargs
            )
            arguments = _without_stars(bound.arguments, signature(self.module.forward))
        except (TypeError, ValueError):  # a builtin without a signature
            arguments = {f"input_{at}": arg for at, arg in enumerate(self.inputs.args)}
            arguments |= self.inputs.kwargs
        flat, _ = pytree.tree_flatten((self.inputs.args, self.inputs.kwargs))
        named = {id(leaf): name for name, leaf in _named(arguments) if isinstance(leaf, Tensor)}
        tensors = [leaf for leaf in flat if isinstance(leaf, Tensor)]
        return _unique(named.get(id(leaf), f"input_{at}") for at, leaf in enumerate(tensors))

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """A name for each output tensor: its key in a dict or dataclass, or `output`."""
        with running(self.module):
            output = self.inputs.clone()(self.module)
        if isinstance(output, Tensor):
            return _unique(["output"], taken=self.input_names)
        leaves = [name for name, leaf in _named(output) if isinstance(leaf, Tensor)]
        named = (f"output_{name}" if name[:1].isdigit() else name for name in leaves)
        return _unique(named, taken=self.input_names)

    @cached_property
    def weights_hash(self) -> str:
        """The hash of the exported weights."""
        return weights_hash(self.module)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, where the workload or the model's config has them; a config of
        transformers has two for any model.
        """
        if self.work.preprocessing is not None and self.work.preprocessing.classes:
            return self.work.preprocessing.classes
        labels: Any = getattr(getattr(self.module, "config", None), "id2label", None)
        scores = self.reference[0]
        fits = isinstance(labels, dict) and scores.ndim == 2 and len(labels) == scores.shape[1]
        return tuple(map(str, labels.values())) if fits else ()

    @cached_property
    def quantized(self) -> dict[str, str]:
        """The layers in integers or fp8, and the format of each."""
        return {
            name: layer.format
            for name, layer in self.module.named_modules()
            if isinstance(layer, QuantizedLayer)
        }

    @cached_property
    def precision(self) -> str:
        """The precision of the model as it is: of its quantized layers, else of its weights."""
        formats = set(self.quantized.values())
        if formats:
            return "int8" if "int8" in formats else sorted(formats)[0]
        dtypes = {weight.dtype for weight in self.module.parameters()}
        dtypes |= autocast_dtypes(self.module)
        narrow = [name for name in ("bf16", "fp16") if FLOATS[name] in dtypes]
        return narrow[0] if narrow else "fp32"

    def in_format(self, name: str) -> Exportable:
        """The model with weights and arithmetic in "bf16" or "fp16"; its inputs and outputs stay as
        they are, cast at its boundary.
        """
        module = copied(self.module)
        cast_at_boundary(module, inside=name, outside="fp32", original="fp32")
        return replace(self, module=module, model=module)

    def program(self, *, dynamic: bool = False) -> torch.export.ExportedProgram:
        """The program that torch.export captures of `function`; raise ExportError, naming the
        layer, where what runs depends on values, which a file would fix to the example's.
        """
        return exported_program(self.name, self.function, self.tensors, dynamic=dynamic)

    @cached_property
    def others(self) -> tuple[list[Tensor], ...]:
        """Inputs of the example's shapes with other values, on which a file is compared, too."""
        return other_inputs(self.function, self.tensors)


def _workload_of_module(model: nn.Module, inputs: Any) -> Workload:
    try:
        return Workload(model, inputs)
    except MissingInputsError as error:
        raise ExportError(
            f"No inputs are known of this {type(model).__name__}: give an example, "
            "convert(model, inputs=…), or a workload, lab.Workload(model, inputs)."
        ) from error


def _without_stars(arguments: dict[str, Any], of: Any) -> dict[str, Any]:
    """`**kwargs` of a forward by their own names."""
    named: dict[str, Any] = {}
    for name, value in arguments.items():
        if of.parameters[name].kind is of.parameters[name].VAR_KEYWORD:
            named |= value
        else:
            named[name] = value
    return named


def _named(values: Any) -> list[tuple[str, Any]]:
    """The leaves of nested values, named by the path to each."""
    paths, _ = pytree.tree_flatten_with_path(values)
    names = (re.sub(r"\W+", "_", pytree.keystr(path)).strip("_") for path, _ in paths)
    return [(name or "output", leaf) for name, (_, leaf) in zip(names, paths, strict=True)]


def _unique(names: Iterable[str], taken: Collection[str] = ()) -> tuple[str, ...]:
    """The names, with a number behind each that was taken before."""
    chosen: list[str] = []
    for name in names:
        count, free = 1, name
        while free in taken or free in chosen:
            count += 1
            free = f"{name}_{count}"
        chosen.append(free)
    return tuple(chosen)
