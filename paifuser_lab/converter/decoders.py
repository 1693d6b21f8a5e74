"""Language models in other runtimes, behind the same calls as the one in torch: tokens in, logits
out. Each says how its file is written, so that what is evaluated is what is delivered.
"""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import MeasureError
from .genai import GenAIDecoder, missing_runtime, run_alone
from .gguf_file import write_gguf
from .openvino import openvino_core

CONVERT = """
import openvino_genai, sys
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""


_lines: deque[str] = deque(maxlen=8)  # the last that llama.cpp logged


def _note_line(level: int, text: bytes, _: object) -> None:
    if line := text.decode(errors="replace").strip():
        _lines.append(line)


# kept for as long as the library may call it
_note = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_note_line)


class LlamaCppDecoder:
    """A GGUF file in llama.cpp."""

    file, write = "model.gguf", staticmethod(write_gguf)

    def __init__(self, path: Path, context: int, threads: int) -> None:
        try:
            from ik_llama_cpp import IkLlama, _ctypes_api, _internals, llama
        except ImportError as error:
            raise missing_runtime("ik_llama_cpp", path) from error
        self._api, self._batches = _ctypes_api, _internals
        logging.getLogger("ik_llama_cpp.llama").setLevel(logging.ERROR)  # its advice on processors
        if not hasattr(llama._cpu_has_avx_vnni, "cache_info"):  # else a process that takes a second
            llama._cpu_has_avx_vnni = cache(llama._cpu_has_avx_vnni)
        _ctypes_api._lib.llama_log_set(_note, None)  # else hundreds of lines in a notebook
        try:
            self._own = IkLlama(str(path), n_ctx=context, n_threads=threads, verbose=False)
        except RuntimeError as error:
            raise MeasureError(
                f"llama.cpp does not read {path.name} ({_lines[-1] if _lines else error})."
            ) from error
        self._context = self._own._context
        self.reset()

    def reset(self) -> None:
        self._context.kv_cache_clear()
        self._known = 0

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        batch = self._batches.make_batch_range(list(tokens), pos_start=self._known)
        for place in range(len(tokens) if every else 0):
            batch.logits[place] = 1
        status = self._context.decode(batch)
        self._api.llama_batch_free(batch)
        if status:
            raise MeasureError(f"llama.cpp stopped at token {self._known} with status {status}.")
        self._known += len(tokens)
        width = self._context.model.n_vocab
        places = range(len(tokens)) if every else [len(tokens) - 1]
        rows = [
            numpy.ctypeslib.as_array(self._context.get_logits(place), (width,)).copy()
            for place in places
        ]
        logits = torch.from_numpy(numpy.stack(rows))
        return logits if every else logits[0]


class OpenVINODecoder:
    """A GGUF file as OpenVINO GenAI converts it, with the cache in the model's state."""

    file = "model.gguf"
    write = staticmethod(partial(write_gguf, floats=torch.float16))  # it reads no matrices in fp32

    def __init__(self, path: Path, context: int, threads: int) -> None:
        if not find_spec("openvino_genai"):
            raise missing_runtime("openvino_genai", path)
        # in a process of its own: files of some types end it by a division by zero
        if reason := run_alone(CONVERT, path):
            raise MeasureError(f"OpenVINO GenAI does not read {path.name} ({reason}).")
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
        }
        core = openvino_core()
        model = core.read_model(path.with_name("openvino_model.xml"))
        self._request: Any = core.compile_model(model, "CPU", settings).create_infer_request()
        self.reset()

    def reset(self) -> None:
        self._request.reset_state()
        self._known = 0

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        start, self._known = self._known, self._known + len(tokens)
        self._request.infer(
            {
                "input_ids": numpy.asarray([list(tokens)], dtype=numpy.int64),
                "attention_mask": numpy.ones((1, self._known), dtype=numpy.int64),
                "position_ids": numpy.arange(start, self._known, dtype=numpy.int64)[None],
                "beam_idx": numpy.zeros(1, dtype=numpy.int32),
            }
        )
        logits = torch.from_numpy(self._request.get_tensor("logits").data[0].copy())
        return logits if every else logits[-1]


# the name of each runtime, and what writes its file and opens it: path, longest text, threads
DECODERS: dict[str, type[LlamaCppDecoder | OpenVINODecoder | GenAIDecoder]] = {
    "llama.cpp": LlamaCppDecoder,
    "openvino": OpenVINODecoder,
    "onnxruntime": GenAIDecoder,
}
