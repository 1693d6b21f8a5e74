"""Models by name, and small data sets to train them on, without downloads:
`zoo.build("resnet18")`.

    convolutional      resnet.py  mobilenet.py  convnext.py
    attention          vit.py  swin.py  bert.py
    detection          yolo.py (with its loss)  boxes.py
    segmentation       unet.py  segnet.py  segvit.py
    trained here       trained.py (which model learns from which data, by the loop of `training`;
                       the weights in the package)
    data and metrics   data.py  streets.py  maps.py  metrics.py
    real weights       installed.py (of packages that a user installs)
    language           language.py (a language model and a text to try things with)
    shared             parts.py (of workloads and of models), weights.py (seeded, plausible weights)

A new model is one file and one line in `_MODELS`. The file has a function for the model and one for
its tiny version, named as here with underscores (`swin_t`, `swin_t_tiny`); each takes the batch
size and returns `Parts`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module

import torch

from ..errors import UnknownModelError
from .parts import Batches, Parts
from .weights import seeded

__all__ = ["Batches", "Parts", "build", "names", "trained_names"]

_MODELS = {
    "resnet18": "resnet",
    "resnet50": "resnet",
    "mobilenetv2": "mobilenet",
    "convnext-t": "convnext",
    "vit-s": "vit",
    "swin-t": "swin",
    "bert-base": "bert",
    "yolo": "yolo",
    "unet": "unet",
    "segnet": "segnet",
    "segvit": "segvit",
}
_TINY = {f"{name}-tiny": module for name, module in _MODELS.items()}
IMAGENET = "mobilenetv2-imagenet"  # of a package that may be installed
_TRAINED = (
    "resnet18-digits",
    "resnet18-digits-tiny",
    "resnet18-hard-digits",
    "segnet-streets",
    "unet-streets",
    "yolo-streets",
    "segvit-maps",
    "segvit-maps-256",
)


def names() -> tuple[str, ...]:
    """The name of every model: full size, tiny, and trained on real data."""
    return (*_MODELS, *_TINY, *_TRAINED)


def trained_names() -> tuple[str, ...]:
    """The names of the models that come with data, and trained."""
    return _TRAINED


def build(
    name: str,
    *,
    batch: int = 1,
    seed: int = 0,
    trained: bool = True,
) -> Parts:
    """Build the model of this name with example inputs, and with data if it has some.

    The same name and seed give the same weights to the bit. Models with data (`resnet18-digits` …)
    come trained: the weights of seed 0 are in the package; with another seed they train the first
    time, as `lab.train` does, go on where they were interrupted, and are read from the cache later.
    `trained=False` gives them untrained.
    """
    if name not in (*names(), IMAGENET):
        raise UnknownModelError(_unknown(name))
    if name in _TRAINED:
        from .trained import build_trained

        return build_trained(name, batch=batch, seed=seed, trained=trained)
    module = import_module(f".{(_MODELS | _TINY | {IMAGENET: 'installed'})[name]}", __name__)
    build_model: Callable[[int], Parts] = getattr(module, name.replace("-", "_"))
    with seeded(seed), torch.enable_grad():
        return build_model(batch)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), names(), n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"choose one of {', '.join(names())}."
    )
    return f"There is no model named {name!r}; {hint}"
