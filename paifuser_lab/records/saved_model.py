"""What lies beside the weights of a compressed model: where the original comes from, and what each
step did.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .comparison import StepReport
from .record import Record


class Origin(Record):
    """How `load` made a workload, so that it can make it again."""

    name: str
    batch: int = 1
    seed: int = 0
    options: dict[str, Any] = {}


class Sketch(Record):
    """An output in a few numbers, from which another output's distance is estimated."""

    inputs: str = Field(description="the hash of what was asked")
    answer: str = Field(description="the hash of the answer")
    norms: tuple[float, ...] = Field(description="of each tensor in it")
    shapes: tuple[tuple[int, ...], ...]
    shadows: tuple[tuple[float, ...], ...] = Field(
        description="its products with fixed vectors of +1 and -1"
    )


class SavedStep(Record):
    """A step as it was applied, and what it needs to be done again without choosing."""

    kind: str
    package: str = Field(description="where its code comes from")
    report: StepReport
    remembered: dict[str, Any] = {}


class SavedModel(Record):
    """The structure of a compressed model."""

    name: str = Field(description="of the workload that it was made from")
    origin: Origin | None = Field(
        default=None,
        description="None for a model that was made by hand, which the user has to give again",
    )
    original_hash: str = Field(description="the hash of the original's weights")
    weights_hash: str
    steps: tuple[SavedStep, ...] = ()
    sketch: Sketch | None = Field(
        default=None, description="None where the model does not answer twice alike"
    )


class Manifest(Record):
    """The files of a compressed model and their SHA-256; it is written last, so that a folder that
    has it is whole.
    """

    version: int
    torch: str
    files: dict[str, str]
