"""The C++ of an HLS project as a function: compiled in a copy of the project, and called."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import weakref
from math import prod
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ..errors import ExportError

PROJECT = "model"  # the name of hls4ml's project, and of its top function
BUILD_S = 600


class Emulation:
    """Runs the fixed-point arithmetic of the chip on the CPU, one sample after another.

    hls4ml writes the script that compiles; it writes paths of its folder into the library, hence
    the copy, which lives as long as the emulation.
    """

    def __init__(self, project: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="paifuser-hls-"))
        self.clean_up = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        copy = folder / "project"
        shutil.copytree(project, copy)
        built = subprocess.run(
            ["bash", "./build_lib.sh"],
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        libraries = list((copy / "firmware").glob(f"{PROJECT}-*.so"))
        if built.returncode or not libraries:
            reason = [line for line in built.stderr.splitlines() if "error" in line][:1]
            raise ExportError(
                f"the HLS C++ does not compile: {(reason or ['no library was made'])[0]}."
            )
        self.call = getattr(ctypes.CDLL(str(libraries[0])), f"{PROJECT}_float")
        self.call.restype = None

    def __call__(self, tensors: list[Tensor], shapes: list[list[int]]) -> list[Tensor]:
        """The outputs of a batch; `shapes` has those of one sample's outputs."""
        batch = len(tensors[0])
        outputs = [numpy.zeros((batch, prod(shape)), numpy.float32) for shape in shapes]
        inputs = [tensor.detach().float().reshape(batch, -1).numpy() for tensor in tensors]
        for sample in range(batch):
            rows = [array[sample : sample + 1] for array in (*inputs, *outputs)]
            self.call(*(row.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for row in rows))
        return [
            torch.from_numpy(output).reshape(batch, *shape)
            for output, shape in zip(outputs, shapes, strict=True)
        ]
