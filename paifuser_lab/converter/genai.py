"""Language models in ONNX Runtime GenAI: its own builder makes the graph in fp32, in which the
matrices of layers in int8 and int4 are then replaced by the very integers of the variant.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ..errors import ExportError, MeasureError, MissingExtraError, PaifuserError, first_line
from ..model.formats import Quantized
from ..workload import Workload
from .named_weights import BLOCK, in_blocks, named_weights

PACKAGE = "onnxruntime_genai"
BUILD = """
import sys
from onnxruntime_genai.models.builder import create_model, parse_extra_options

source, folder = sys.argv[1:]
# a layer of the model is a matrix of the graph
options = parse_extra_options("", source, folder, "fp32", "cpu", "", ["fuse_qkv=false"])
create_model("", source, folder, "fp32", "cpu", source, **options)
"""
# it quantizes inputs to int8; with inputs in fp32 the products of int8 take many times as long
ACCURACY_LEVEL = 4


class GenAIDecoder:
    """A folder of ONNX Runtime GenAI."""

    file = "model.onnx"

    def __init__(self, path: Path, context: int, threads: int) -> None:
        try:
            og = import_module(PACKAGE)
        except ImportError as error:
            raise missing_runtime(PACKAGE, path) from error
        config = og.Config(str(path.parent))
        session = {
            "intra_op_num_threads": threads,
            "session.intra_op.allow_spinning": "0",  # engines take turns
        }
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        try:
            model = og.Model(config)
        except Exception as error:  # the runtime's errors have no common class
            raise MeasureError(
                f"ONNX Runtime GenAI does not read {path.name} ({first_line(error)})."
            ) from error
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=context)  # its cache is allocated once
        self._generator = og.Generator(model, parameters)

    def reset(self) -> None:
        self._generator.rewind_to(0)

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        self._generator.append_tokens(list(tokens))
        if every:
            return torch.from_numpy(self._generator.get_output("logits"))[0]
        return torch.from_numpy(self._generator.get_logits())[0, 0]

    @staticmethod
    def write(work: Workload, model: nn.Module, path: Path) -> None:
        """Write a workload's model, or a variant's, with the workload's tokenizer."""
        if not find_spec(PACKAGE):
            raise missing_runtime(PACKAGE, path)
        weights = dict(named_weights(work, model, "files of ONNX Runtime GenAI"))
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _save_checkpoint(work, weights, Path(folder))
            # in a process of its own: the builder puts modules of common names on the path
            if reason := run_alone(BUILD, Path(folder), path.parent, HF_HUB_OFFLINE="1"):
                raise ExportError(f"ONNX Runtime GenAI does not build {work.name} ({reason}).")
        integers = {name: one for name, one in weights.items() if isinstance(one, Quantized)}
        if integers:
            _put_integers(path, integers)


def _save_checkpoint(work: Workload, weights: dict[str, Tensor | Quantized], folder: Path) -> None:
    """Write the weights in fp32 as transformers would."""
    from safetensors.torch import save_file

    model: Any = work.model
    config: Any = copy.deepcopy(model.config)
    config.architectures, config.dtype = [type(model).__name__], "float32"
    head = model.get_output_embeddings()
    names = (name for name, module in model.named_modules() if module is head)
    config.tie_word_embeddings = f"{next(names)}.weight" not in weights
    config.save_pretrained(folder)
    work.tokenizer.save_pretrained(folder)
    floats = {name: _in_fp32(weight) for name, weight in weights.items()}
    save_file(floats, folder / "model.safetensors", metadata={"format": "pt"})


def _in_fp32(weight: Tensor | Quantized) -> Tensor:
    whole = weight.dequantized() if isinstance(weight, Quantized) else weight
    return whole.float().contiguous()


