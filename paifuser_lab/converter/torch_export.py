"""torch.export: the program that torch captures of a model, saved for Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..machine import threads
from ..model.silence import compilers_silenced
from .exportable import Exportable
from .lowering import program_of, reading_notes, rounds_to_int8
from .target import Conversion, Run, Target

ROUNDINGS = "int8 as quantize and dequantize operators around layers in floats"


class TorchExport(Target):
    """Writes the captured program and reads it back as a module."""

    name = "torch_export"
    title = "torch.export"
    suffix = ".pt2"
    precisions = ("fp32", "bf16", "fp16", "int8")

    def convert(self, exportable: Exportable, path: Path, options: Any) -> Conversion:
        program = program_of(exportable, options)
        with compilers_silenced():
            torch.export.save(program, path)
        roundings = (ROUNDINGS,) if rounds_to_int8(program) else ()
        return Conversion((*roundings, *reading_notes(program)))

    def opened(self, path: Path, threads_used: int) -> Run:
        with compilers_silenced():
            module = torch.export.load(path).module()

        def run(tensors: list[Tensor]) -> list[Tensor]:
            with torch.no_grad(), threads(threads_used):
                return list(module(*tensors))

        return run
