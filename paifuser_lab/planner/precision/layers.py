"""The layers whose format can be chosen: each with its input and the batch-norm that int8 folds
into it; and which int8 layers save each other a conversion.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import WorkloadError
from ...model.copying import copied
from ...model.fold import fold, plan_fold
from ...model.formats import FLOATS, Range
from ...model.graph import Graph
from ...model.layers import channel_of, owners_of_weights, tied_layers
from ...model.tensors import is_channels_last
from ...model.watch import describe, watching
from ...quantization import handovers, obstacles_of, trace_graph
from ...workload import Workload, running

LAYER, NORM = "layer", "norm"
ANY_RANGE = Range(-1.0, 1.0)  # ranges do not change which layers can be paired


@dataclass(frozen=True)
class PlannedLayer:
    """A layer, the batch-norm behind it, its input at its first call, how often it is called, and
    the layers that have its weight, itself among them; layers of equal `likeness` take equally
    long.
    """

    layer: str
    module: nn.Module
    norm: nn.Module | None
    inputs: Tensor
    calls: int
    likeness: str
    tied: tuple[str, ...]

    def alone(self) -> nn.Sequential:
        """A copy of the layer and its batch-norm, out of the model."""
        parts = {LAYER: self.module} | ({NORM: self.norm} if self.norm is not None else {})
        return nn.Sequential(
            OrderedDict((name, copy.deepcopy(part)) for name, part in parts.items())
        )


def graph_of(work: Workload) -> Graph:
    """The graph of a run on the example inputs; raises for a model that is not in fp32."""
    for name, module in work.model.named_modules():
        weight = module._parameters.get("weight") if channel_of(module) is not None else None
        if weight is not None and weight.dtype != torch.float32:
            kind = str(weight.dtype).removeprefix("torch.")
            raise WorkloadError(
                f"{describe(work.model, name)} is in {kind} already; formats are planned for a "
                "model in fp32."
            )
    return trace_graph(work, work.model)


def planned_layers(work: Workload, graph: Graph) -> list[PlannedLayer]:
    """Every layer that runs and has weights to round; of equal layers one input is stored."""
    norms = dict(plan_fold(work.model, graph).pairs)
    layers = {
        name: part
        for name, part in work.model.named_modules()
        if channel_of(part) is not None and graph.entries[name]
    }
    owners = {layer: tuple(group) for group in tied_layers(work.model) for layer in group}
    samples: dict[str, Tensor] = {}
    planned: dict[str, PlannedLayer] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer not in layers or layer in planned:
            return
        values = (*args, *kwargs.values())
        if len(values) == 1 and isinstance(values[0], Tensor):
            module = layers[layer]
            norm = work.model.get_submodule(norms[layer]) if layer in norms else None
            likeness = _likeness(module, norm, values[0])
            inputs = samples.setdefault(likeness, values[0].detach().clone())
            planned[layer] = PlannedLayer(
                layer,
                module,
                norm,
                inputs,
                graph.entries[layer],
                likeness,
                owners.get(layer, (layer,)),
            )

    inputs = work.inputs.clone()
    with running(work.model), watching(work.model, enter, lambda layer, output: None):
        inputs(work.model)
    if not planned:
        raise WorkloadError(
            f"{work.name} has no layer that runs and has weights to round; there is nothing to "
            "plan."
        )
    return [planned[name] for name in layers if name in planned]


def why_fixed(
    work: Workload, graph: Graph, planned: PlannedLayer, name: str, around: str
) -> str | None:
    """Why a layer cannot have a format among others in `around`; None where it can."""
    if name == around:
        return None
    if name in FLOATS and (other := _other_sharing(work.model, set(planned.tied))) is not None:
        return f"it shares a parameter with '{other}'"
    chosen = dict.fromkeys(planned.tied, "int8-weights" if name in FLOATS else name)
    return obstacles_of(work.model, graph, chosen).get(planned.layer)


def _other_sharing(model: nn.Module, tied: set[str]) -> str | None:
    """A module that does not have the weight of these layers, but another parameter of one."""
    groups = (set(owners) for owners in owners_of_weights(model).values())
    others = (owners - tied for owners in groups if owners & tied)
    return next((min(other) for other in others if other), None)


def _likeness(module: nn.Module, norm: nn.Module | None, inputs: Tensor) -> str:
    kind = " → ".join(repr(part) for part in (module, norm) if part is not None)
    shape = "×".join(map(str, inputs.shape))
    layout = (
        "channels-last"
        if is_channels_last(inputs)
        else "dense"
        if inputs.is_contiguous()
        else f"strides {inputs.stride()}"
    )
    return (
        f"{kind} · {shape} {str(inputs.dtype).removeprefix('torch.')} {layout} on "
        f"{inputs.device.type}"
    )


def layer_pairs(work: Workload, layers: Iterable[str]) -> list[tuple[str, str]]:
    """The neighbours among layers that can be in int8: one whose output another reads, each called
    once; from a run with batch-norms folded.
    """
    names = set(layers)
    model = copied(work.model).eval()
    fold(
        model,
        [pair for pair in plan_fold(model, trace_graph(work, model)).pairs if pair[0] in names],
    )
    graph = trace_graph(work, model)
    return [
        (giver, reader)
        for giver, handover in handovers(graph, dict.fromkeys(names, ANY_RANGE)).items()
        for reader in handover.readers
        if graph.entries[reader] == 1
    ]
