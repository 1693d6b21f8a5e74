"""Runs an ONNX file in ONNX Runtime: once apart, to see that it is harmless; or as a module."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import FileError, first_line
from ..limits import shown
from . import probe
from .proto import OnnxFile

SIGNALS = {-9: "was ended for its use of memory or time", -11: "crashed", -6: "crashed"}
MAX_REASON = 200  # characters
CODE = re.compile(r"^\w+: \[ONNXRuntimeError\] : \d+ : \w+ : ")  # before each reason


def runtime_outputs(file: OnnxFile, examples: Sequence[dict[str, Tensor]]) -> list[list[Tensor]]:
    """The outputs of ONNX Runtime for each example, from a process with limits."""
    names = [value.name for value in file.inputs]
    arrays: dict[str, Any] = {
        f"{index}.{at}": _array(file, name, example[name])
        for index, example in enumerate(examples)
        for at, name in enumerate(names)
    }
    arrays["names"] = np.frombuffer(json.dumps(names).encode(), dtype=np.uint8)
    arrays["count"] = np.array(len(examples))
    size = sum(part.stat().st_size for part in (file.path, *file.external_files))
    with tempfile.TemporaryDirectory(prefix="paifuser-probe-") as folder:
        inputs, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        np.savez(inputs, **arrays)
        command = [
            sys.executable, "-I", str(Path(probe.__file__)), str(file.path.absolute()),
            str(inputs), str(outputs), str(probe.MEMORY + 6 * size), str(probe.SECONDS),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=probe.SECONDS, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired as error:
            raise FileError(
                f"{file.path.name} did not end within {probe.SECONDS} s in ONNX Runtime; is it a "
                "model, or does it loop?"
            ) from error
        if done.returncode:
            raise FileError(f"ONNX Runtime cannot run {file.path.name}: {_reason(file, done)}.")
        results = np.load(outputs, allow_pickle=False)
        count = len(file.graph.output)
        return [
            [torch.from_numpy(results[f"{index}.{at}"]) for at in range(count)]
            for index in range(len(examples))
        ]


def _array(file: OnnxFile, name: str, tensor: Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        raise FileError(
            f"{file.path.name}: the input {shown(name)} is bfloat16, which ONNX Runtime does not "
            "take from Python; export it with an input in float32."
        )
    return tensor.detach().cpu().numpy()


def _reason(file: OnnxFile, done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode in SIGNALS:
        return f"it {SIGNALS[done.returncode]}"
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
    reason = CODE.sub("", lines[-1]).replace(str(file.path.absolute()), file.path.name)
    return repr(reason[:MAX_REASON]).strip("'\"").rstrip(". ")


def session_of(source: str | bytes, threads: int) -> Any:
    """A file, or its content, in ONNX Runtime on the CPU; raises what that raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class OnnxModel(nn.Module):
    """An ONNX file in ONNX Runtime; as a buffer, so that it is hashed, copied and saved."""

    file: Tensor
    is_onnx_file = True  # known without importing this module

    def __init__(self, content: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.register_buffer("file", torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self.input_names, self.output_names = tuple(inputs), tuple(outputs)
        self.folder = ""  # of weights in files of their own
        self.sessions: dict[int, Any] = {}

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """The output, or a dict of several by name."""
        feed = dict(zip(self.input_names, args, strict=False)) | kwargs
        arrays = {name: value.detach().contiguous().numpy() for name, value in feed.items()}
        results = [torch.from_numpy(result) for result in self._session().run(None, arrays)]
        if len(results) == 1:
            return results[0]
        return dict(zip(self.output_names, results, strict=True))

    def replace(self, content: bytes) -> None:
        """Run another file from now on, with the same inputs and outputs."""
        self.file = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        self.sessions = {}

    def _session(self) -> Any:
        """A session with torch's number of threads; one is kept for each number."""
        count = torch.get_num_threads()
        if count not in self.sessions:
            source = self.folder or self.file.numpy().tobytes()
            try:
                self.sessions[count] = session_of(source, count)
            except Exception as error:  # ONNX Runtime has its own errors
                raise FileError(f"ONNX Runtime cannot open it: {first_line(error)}") from error
        return self.sessions[count]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self)(self.file.numpy().tobytes(), self.input_names, self.output_names)
        twin.folder, twin.training = self.folder, self.training
        memo[id(self)] = twin
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**copy.copy(self.__dict__), "sessions": {}}
