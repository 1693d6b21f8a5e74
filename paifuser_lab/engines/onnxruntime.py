"""ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ..workload import Inputs
from .exported import Arrays, Exported, Session


class OnnxRuntime(Exported):
    """Runs one call at a time, with all graph optimisations and its own threads.

    The threads sleep between operators unless `spin` is set, which is a little faster on an idle
    machine and slower on a busy one.
    """

    def __init__(
        self, module: nn.Module, inputs: Inputs, count: int, *, spin: bool = False
    ) -> None:
        self.spins = spin  # needed while the base class opens the first session
        super().__init__(module, inputs, count)

    def open(self, path: Path, names: list[str]) -> Session:
        """Open an inference session."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        options.add_session_config_entry(
            "session.intra_op.allow_spinning", "1" if self.spins else "0"
        )
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

        def run(tensors: Arrays) -> Arrays:
            feeds = {
                name: tensor.detach().numpy() for name, tensor in zip(names, tensors, strict=True)
            }
            return [torch.from_numpy(array) for array in session.run(None, feeds)]

        return run
