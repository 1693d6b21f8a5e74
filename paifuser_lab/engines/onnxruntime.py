"""ONNX Runtime on the CPU."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import nn

from ..converter import Graph, Node, Part, read_graph
from ..workload import Inputs
from .exported import Arrays, Exported, Session
from .nodes import EngineNode, NodeRecorder

TITLE = "ONNX Runtime"
OPTIMIZED = "optimized.onnx"
EXTERNAL = "session.optimized_model_external_initializers"
KERNEL = "_kernel_time"  # ends the name of a node's event
BLOCKED = "_nchwc"  # ends the name of a node in blocked layout
TOKEN = "_token_"  # stands before a number, where a node replaced another
REORDERS = ("ReorderInput", "ReorderOutput")  # to and from blocked layout: no layer's work
ACTIVATIONS = ("Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish")
LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
CONV_WITH_SUM = 4  # inputs: image, weight, bias, and what is added


class OnnxRuntime(Exported):
    """Runs one call at a time, with its own threads and, unless told otherwise, with all graph
    optimisations.

    The threads sleep between operators unless `spin` is set, which is a little faster on an idle
    machine and slower on a busy one. `parallel` runs independent branches at once, on a second pool
    of threads; without the `arena` memory is allocated anew in each call.
    """

    title = TITLE

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        count: int,
        *,
        spin: bool = False,
        optimization: str = "all",
        parallel: bool = False,
        arena: bool = True,
    ) -> None:
        # needed while the base class opens the first session
        self.spins, self.is_parallel, self.keeps_memory = spin, parallel, arena
        self.optimization = optimization
        super().__init__(module, inputs, count)

    def open(self, path: Path, names: list[str]) -> Session:
        session = _session(path, self._options())

        def run(tensors: Arrays) -> Arrays:
            return [torch.from_numpy(array) for array in session.run(None, _feeds(names, tensors))]

        return run

    def record(self, path: Path, names: list[str], tensors: Arrays) -> OrtRecorder:
        """Open a session that writes its profile and its optimised graph into a folder."""
        folder = Path(tempfile.mkdtemp(prefix="paifuser-ort-"))
        options = self._options()
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(folder / OPTIMIZED)
        options.add_session_config_entry(f"{EXTERNAL}_file_name", "weights.bin")
        options.add_session_config_entry(f"{EXTERNAL}_min_size_in_bytes", "1024")
        session = _session(path, options)
        session.run(None, _feeds(names, tensors))
        return OrtRecorder(session, names, read_graph(path), folder)

    def _options(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        modes, levels = onnxruntime.ExecutionMode, onnxruntime.GraphOptimizationLevel
        options.execution_mode = modes.ORT_SEQUENTIAL
        if self.is_parallel:
            options.execution_mode, options.inter_op_num_threads = modes.ORT_PARALLEL, self.threads
        options.graph_optimization_level = getattr(levels, LEVELS[self.optimization])
        options.enable_cpu_mem_arena = self.keeps_memory
        options.log_severity_level = 3
        for pool in ("intra_op", "inter_op"):
            options.add_session_config_entry(
                f"session.{pool}.allow_spinning", "1" if self.spins else "0"
            )
        return options


class OrtRecorder(NodeRecorder):
    """Reads ONNX Runtime's profile: a JSON file with the time and bytes of each node and run."""

    title = TITLE
    no_memory = "this version of ONNX Runtime does not give the memory of a node"

    def __init__(
        self,
        session: Any,
        names: list[str],
        exported: Graph,
        folder: Path,
    ) -> None:
        self.session, self.names, self.exported, self.folder = session, names, exported, folder
        # a recording that is stopped is never read
        self.clean_up = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def run(self, tensors: Arrays) -> None:
        self.session.run(None, _feeds(self.names, tensors))

    def nodes(self) -> list[EngineNode]:
        """Read the file and join each node to the layers by the tensors that it makes."""
        events = json.loads(Path(self.session.end_profiling()).read_text(encoding="utf-8"))
        optimized = read_graph(self.folder / OPTIMIZED)
        self.clean_up()
        parts = joined_parts(optimized, self.exported)
        return [
            _node(node, found, parts[index], _weights_of(node, optimized))
            for index, (node, found) in enumerate(_events_of(optimized, events))
            if found
        ]


