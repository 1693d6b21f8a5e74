"""The trained models: architecture, data, metric and training settings of each.

Their weights for seed 0 come with the package. `python -m paifuser_lab.zoo.trained [NAME …]` (`make
weights`) trains the models again and writes the weights to pretrained/, with weights.json: for each
model its hash, its metric on the test data and the torch that trained it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

from .._files import write_text
from ..errors import FileError
from ..records import ImagePreprocessing
from ..training import CheckpointFile, Training, train
from ..training.fingerprints import fingerprints
from ..training.workloads import objective_of
from ..workload import Inputs
from . import data
from .metrics import accuracy, mean_average_precision, mean_iou
from .parts import Batches, Parts
from .resnet import BasicBlock, ResNet
from .segnet import SegNet
from .segvit import SegViT
from .unet import UNet
from .weights import RELU_GAIN, SILU_GAIN, initialise, seeded
from .yolo import DetectionLoss, Yolo, expect_background

FOLDER = Path(__file__).with_name("pretrained")
SEED = 0
MAX_BYTES = 1_500_000


def read_weights(name: str, seed: int) -> dict[str, torch.Tensor] | None:
    """The weights of a model, or None where the package has none for this seed."""
    known = manifest()
    if seed != SEED or name not in known:
        return None
    path = path_of(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"Cannot read {path}: {error.strerror}; install the package again."
        ) from error
    if hashlib.sha256(content).hexdigest() != known[name]["sha256"]:
        raise FileError(
            f"{path} is damaged (its SHA-256 is not the one in weights.json); install the package "
            "again."
        )
    weights: dict[str, torch.Tensor] = safetensors.torch.load(content)
    return weights


def rounded(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights as they are stored: in 16 bits, the statistics of norms as they are."""
    return {
        key: (
            value if ".running_" in key or not value.is_floating_point() else value.half()
        ).contiguous()
        for key, value in weights.items()
    }


def manifest() -> dict[str, Any]:
    """What weights.json records of each model."""
    path = FOLDER / "weights.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def path_of(name: str) -> Path:
    """The file of a model's weights."""
    return FOLDER / f"{name}.safetensors"


def write_weights(name: str, weights: Mapping[str, torch.Tensor], metric: float) -> bool:
    """Write a model's weights and their record; False, and nothing, if they are larger than
    `MAX_BYTES`.
    """
    content = safetensors.torch.save(rounded(weights))
    if len(content) > MAX_BYTES:
        return False
    FOLDER.mkdir(exist_ok=True)
    path_of(name).write_bytes(content)
    record = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "metric": round(metric, 4),
        "torch": torch.__version__,
    }
    ordered = dict(sorted((manifest() | {name: record}).items()))
    write_text(FOLDER / "weights.json", json.dumps(ordered, indent=1) + "\n")
    return True


