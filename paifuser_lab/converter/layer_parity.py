"""The first layer at which an exported ONNX model leaves the live one, found by bisection.

ONNX Runtime is given the outputs of layers as outputs of the file; each is compared with what the
same layer returns in torch. Layers are known by the parts that the export wrote into the nodes.
"""

from __future__ import annotations

import math
import tempfile
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor

from ..importer.onnx.runtime import session_of
from ..measure import output_error
from ..model.watch import watching
from ..records import LayerDifference
from .exportable import Exportable
from .origins import Graph, read_graph


class Site(NamedTuple):
    """A layer whose output is a tensor of the file."""

    layer: str
    operator: str
    tensor: str


def first_difference(
    exportable: Exportable, path: Path, tensors: list[Tensor], tolerance: float
) -> LayerDifference:
    """The first layer past the tolerance: the one before it, in the file's order, is within it.

    Errors are assumed to stay once they are there; the layers that were compared are in `probes`.
    """
    live = Live(exportable, tensors)
    candidates = comparable_sites(read_graph(path), live)
    run = _opened_with(path, [site.tensor for site in candidates], tensors)
    sites = _of_same_shape(candidates, run, live)
    probes: list[tuple[str, float | None]] = []

    def error_at(site: Site) -> float:
        error = output_error([live.output(site.layer)], run([site.tensor]))[0]
        probes.append((site.layer, error if math.isfinite(error) else None))
        return error

    place, errors = bisected(sites, error_at, tolerance)
    found = sites[place] if place < len(sites) else None
    error = errors.get(place, math.nan)
    return LayerDifference(
        target="onnx",
        layer=found.layer if found else "",
        operator=found.operator if found else "",
        error=error if math.isfinite(error) else None,
        tolerance=tolerance,
        before=sites[place - 1].layer if place else "",
        before_error=errors.get(place - 1),
        compared=len(sites),
        probes=tuple(probes),
    )


def bisected(
    sites: list[Site], error_at: Callable[[Site], float], tolerance: float
) -> tuple[int, dict[int, float]]:
    """The index of a site past the tolerance whose predecessor is within it (the inputs before the
    first are, the output after the last is not), and the errors that were computed on the way.
    """
    errors: dict[int, float] = {}

    def is_past(place: int) -> bool:
        errors[place] = error_at(sites[place])
        return not errors[place] <= tolerance  # so for a NaN

    return bisect_left(range(len(sites)), True, key=is_past), errors


class Live:
    """The live model's layers on some inputs: how often each is called, and what it returns."""

    def __init__(self, exportable: Exportable, tensors: list[Tensor]) -> None:
        self.exportable, self.tensors = exportable, tensors
        self.modules = dict(exportable.module.named_modules())
        self.shapes: dict[str, list[torch.Size | None]] = defaultdict(list)  # one a call

        def leave(layer: str, output: Any) -> None:
            self.shapes[layer].append(output.shape if isinstance(output, Tensor) else None)

        self._run(leave)

    def is_comparable(self, layer: str) -> bool:
        """Whether it has no layers in it, is called once and returns a tensor."""
        module = self.modules.get(layer)
        is_leaf = module is not None and next(module.children(), None) is None
        return is_leaf and len(self.shapes[layer]) == 1 and self.shapes[layer][0] is not None

    def output(self, layer: str) -> Tensor:
        """What a layer returns, copied before a later one may write over it."""
        outputs: list[Tensor] = []

        def leave(name: str, output: Any) -> None:
            if name == layer:
                outputs.append(output.detach().clone())

        self._run(leave)
        return outputs[0]

    def _run(self, leave: Callable[[str, Any], None]) -> None:
        with watching(self.exportable.module, lambda layer, args, kwargs: None, leave):
            self.exportable.outputs(self.tensors)


def comparable_sites(graph: Graph, live: Live) -> list[Site]:
    """The layers whose last node, or what it was joined into, makes the live layer's output."""
    last = {part.layer: at for at, node in enumerate(graph.nodes) for part in node.parts}
    sites = []
    for at, node in enumerate(graph.nodes):
        if node.parts and len(node.outputs) == 1:
            layer, operator = node.parts[-1]
            if last[layer] == at and live.is_comparable(layer):
                sites.append(Site(layer, operator, node.outputs[0]))
    return sites


def _of_same_shape(
    sites: list[Site], run: Callable[[list[str]], list[Tensor]], live: Live
) -> list[Site]:
    """The sites whose tensor can be their layer's output: a transposition may have moved into or
    out of a layer.
    """
    tensors = run([site.tensor for site in sites]) if sites else []
    pairs = zip(sites, tensors, strict=True)
    return [site for site, tensor in pairs if tensor.shape == live.shapes[site.layer][0]]


def _opened_with(
    path: Path, names: list[str], example: list[Tensor]
) -> Callable[[list[str]], list[Tensor]]:
    """A function from names of tensors inside the file to their values for the example."""
    model = onnx.load(str(path))
    known = {output.name for output in model.graph.output}
    inputs = [value.name for value in model.graph.input]
    inside = [name for name in names if name not in known]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inside)
    with tempfile.TemporaryDirectory(prefix="paifuser-parity-") as folder:
        file = Path(folder) / "model.onnx"
        onnx.save(model, str(file), save_as_external_data=True)
        session = session_of(str(file), torch.get_num_threads())
    feeds = dict(zip(inputs, (tensor.cpu().numpy() for tensor in example), strict=True))

    def run(wanted: list[str]) -> list[Tensor]:
        return [torch.from_numpy(array) for array in session.run(wanted, feeds)]

    return run
