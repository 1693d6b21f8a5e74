"""The engines called directly, without our code, as the baseline for ours.

Tensors go in and tensors come out, as in a call of the model.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..converter import export_onnx
from ..engines import available_engines
from ..errors import PaifuserError
from ..machine import thread_choices, threads
from ..measure import Candidate
from ..workload import Workload


def candidates(work: Workload) -> Iterator[Candidate]:
    """Each engine with its usual settings, once for each sensible number of threads."""
    model = copy.deepcopy(work.model).eval()
    inputs = work.inputs.clone()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            names = export_onnx(model, inputs, path)
        except PaifuserError:
            names = None
        for count in thread_choices():
            yield Candidate(f"by hand: eager · {count}", lambda: inputs(model), count)
            yield Candidate(f"by hand: inductor · {count}", _inductor(model, inputs, count), count)
            if names is not None:
                feeds = dict(zip(names, inputs.tensors, strict=True))
                yield Candidate(
                    f"by hand: onnxruntime · {count}", _onnxruntime(path, feeds, count), count
                )
                if "openvino" in available_engines():
                    yield Candidate(
                        f"by hand: openvino · {count}", _openvino(path, feeds, count), count
                    )


def _inductor(model: nn.Module, inputs: Any, count: int) -> Callable[[], Any]:
    compiled = torch.compile(copy.deepcopy(model))
    with torch.no_grad(), threads(count):
        inputs(compiled)
    return lambda: inputs(compiled)


def _onnxruntime(path: Path, feeds: dict[str, Any], count: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count
    session = onnxruntime.InferenceSession(str(path), options)
    return lambda: [
        torch.from_numpy(output)
        for output in session.run(None, {name: tensor.numpy() for name, tensor in feeds.items()})
    ]


def _openvino(path: Path, feeds: dict[str, Any], count: int) -> Callable[[], Any]:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": count,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    return lambda: [
        torch.from_numpy(output)
        for output in compiled({name: tensor.numpy() for name, tensor in feeds.items()}).values()
    ]