def _session(path: Path, options: Any) -> Any:
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _events_of(graph: Graph, events: list[dict[str, Any]]) -> list[tuple[Node, list[Any]]]:
    """The events of each node, a run each; a node without a name goes by its operator, and one that
    shares its name or operator with others by the order.
    """
    ran = [event for event in events if event.get("name", "").endswith(KERNEL)]
    names = {node.name for node in graph.nodes if node.name}
    by_key: dict[str, list[Any]] = defaultdict(list)
    for event in ran:
        name = event["name"].removesuffix(KERNEL)
        by_key[name if name in names else f"a {event['args']['op_name']}"].append(event)
    keys = [node.name or f"a {node.op}" for node in graph.nodes]
    shared, earlier = Counter(keys), Counter[str]()
    found = []
    for node, key in zip(graph.nodes, keys, strict=True):
        found.append((node, by_key[key][earlier[key] :: shared[key]]))
        earlier[key] += 1
    return found


def _weights_of(node: Node, graph: Graph) -> int:
    """The size of a node's weights; the profile leaves out those that were packed beforehand."""
    return sum(graph.weight_bytes.get(name, 0) for name in node.inputs)


def _node(
    node: Node, events: list[dict[str, Any]], parts: tuple[Part, ...], weight_bytes: int
) -> EngineNode:
    args = events[-1]["args"]
    # in the first run only: in later ones all tensors lie in one block that is never freed
    alive = events[0]["args"].get("mem_bytes_in_use")
    runs = events[1:] or events  # the first run is a warm-up
    tensors = args.get("activation_size")
    return EngineNode(
        name=node.name,
        op=node.op,
        kernel=args["op_name"],
        ms=tuple(event["dur"] / 1e3 for event in runs),
        parts=parts,
        read_bytes=None if tensors is None else int(tensors) + weight_bytes,
        written_bytes=int(args["output_size"]) if "output_size" in args else None,
        held_bytes=int(alive) if alive else None,
    )


def joined_parts(optimized: Graph, exported: Graph) -> list[tuple[Part, ...]]:
    """The parts of each node of ONNX Runtime's graph: what the exported graph has between the
    tensors that it makes and those that others make. A node that makes none of them does a share
    of the work of the one that reads it.
    """
    makes = [() if node.op in REORDERS else _made(node, exported) for node in optimized.nodes]
    taken = {name for names in makes for name in names}
    makes = [
        _with_joined(node, names, taken, exported)
        for node, names in zip(optimized.nodes, makes, strict=True)
    ]
    known = {name for names in makes for name in names} | exported.inputs
    parts = [exported.parts_between(names, known) for names in makes]
    readers = _readers(optimized)
    for index in reversed(range(len(parts))):
        if not makes[index] and optimized.nodes[index].op not in REORDERS:
            around = {parts[reader] for reader in readers[index]}
            parts[index] = around.pop() if len(around) == 1 else ()
    return parts


def _readers(graph: Graph) -> dict[int, set[int]]:
    """The nodes that read what each node makes, by index."""
    readers: dict[int, set[int]] = defaultdict(set)
    for index, node in enumerate(graph.nodes):
        for name in node.inputs:
            if name in graph.maker:
                readers[graph.maker[name]].add(index)
    return readers


def _made(node: Node, exported: Graph) -> tuple[str, ...]:
    """The exported tensors that a node makes; in blocked layout its name has the tensor's."""
    names = tuple(name for name in node.outputs if name in exported.maker)
    blocked = node.name.removesuffix(BLOCKED)
    return names or ((blocked,) if blocked in exported.maker else _made_on_integers(node, exported))


def _made_on_integers(node: Node, exported: Graph) -> tuple[str, ...]:
    """On integers a node has the name of the exported node that it replaced, and makes what an
    activation and a rounding after that one made.
    """
    replaced = exported.named.get(node.name.partition(TOKEN)[0])
    if replaced is None:
        return ()
    name = replaced.outputs[0]
    for joined in (ACTIVATIONS, ("QuantizeLinear",)):
        readers = [after for after in exported.nodes if name in after.inputs]
        if len(readers) == 1 and readers[0].op in joined:
            name = readers[0].outputs[0]
    return (name,)


def _with_joined(
    node: Node, names: tuple[str, ...], taken: set[str], exported: Graph
) -> tuple[str, ...]:
    """In blocked layout a residual sum and an activation are joined without a trace in the name."""
    if len(names) != 1 or not node.name.endswith(BLOCKED) or node.op != "Conv":
        return names
    name, takes_sum = names[0], len(node.inputs) == CONV_WITH_SUM
    for joined in (("Add", "Sum") if takes_sum else (), ACTIVATIONS):
        readers = [after for after in exported.nodes if name in after.inputs]
        if len(readers) == 1 and readers[0].op in joined and readers[0].outputs[0] not in taken:
            name = readers[0].outputs[0]
    return (name,)


def _feeds(names: list[str], tensors: Arrays) -> dict[str, Any]:
    return {name: tensor.detach().numpy() for name, tensor in zip(names, tensors, strict=True)}