def missing_runtime(package: str, path: Path) -> PaifuserError:
    """The error where a runtime of the extra `language` is not installed."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return MeasureError(
            f"{path.name} needs {package}, which is installed on Linux x86-64 alone; use 'torch' "
            "or 'replay'."
        )
    return MissingExtraError(package, extra="language", needed_for=path.name)


def run_alone(code: str, *paths: Path, **environment: str) -> str:
    """Run code in a process of its own; the last line of its error, '' where it succeeds."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return lines[-1][:160] if done.returncode else ""


def _put_integers(path: Path, layers: dict[str, Quantized]) -> None:
    """Replace the matrices of these layers, each of which is found by its values, whatever the
    builder calls it.
    """
    import onnx

    file = onnx.load(path)
    graph = file.graph
    held = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    names = {_digest(_in_fp32(weight).numpy()): name for name, weight in layers.items()}
    # through this an embedding reads the head's matrix
    turned = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Transpose"}
    nodes, tensors, replaced = [], [*graph.initializer], set[str]()
    for node in graph.node:
        given = node.input[1 if node.op_type == "MatMul" else 0] if node.input else ""
        matrix = held.get(turned.get(given, given))
        name = None
        if node.op_type in ("MatMul", "Gather") and matrix is not None:
            is_turned = node.op_type == "MatMul" or given in turned
            name = names.get(_digest(matrix.T if is_turned else matrix))
        if name is None:
            nodes.append(node)
            continue
        if name not in replaced:
            tensors += _tensors(name, layers[name])
        replaced.add(name)
        nodes += _on_integers(node, name, layers[name])
    if lost := set(names.values()) - replaced:
        raise ExportError(
            f"layer '{min(lost).rpartition('.')[0]}' has no matrix of its own in the graph that "
            "ONNX Runtime GenAI builds; keep it in floats."
        )
    used = {name for node in nodes for name in node.input} | {one.name for one in graph.output}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(node for node in nodes if used.intersection(node.output))
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(one for one in tensors if one.name in used)
    data = path.with_name(f"{path.name}.data")
    data.unlink()  # onnx would append to it
    onnx.save_model(file, path, save_as_external_data=True, location=data.name)


def _digest(rows: numpy.ndarray[Any, Any]) -> bytes:
    return hashlib.sha256(numpy.ascontiguousarray(rows).data).digest()


def _on_integers(node: Any, name: str, weight: Quantized) -> list[Any]:
    """The product, or the look-up of rows, with this layer's integers."""
    from onnx.helper import make_node

    rows, columns = weight.values.shape
    attributes: dict[str, Any] = {"bits": in_blocks(weight)[2], "block_size": BLOCK}
    attributes |= {"domain": "com.microsoft", "name": node.name}
    integers, scales = f"{name}.integers", f"{name}.scales"
    if node.op_type == "MatMul":
        attributes |= {"K": columns, "N": rows, "accuracy_level": ACCURACY_LEVEL}
        inputs = [node.input[0], integers, scales]
        return [make_node("MatMulNBits", inputs, node.output, **attributes)]
    attributes |= {"gather_axis": 0, "quantize_axis": 1}
    inputs = [f"{name}.rows", node.input[1], scales]
    return [
        make_node("Reshape", [integers, f"{name}.shape"], [f"{name}.rows"]),
        make_node("GatherBlockQuantized", inputs, node.output, **attributes),
    ]


def _tensors(name: str, weight: Quantized) -> list[Any]:
    """Unsigned integers, those of four bits in pairs, whose zero is in the middle."""
    from onnx.numpy_helper import from_array

    integers, scales, bits = in_blocks(weight)
    values = (integers.to(torch.int16) + 2 ** (bits - 1)).to(torch.uint8)
    if bits == 4:
        values = values[..., ::2] | (values[..., 1::2] << 4)
    return [
        from_array(values.numpy(), f"{name}.integers"),
        from_array(scales.float().contiguous().numpy(), f"{name}.scales"),
        from_array(numpy.array([len(values), -1]), f"{name}.shape"),
    ]