def cross_entropy(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The cross-entropy loss."""
    return F.cross_entropy(scores, target)


@dataclass(frozen=True)
class TrainingSetup:
    """How one model is trained and evaluated."""

    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Batches, Batches]]
    metric: Callable[[Callable[..., Any], Batches], float]
    epochs: int
    learning_rate: float
    # smaller images to train on, if those of `data` are large
    train_data: Callable[[], tuple[Batches, Batches]] | None = None
    weights: str = ""  # the model whose trained weights are used, if it is not trained itself
    loss: Callable[[Any, torch.Tensor], torch.Tensor] = cross_entropy
    gain: float = RELU_GAIN  # of the activation, for the first weights
    begin: Callable[[Any], None] | None = None  # changes the first weights
    preprocessing: ImagePreprocessing | None = None

    def plan(self, seed: int) -> Training:
        """The options of its training."""
        return Training(epochs=self.epochs, learning_rate=self.learning_rate, seed=seed)


def _digit_resnet(width: int) -> nn.Module:
    return ResNet(BasicBlock, (2, 2, 2, 2), width=width, classes=10, channels=1, small_images=True)


_MAPS = TrainingSetup(
    partial(SegViT, patch=4, width=64, depth=3, heads=2, classes=7),
    data.maps,
    mean_iou,
    epochs=12,
    learning_rate=3e-3,
    train_data=partial(data.maps, train=2048, test=16, batch=16, side=32, seed=1),
    preprocessing=data.MAPS,
)

_DIGITS = TrainingSetup(
    partial(_digit_resnet, 16),
    data.digits,
    accuracy,
    epochs=7,
    learning_rate=3e-3,
    preprocessing=data.DIGITS,
)

_STREETS = TrainingSetup(
    partial(SegNet, width=24, depth=3, classes=6),
    data.streets,
    mean_iou,
    epochs=12,
    learning_rate=8e-3,
    preprocessing=data.STREETS,
)

SETUPS = {
    "resnet18-digits": _DIGITS,
    "resnet18-digits-tiny": replace(
        _DIGITS, model=partial(_digit_resnet, 8), epochs=4, learning_rate=5e-3
    ),
    "resnet18-hard-digits": replace(_DIGITS, data=data.hard_digits, epochs=12),
    "segnet-streets": _STREETS,
    "unet-streets": replace(_STREETS, model=partial(UNet, width=8, depth=3, classes=6), epochs=10),
    "yolo-streets": TrainingSetup(
        partial(Yolo, width=6, depth=1, classes=2, bins=8),
        data.boxed_streets,
        mean_average_precision,
        epochs=30,
        learning_rate=3e-3,
        loss=DetectionLoss(side=96),
        gain=SILU_GAIN,
        begin=expect_background,
        preprocessing=data.BOXED_STREETS,
    ),
    "segvit-maps": _MAPS,
    "segvit-maps-256": replace(
        _MAPS, data=partial(data.maps, train=8, test=8, batch=2, side=256), weights="segvit-maps"
    ),
}


def build_trained(name: str, *, batch: int, seed: int, trained: bool) -> Parts:
    """The model with its data, loss and metric; trained unless `trained` is false."""
    setup = SETUPS[name]
    with seeded(seed):
        model = setup.model()
        initialise(model, gain=setup.gain)
        if setup.begin is not None:
            setup.begin(model)
        train_batches, test_batches = setup.data()
    if trained:
        weights_name = setup.weights or name
        weights = read_weights(weights_name, seed)
        if weights is None:
            _train(model, setup, train_batches, seed, weights_name, is_kept=True)
        else:
            model.load_state_dict(weights)
    return Parts(
        model=model.eval(),
        inputs=_examples(test_batches, batch),
        loss=setup.loss,
        train=train_batches,
        test=test_batches,
        metric=setup.metric,
        preprocessing=setup.preprocessing,
    )


def _train(
    model: nn.Module,
    setup: TrainingSetup,
    batches: Batches,
    seed: int,
    name: str,
    *,
    is_kept: bool,
) -> None:
    """Train the model in place; one that is kept resumes after an interruption, and once finished
    is read from the cache.
    """
    if setup.train_data is not None:
        batches, _ = setup.train_data()
    plan = setup.plan(seed)
    with seeded(seed):
        file = None
        if is_kept:
            known = fingerprints([model], Inputs.of(batches[0][0]), setup.loss, batches)
            file = CheckpointFile("zoo", plan.model_dump_json(), *known)
        done = train(
            model,
            batches,
            objective_of(setup.loss),
            plan,
            checkpoint_file=file,
            what=f"training {name}",
        )
    for note in done.notes:
        warnings.warn(f"{name}: {note}.", stacklevel=4)


def _examples(batches: Batches, count: int) -> torch.Tensor:
    """The first images of the test set, repeated if it has fewer."""
    images = torch.cat([inputs for inputs, _ in batches])
    return images[torch.arange(count) % len(images)]


def main(names: Sequence[str] = ()) -> None:
    """Train models, all by default, and write the weights that come with the package."""
    for name in names or [name for name, setup in SETUPS.items() if not setup.weights]:
        setup = SETUPS[name]
        parts = build_trained(name, batch=1, seed=SEED, trained=False)
        train_batches, test_batches = setup.data()
        _train(parts.model, setup, train_batches, SEED, name, is_kept=False)
        parts.model.load_state_dict(rounded(parts.model.state_dict()))
        metric = setup.metric(parts.model.eval(), test_batches)
        is_written = write_weights(name, parts.model.state_dict(), metric)
        note = "" if is_written else ", too large: left out"
        sys.stdout.write(f"{name}: metric {metric:.4f}{note}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
