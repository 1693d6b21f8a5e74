"""Loads a folder that transformers wrote: nothing is downloaded, run or unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._files import file_exists, read_text
from ..errors import FileError, UnknownModelError, first_line, optional_module
from .limits import Imported, shown

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
MAX_CONFIG = 4 << 20  # bytes
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")
# keys of a config that name code, or a kernel that is fetched
CODE = ("auto_map", "custom_pipelines", "trust_remote_code")
KERNEL = ("implementation", "kernel")


def load_folder(path: str | Path, *, batch: int, seed: int) -> Imported:
    """Load the model that a config names, with its head and weights, and made-up inputs."""
    folder = Path(path)
    config = _config(folder)
    weights = _checked_weights(folder)
    transformers = optional_module("transformers", extra="hf", needed_for=f"hf:{path}")
    kind = _model_class(transformers, folder, config)
    try:
        model, report = kind.from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises whatever a wrong config or file raises
        raise FileError(
            f"transformers cannot load {folder} ({type(error).__name__}: "
            f"{first_line(error)[:200].rstrip('.')}); save it anew with save_pretrained."
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise FileError(
            f"{folder} has no weights for {shown(missing[0])}, which the {kind.__name__} in its "
            "config has; save the whole model with save_pretrained."
        )
    model = without_cache(model.eval())
    inputs = plausible_inputs(model, batch, seed, name=f"hf:{path}")
    return Imported(
        model, inputs, _name_of(folder),
        files=(folder / CONFIG, *weights), make_tokenizer=_tokenizer_of(folder),
    )  # fmt: skip


def _name_of(folder: Path) -> str:
    """The folder's own name; in a cache of the hub, that of the model."""
    own = Path(os.path.abspath(folder))
    is_cached = own.parent.name == "snapshots"
    return own.parent.parent.name.rpartition("--")[2] if is_cached else own.name


def _tokenizer_of(folder: Path) -> Callable[[], Any] | None:
    """Loads the folder's tokenizer, if it holds one."""
    if not file_exists(folder / TOKENIZER):
        return None
    from transformers import AutoTokenizer

    return lambda: AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )


def without_cache(model: Any) -> Any:
    """The model; its forward returns no cache, which is an output that nobody compares."""
    if hasattr(model.config, "use_cache") and not model.config.is_encoder_decoder:
        model.config.use_cache = False
    return model


def plausible_inputs(model: Any, batch: int, seed: int, *, name: str) -> dict[str, Tensor]:
    """Plausible inputs for a transformers model, by its config."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _inputs(model, batch)
    except (ValueError, AttributeError, TypeError) as error:
        raise UnknownModelError(
            f"No plausible inputs are known for {name!r} ({first_line(error)}); build model and "
            "inputs yourself, and use Workload(model, inputs)."
        ) from error


def _inputs(model: Any, batch: int) -> dict[str, Tensor]:
    config, key = model.config, model.main_input_name
    if key == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        images = torch.randn(batch, getattr(config, "num_channels", 3), height, width)
        return {key: images.to(model.dtype)}
    if key != "input_ids":
        raise ValueError(f"it reads {key!r}")
    length = min(128, getattr(config, "max_position_embeddings", None) or 128)
    ids = torch.randint(min(100, config.vocab_size - 1), config.vocab_size, (batch, length))
    inputs = {key: ids, "attention_mask": torch.ones_like(ids)}
    return inputs | ({"decoder_input_ids": ids.clone()} if config.is_encoder_decoder else {})


def _config(folder: Path) -> dict[str, Any]:
    """The config, if it names no code."""
    if not file_exists(folder / CONFIG):
        raise FileError(
            f"{folder} has no {CONFIG}; give a folder that save_pretrained of transformers wrote."
        )
    _check_place(folder, folder / CONFIG)
    try:
        config = json.loads(read_text(folder / CONFIG, limit_bytes=MAX_CONFIG))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{folder / CONFIG} is not JSON ({first_line(error)}).") from error
    if not isinstance(config, dict):
        raise FileError(f"{folder / CONFIG} is not a config; save the model anew.")
    for key, value in _entries(config):
        names_kernel = key.endswith(KERNEL) and isinstance(value, str) and "/" in value
        if key in CODE or names_kernel:
            raise FileError(
                f"{folder / CONFIG} names code in {shown(key)}, which is not run here; build the "
                "model yourself and use Workload(model, inputs)."
            )
    if "quantization_config" in config:
        raise FileError(
            f"{folder} holds weights that another tool has quantized; load the original and use "
            "the step 'precision'."
        )
    return config


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a config with its value, of configs inside it too."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            for key, inner in current.items():
                yield key, inner
                waiting.append(inner)
        elif isinstance(current, list):
            waiting += current


def _checked_weights(folder: Path) -> list[Path]:
    """The files of weights; refuses a folder without safetensors, and those that lie elsewhere."""
    names = [WEIGHTS]
    if file_exists(folder / INDEX):
        _check_place(folder, folder / INDEX)
        try:
            index = json.loads(read_text(folder / INDEX))["weight_map"]
            names = sorted({str(name) for name in index.values()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(
                f"{folder / INDEX} is not an index of weights; copy it anew."
            ) from error
    elif not file_exists(folder / WEIGHTS):
        pickled = sorted(path.name for kind in PICKLED for path in folder.glob(kind))
        if pickled:
            raise FileError(
                f"{folder} has its weights only in {shown(pickled[0])}, a pickle, which may run "
                "code; where you trust it, load it in transformers and save it anew with "
                "save_pretrained, which writes safetensors."
            )
        raise FileError(f"{folder} has no {WEIGHTS}; copy the whole folder.")
    for name in names:
        is_plain = name.endswith(".safetensors") and not {"/", "\\", "\0"} & set(name)
        if not is_plain or not file_exists(folder / name):
            raise FileError(f"{folder} names the weights {shown(name)}, which it does not hold.")
        _check_place(folder, folder / name)
    return [folder / name for name in names]


def _check_place(folder: Path, path: Path) -> None:
    """Refuse a link that leads out of the folder; a cache of the hub keeps its files in `blobs`."""
    own = folder.resolve()
    allowed = (own, own.parent.parent / "blobs") if own.parent.name == "snapshots" else (own,)
    if path.resolve().parent not in allowed:
        raise FileError(
            f"{path} is a link that leads out of its folder, which is not followed; put a copy "
            "there."
        )


def _model_class(transformers: Any, folder: Path, config: dict[str, Any]) -> Any:
    """The class that the config names: a model of the installed transformers, for that config."""
    named = config.get("architectures") or [""]
    name = named[0] if isinstance(named, list) else named
    model_type = config.get("model_type")
    is_name = isinstance(name, str) and name.isidentifier()
    kind: Any = getattr(transformers, name, None) if is_name else None
    is_model = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    if not is_model or getattr(kind.config_class, "model_type", None) != model_type:
        raise UnknownModelError(
            f"{folder} is of {shown(name)} and the type {shown(model_type)}, which the installed "
            "transformers does not have; build the model yourself and use Workload(model, inputs)."
        )
    return kind
