"""Loads a workload by name, or a compressed model from a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._files import folder_exists
from ..errors import FileError, WorkloadError
from ..workload import Workload, outside_inference
from .folder import is_folder
from .load import load as load_by_name
from .load import models
from .model_files import holds_weights, is_model_file, weights_alone
from .python_names import is_python_file, named_in
from .variant import Variant


@outside_inference
def load(
    name: str | Path,
    *,
    batch: int | None = None,
    seed: int | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    work: Workload | None = None,
    trust: bool = False,
    **options: Any,
) -> Workload:
    """Load a workload by name: a model of the zoo, an ONNX file, a `.pt2` program of torch.export,
    a GGUF file, `hf:TYPE` from a transformers config, `hf:PATH` from a folder of a checkpoint, or
    `package.module:function` or `file.py:function`, also of a class; or from a folder.

    Equal seeds give equal weights. A function chooses its batch size itself. `data` is a
    `package.module:function` that returns the train and test batches, in place of any that the
    model comes with; `text` gives a language model a plain file: three quarters to learn from, the
    rest to judge by. Other options are passed to the function, or to the transformers config
    (`load("hf:bert", num_hidden_layers=2)`).

    A folder written by `variant.save` gives the compressed model with its engine and the original's
    inputs, data and metric; the original is built by the name in the folder, or is `work`. A name
    of the zoo is never a folder: write `./resnet18`. `Variant.load(folder)` also gives the recipe
    and the original, for comparisons.

    A function that you name is called; `file.py` alone means its `make` with `trust=True`. A class
    or a function may make a model alone: its inputs are inferred where its first layer determines
    them, or have the shapes in the name, `net.py:Net@1x3x32x32`.

    A function that a folder names is code that a file chose: it is called with `trust=True`, or if
    its module is one of yours that is already imported (see the module `trust`). A program of
    torch.export is unpickled, which may run code, and needs `trust=True` as well.
    """
    if not isinstance(name, str | Path):
        raise WorkloadError(
            f"load takes a model's name or a folder, not a {type(name).__name__}; wrap a model of "
            "your own: lab.Workload(model, inputs)."
        )
    if is_python_file(str(name)) and not folder_exists(name):
        name = named_in(str(name), trust=trust)
    if holds_weights(str(name)) and not folder_exists(name):
        raise weights_alone(str(name))
    asked = {"batch": batch, "seed": seed, "device": device}
    options |= {key: value for key, value in asked.items() if value is not None}
    if not means_folder(name):
        if work is not None:
            raise WorkloadError(
                f"{name!r} is no folder of a saved model, which `work` would be the original of; "
                "leave `work` out."
            )
        return load_by_name(str(name), weights=weights, trust=trust, **options)
    if weights is not None:
        raise FileError(
            f"{name} has weights of its own; leave `weights` out, or load the original by its name."
        )
    if "trained" in options:
        raise FileError(
            f"{name} has weights of its own; leave `trained` out, or give what it was made from: "
            "load(folder, work=original)."
        )
    variant = Variant.load(name, work, trained=False, trust=trust, **options)
    loaded = variant.workload
    if variant.pool is not None:  # calls enter it, so that the whole model is what is called
        loaded.model = variant.model
    return loaded


def means_folder(name: str | Path) -> bool:
    """Whether a name means a folder: by type or spelling, or since one exists and no model does."""
    if is_model_file(str(name)) and not folder_exists(name):
        return False
    if isinstance(name, Path):
        return True
    if name in models() or name.startswith("hf:"):
        return False
    is_path = name.startswith(".") or os.sep in name
    return is_folder(name) or (":" not in name and (is_path or folder_exists(name)))
