"""A model's weights: their hash, and files that never execute code. Built on safetensors."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._files import file_exists, replacing
from ..errors import FileError, WorkloadError, first_line
from .tensors import tensors_in

# how safetensors spells an error of the operating system
OS_ERROR = re.compile(r"([^: ][^:]*) \(os error (\d+)\)")
OVERLAPS = 1  # the result of torch._debug_has_internal_overlap


def weights_hash(model: nn.Module | Mapping[str, Tensor]) -> str:
    """The SHA-256 of every weight and buffer with its name, dtype and shape: equal hashes mean
    bit-identical models.
    """
    state = _state_of(model) if isinstance(model, nn.Module) else model
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def answer_hash(output: Any) -> str:
    """The SHA-256 of an output's tensors: models of equal weights can differ in it."""
    return weights_hash({str(index): leaf for index, leaf in enumerate(tensors_in(output))})


def weights_bytes(model: nn.Module) -> int:
    """The size of the weights and buffers in bytes, shared memory counted once."""
    tensors, _ = _without_aliases(_state_of(model))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def parameter_count(model: nn.Module, *, own: bool = False, counted: set[int] | None = None) -> int:
    """The number of weights, also of one layer; integer ones count, which are buffers in torch."""
    counted = set() if counted is None else counted
    total = 0
    for module in [model] if own else model.modules():
        weights: list[tuple[Any, int]] = [
            (weight, weight.numel()) for weight in module.parameters(recurse=False)
        ]
        if (count := getattr(module, "quantized_count", None)) is not None:
            weights.append((module.values, count))
        total += sum(count for weight, count in weights if id(weight) not in counted)
        counted |= {id(weight) for weight, _ in weights}
    return total


def float_dtype(module: nn.Module) -> torch.dtype:
    """The dtype of the first weight in floats."""
    floats = (weight.dtype for weight in module.parameters() if weight.is_floating_point())
    return next(floats, torch.float32)


def save_weights(model: nn.Module, path: str | Path) -> Path:
    """Write safetensors with their hash inside; tied weights are stored once and stay tied."""
    state = _state_of(model)
    tensors, aliases = _without_aliases(state)
    metadata = {"weights_hash": weights_hash(state), "aliases": json.dumps(aliases), "format": "pt"}
    with replacing(path) as temporary:
        write_tensors(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
            temporary,
            metadata,
        )
    return Path(path)


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file; a full disk is the OSError that every other writer raises."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        match = OS_ERROR.search(str(error))
        if match is None:
            raise FileError(f"The weights cannot be written ({first_line(error)}).") from error
        raise OSError(int(match[2]), match[1]) from error


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Load all weights or none; refuse a damaged file or one that would execute code."""
    path = Path(path)
    if not file_exists(path):
        raise FileError(f"There is no weights file {str(path)!r}.")
    loaded = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    _check_fits(model, loaded, path.name)
    # a tensor made by `expand` has one memory location for many values: torch cannot load into it
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.layout is torch.strided and torch._debug_has_internal_overlap(tensor) == OVERLAPS:
            tensor.data = tensor.data.contiguous()
    model.load_state_dict(loaded)


def _state_of(model: nn.Module) -> dict[str, Tensor]:
    """Every weight and buffer by name, each of which can be read, hashed and written."""
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.is_quantized:
            kind = (
                "quantized tensor"
                if isinstance(value, Tensor)
                else f"{type(value).__name__}, not a tensor"
            )
            raise WorkloadError(
                f"'{name}' of the {type(model).__name__} is a {kind}, as layers of "
                "torch.ao.quantization pack their weights, and "
                "cannot be hashed or saved; pass the model before that quantization, and quantize "
                "it with the step 'precision'."
            )
        if value.layout is not torch.strided:
            raise WorkloadError(
                f"'{name}' of the {type(model).__name__} is a sparse tensor ({value.layout}), "
                "which cannot be hashed or saved; "
                f"make it dense with .to_dense()."
            )
    return state


def _bytes(tensor: Tensor) -> bytes | memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else b""


def _without_aliases(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The distinct tensors, and the names that are aliases of one of them."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and key in seen:
            aliases[name] = seen[key]
        else:
            seen[key] = name
            tensors[name] = tensor
    return tensors, aliases


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            loaded = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a file, not a dict)
        loaded |= {
            alias: loaded[name] for alias, name in json.loads(metadata.get("aliases", "{}")).items()
        }
        # safetensors' own save_model drops the other names of a tied weight, and says which it kept
        loaded |= {
            name: loaded[kept]
            for name, kept in metadata.items()
            if name != "format" and name not in loaded and kept in loaded
        }
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise FileError(
            f"{path.name} is not a sound safetensors file ({first_line(error)}); was it cut short?"
        ) from error
    expected = metadata.get("weights_hash")
    if expected and weights_hash(loaded) != expected:
        raise FileError(
            f"{path.name} is damaged: its weights do not have the hash that was stored with them."
        )
    return loaded


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns before it refuses
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{path.name} holds something other than weights, which may execute code on loading; "
            "it was refused. Save a state_dict."
        ) from error
    except Exception as error:  # torch's unpickler raises any exception on a damaged file
        raise FileError(
            f"{path.name} cannot be read as weights ({first_line(error)}); was it cut short?"
        ) from error
    if not isinstance(loaded, Mapping) or not all(
        isinstance(value, Tensor) for value in loaded.values()
    ):
        raise FileError(
            f"{path.name} does not hold a state_dict of tensors; save model.state_dict()."
        )
    return dict(loaded)


def _check_fits(model: nn.Module, loaded: Mapping[str, Tensor], file: str) -> None:
    state = model.state_dict()
    for name, tensor in state.items():
        if name not in loaded:
            raise FileError(f"{file} has no weights for '{name}'; it was saved from another model.")
        if loaded[name].shape != tensor.shape:
            actual, expected = tuple(loaded[name].shape), tuple(tensor.shape)
            raise FileError(
                f"{file} has shape {actual} for '{name}' where the model has {expected}; it was "
                "saved from another model."
            )
        if loaded[name].layout is not tensor.layout:
            raise FileError(
                f"{file} has a sparse tensor ({loaded[name].layout}) for '{name}' where the model "
                f"has {tensor.layout}; save it with .to_dense()."
            )
        if loaded[name].dtype != tensor.dtype:
            raise FileError(
                f"{file} has {loaded[name].dtype} for '{name}' where the model has {tensor.dtype}; "
                "convert one of them first."
            )
    if extra := sorted(set(loaded) - set(state)):
        raise FileError(
            f"{file} has weights for '{extra[0]}', which the model does not have; it was saved "
            "from another model."
        )
