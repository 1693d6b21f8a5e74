"""OpenVINO on the CPU; it reads the same ONNX file as ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..converter import Graph, Node, Part, read_graph
from ..converter.openvino import infer_request
from ..workload import Inputs
from .exported import Arrays, Exported, Session
from .nodes import EngineNode, NodeRecorder

TITLE = "OpenVINO"
WARM_UPS = 2
ROUNDED_MS = 0.5e-3  # counters are whole microseconds, rounded down: half of one on average
NO_WORK = ("Const", "Input", "Output", "Result")
CONVERTS = ("Reorder", "Convert", *NO_WORK)  # of layout or type, put in by the engine


class OpenVino(Exported):
    """Compiles for latency. Arithmetic is in fp32 unless the model's weights are in bf16 or `bf16`
    allows it.
    """

    title = TITLE

    def __init__(
        self, module: nn.Module, inputs: Inputs, count: int, *, bf16: bool = False
    ) -> None:
        self.allows_bf16 = bf16  # needed while the base class opens the first session
        super().__init__(module, inputs, count)

    @property
    def computes_in_bf16(self) -> bool:
        return self.allows_bf16 or any(
            weight.dtype == torch.bfloat16 for weight in self.module.parameters()
        )

    def open(self, path: Path, names: list[str]) -> Session:
        request = self._request(path)

        def run(tensors: Arrays) -> Arrays:
            outputs = request.infer(
                [tensor.detach().numpy() for tensor in tensors], share_inputs=True
            )
            return [torch.from_numpy(array) for array in outputs.values()]

        return run

    def record(self, path: Path, names: list[str], tensors: Arrays) -> OpenVinoRecorder:
        recorder = OpenVinoRecorder(self._request(path, PERF_COUNT=True), read_graph(path))
        recorder.warm_up(tensors)
        return recorder

    def _request(self, path: Path, **more: Any) -> Any:
        precision = "bf16" if self.computes_in_bf16 else "f32"
        return infer_request(path, self.threads, precision, **more)


class OpenVinoRecorder(NodeRecorder):
    """Reads OpenVINO's performance counters, which are means over all calls so far.

    A node's time in a run is its mean after the warm-up, times how long the run took relative to
    the mean run.
    """

    title = TITLE
    no_memory = "OpenVINO's profile has times only; it does not give the memory of a node"

    def __init__(self, request: Any, exported: Graph) -> None:
        self.request, self.exported = request, exported
        self.before: dict[str, float] = {}
        self.run_ms: list[float] = []

    def warm_up(self, tensors: Arrays) -> None:
        """Call a few times and remember what the counters had then."""
        for _ in range(WARM_UPS):
            self.run(tensors)
        self.before = self._sums_ms(WARM_UPS)
        self.run_ms.clear()

    def run(self, tensors: Arrays) -> None:
        arrays = [tensor.detach().numpy() for tensor in tensors]
        began = time.perf_counter()
        self.request.infer(arrays, share_inputs=True)
        self.run_ms.append((time.perf_counter() - began) * 1e3)

    def nodes(self) -> list[EngineNode]:
        """Read the counters and join each node by the names that it took over."""
        count = len(self.run_ms)
        sums = self._sums_ms(WARM_UPS + count)
        mean = sum(self.run_ms) / max(count, 1)
        graph = [
            RuntimeNode(node)
            for node in self.request.get_compiled_model().get_runtime_model().get_ordered_ops()
        ]
        parts = joined_parts(graph, self.exported)
        nodes = []
        for node in graph:
            if node.kind in NO_WORK:
                continue
            own = max(0.0, sums.get(node.name, 0.0) - self.before.get(node.name, 0.0)) / count
            nodes.append(
                EngineNode(
                    name=node.name,
                    op=node.kind,
                    kernel=node.kernel,
                    ms=tuple(own * run / mean for run in self.run_ms),
                    parts=parts.get(node.name, ()),
                )
            )
        return nodes

    def _sums_ms(self, calls: int) -> dict[str, float]:
        return {
            entry.node_name: (entry.real_time.total_seconds() * 1e3 + ROUNDED_MS) * calls
            for entry in self.request.profiling_info
            if entry.status == entry.Status.EXECUTED
        }


class RuntimeNode:
    """A node of the graph that OpenVINO runs: its kind, its kernel, and the names that were merged
    into it.
    """

    def __init__(self, node: Any) -> None:
        info = node.get_rt_info()
        self.name = node.get_friendly_name()
        self.kind = _text(info, "layerType")
        self.kernel = _text(info, "primitiveType")
        self.names = _text(info, "originalLayersNames").split(",")
        self.readers = [
            target.get_node().get_friendly_name()
            for output in node.outputs()
            for target in output.get_target_inputs()
        ]


def _text(info: Any, key: str) -> str:
    return str(info[key].astype(str)) if key in info else ""


def joined_parts(graph: list[RuntimeNode], exported: Graph) -> dict[str, tuple[Part, ...]]:
    """The parts of each node, by the names that it took over and by the tensors between them.

    What no name claims was done on the way to the nodes that read it: by a node without a name
    between them, or by these themselves.
    """
    claimed = {node.name: _claimed(node, exported) for node in graph}
    known = {name for nodes in claimed.values() for one in nodes for name in one.outputs}
    known |= exported.inputs
    lost = {node.name: _lost(claimed[node.name], known, exported) for node in graph}
    parts: dict[str, tuple[Part, ...]] = {}
    given: set[str] = set()
    for node in reversed(graph):
        readers = set(node.readers)
        if claimed[node.name] or node.kind in CONVERTS or not readers:
            continue
        shared = set.intersection(*({one.name for one in lost[reader]} for reader in readers))
        found = [one for one in exported.nodes if one.name in shared]
        if not found and len(readers) == 1:
            (reader,) = readers
            parts[node.name] = _parts(claimed[reader], exported)[:1] or parts.get(reader, ())[:1]
        else:
            parts[node.name] = _parts(found, exported)
        given |= shared
    for name, nodes in claimed.items():
        own = [*nodes, *(one for one in lost[name] if one.name not in given)]
        if nodes:
            parts[name] = _parts(sorted(own, key=exported.nodes.index), exported)
    return parts


def _claimed(node: RuntimeNode, exported: Graph) -> tuple[Node, ...]:
    """The exported nodes whose names a node took over, in the order of the exported graph."""
    names = set(node.names) - {""}
    return tuple(
        one
        for one in exported.nodes
        if one.name in names or (not names.isdisjoint(one.outputs) and node.kind not in NO_WORK)
    )


def _lost(claimed: tuple[Node, ...], known: set[str], exported: Graph) -> tuple[Node, ...]:
    """The exported nodes before these that no node of the engine has the name of."""
    made = {name for one in claimed for name in one.outputs}
    before = exported.between(made, known - made)
    return tuple(one for one in before if known.isdisjoint(one.outputs))


def _parts(nodes: Iterable[Node], exported: Graph) -> tuple[Part, ...]:
    made = [one for one in nodes if not exported.variable.isdisjoint(one.outputs)]
    return tuple(dict.fromkeys(part for one in made for part in one.parts))
