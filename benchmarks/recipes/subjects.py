"""The models that random recipes are applied to: tiny ones of the zoo, and architectures of unusual
structure.
"""

from __future__ import annotations

from paifuser_lab.errors import MeasureError
from paifuser_lab.loading.load import load
from paifuser_lab.workload import Workload
from tests.support.prune_zoo import architectures

ZOO = (
    "resnet18-digits-tiny",
    "mobilenetv2-tiny",
    "vit-s-tiny",
    "swin-t-tiny",
    "bert-base-tiny",
    "unet-tiny",
    "convnext-t-tiny",
    "yolo-tiny",
)
BATCHES = 4  # of training data: how well training goes does not matter here


def subjects() -> tuple[str, ...]:
    """The names of all subjects."""
    return (*ZOO, *(architecture.name for architecture in architectures()))


def subject(name: str) -> Workload:
    """A subject by its name: the same weights, inputs and few batches of data in every process."""
    if name in ZOO:
        work = load(name)
        work.train = work.train and work.train[:BATCHES]
        return work
    for architecture in architectures():
        if architecture.name == name:
            return architecture.workload()
    raise MeasureError(f"There is no subject '{name}'; there are {', '.join(subjects())}.")
