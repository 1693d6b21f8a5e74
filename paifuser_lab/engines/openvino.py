"""OpenVINO on the CPU; it reads the same ONNX file as ONNX Runtime."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import MissingExtraError
from ..workload import Inputs
from .exported import Arrays, Exported, Session


class OpenVino(Exported):
    """Compiles for latency. Arithmetic is in fp32 unless the model's weights are in bf16 or `bf16`
    allows it.
    """

    def __init__(
        self, module: nn.Module, inputs: Inputs, count: int, *, bf16: bool = False
    ) -> None:
        self.allows_bf16 = bf16  # needed while the base class opens the first session
        super().__init__(module, inputs, count)

    def open(self, path: Path, names: list[str]) -> Session:
        """Read and compile the file; one infer request is reused for all calls."""
        in_bf16 = self.allows_bf16 or any(
            weight.dtype == torch.bfloat16 for weight in self.module.parameters()
        )
        settings = {
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": "bf16" if in_bf16 else "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_MMAP": False,
        }
        core = _core()
        request = core.compile_model(
            core.read_model(str(path)), "CPU", settings
        ).create_infer_request()

        def run(tensors: Arrays) -> Arrays:
            outputs = request.infer(
                [tensor.detach().numpy() for tensor in tensors], share_inputs=True
            )
            return [torch.from_numpy(array) for array in outputs.values()]

        return run


@cache
def _core() -> Any:
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError(
            "openvino", extra="backends", needed_for="backend 'openvino'"
        ) from error
    return openvino.Core()
