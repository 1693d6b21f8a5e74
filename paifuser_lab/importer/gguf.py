"""Loads a GGUF file of llama.cpp in fp32, after checking its header, sizes and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._files import checked_path, file_exists
from ..errors import FileError, MissingExtraError, UnknownModelError, first_line
from .hugging_face import plausible_inputs, without_cache
from .limits import Imported, shown

FP32 = 4  # bytes
FLOATS = ("F32", "F16", "BF16")


def load_gguf(path: str | Path, *, batch: int, seed: int, free: int) -> Imported:
    """The model of a GGUF file in fp32, if that fits into the free bytes, and a note on what its
    weights were stored as.
    """
    file = checked_path(path)
    if not file_exists(file):
        raise FileError(f"There is no GGUF file {str(path)!r}.")
    try:
        from gguf import GGUFReader
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        missing = (error.name or "gguf").partition(".")[0]
        raise MissingExtraError(missing, extra="language", needed_for=file.name) from error
    header = _checked_header(GGUFReader, file, free)
    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        model = AutoModelForCausalLM.from_pretrained(str(file.parent), dtype="float32", **where)
    except Exception as error:  # transformers raises whatever a wrong header raises
        raise UnknownModelError(
            f"transformers cannot load {file.name} ({type(error).__name__}: "
            f"{first_line(error)[:200].rstrip('.')}); load it in transformers, save it with "
            "save_pretrained, and load that folder."
        ) from error
    # the weights are fp32 now; with what says otherwise the model could not be saved
    for owner, name in ((model, "hf_quantizer"), (model.config, "quantization_config")):
        if hasattr(owner, name):
            delattr(owner, name)
    return Imported(
        without_cache(model.eval()),
        plausible_inputs(model, batch, seed, name=file.name),
        file.stem,
        notes=_notes(header),
        files=(file,),
        make_tokenizer=lambda: AutoTokenizer.from_pretrained(str(file.parent), **where),
    )


def _checked_header(reader: Any, file: Path, free: int) -> Any:
    """The tensors' names, types and sizes, if the file is whole and its fp32 fits into `free`."""
    try:
        header = reader(str(file))
        end = max(tensor.data_offset + tensor.n_bytes for tensor in header.tensors)
    except Exception as error:  # whatever a damaged header makes of numpy
        raise FileError(
            f"{file.name} is no whole GGUF file ({type(error).__name__}: "
            f"{first_line(error)[:120].rstrip('.')}); copy it anew."
        ) from error
    if end > file.stat().st_size:
        raise FileError(f"{file.name} ends before its last tensor; copy it anew.")
    needed = FP32 * sum(int(tensor.n_elements) for tensor in header.tensors)
    if needed > free:
        raise FileError(
            f"{file.name} takes {needed / 2**30:.1f} GiB in fp32, and {free / 2**30:.1f} GiB of "
            "memory are free; load a smaller model, or on a machine with more."
        )
    return header


def _notes(header: Any) -> tuple[str, ...]:
    """What the weights were stored as, where that was less than fp32."""
    kinds = sorted({tensor.tensor_type.name for tensor in header.tensors} - {"F32"})
    if not kinds:
        return ()
    rounded = [kind for kind in kinds if kind not in FLOATS]
    was = "rounded" if rounded else "stored"
    return (f"its weights were {was} to {', '.join(map(shown, kinds))} in the file; fp32 of that "
            "is the baseline",)  # fmt: skip
