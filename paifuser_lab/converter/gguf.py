"""Language models as GGUF files, run in llama.cpp."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from ..errors import ExportError
from .decoders import LlamaCppDecoder
from .exportable import Exportable
from .gguf_file import write_gguf
from .target import Conversion, Run, Target, TargetOptions, not_run


class Gguf(Target):
    """A language model for llama.cpp, which keeps its cache in fp16 and rounds the inputs of layers
    in integers to int8, so that its logits are compared within wider limits.
    """

    name = "gguf"
    title = "GGUF"
    suffix = ".gguf"
    extra, needs = "language", "gguf"
    precisions = ("fp32", "bf16", "int8")  # bf16 is written as fp32

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> Conversion:
        if options.precision == "bf16" != exportable.precision:
            raise ExportError(f"{self.title} rounds no weights to bf16; leave `precision` out.")
        write_gguf(exportable.work, exportable.module, path)
        return Conversion()

    def opened(self, path: Path, threads: int) -> Run:
        if not find_spec("ik_llama_cpp"):
            raise not_run(self.title, "ik-llama-cpp-python is not installed")

        @lru_cache(1)  # opening it is no part of a call
        def decoder_of(context: int) -> LlamaCppDecoder:
            return LlamaCppDecoder(path, context, threads)

        def run(tensors: list[Tensor]) -> list[Tensor]:
            rows = tensors[0].tolist()
            decoder = decoder_of(max(map(len, rows)))
            logits = []
            for row in rows:
                decoder.reset()
                logits.append(decoder.feed(row, every=True))
            return [torch.stack(logits)]

        return run

    def tolerance(self, precision: str) -> float:
        return 5e-3 if precision == "fp32" else 0.1
