"""ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path

import torch

from .exported import Arrays, Exported, Session


class OnnxRuntime(Exported):
    """Runs one call at a time, with all graph optimisations and its own threads."""

    def open(self, path: Path, names: list[str]) -> Session:
        """Make an inference session; its threads sleep between calls, so that they do not slow others down."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        def run(tensors: Arrays) -> Arrays:
            feeds = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
            return [torch.from_numpy(array) for array in session.run(None, feeds)]

        return run
