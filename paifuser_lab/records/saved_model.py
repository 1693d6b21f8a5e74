"""The metadata saved with a compressed model's weights: the origin of the model, and its steps."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .comparison import StepReport
from .image_preprocessing import ImagePreprocessing
from .record import Record


class Origin(Record):
    """The arguments with which `load` can build the workload again."""

    name: str
    batch: int = 1
    seed: int = 0
    options: dict[str, Any] = {}
    path: str = Field(default="", description="where the file was that the name means")
    sha256: str = Field(default="", description="of what the file held")


class Sketch(Record):
    """A random projection of an output, from which the error of another output is estimated."""

    inputs: str = Field(description="the hash of the inputs")
    answer: str = Field(description="the hash of the output")
    norms: tuple[float, ...] = Field(description="of each tensor of the output")
    shapes: tuple[tuple[int, ...], ...]
    shadows: tuple[tuple[float, ...], ...] = Field(
        description="its products with fixed vectors of +1 and -1"
    )


class SavedStep(Record):
    """A step as it was applied, with the choices needed to repeat it exactly."""

    kind: str
    package: str = Field(description="where its code comes from")
    report: StepReport
    remembered: dict[str, Any] = {}


class SavedModel(Record):
    """The structure of a compressed model."""

    name: str = Field(description="of the workload that it was made from")
    origin: Origin | None = Field(
        default=None,
        description="None for a model built by the user, who has to pass it again",
    )
    original_hash: str = Field(description="the hash of the original's weights")
    weights_hash: str
    steps: tuple[SavedStep, ...] = ()
    preprocessing: ImagePreprocessing | None = Field(
        default=None, description="None if nobody stated how a picture becomes its input"
    )
    sketch: Sketch | None = Field(
        default=None, description="None if the model's output is not deterministic"
    )


class Manifest(Record):
    """The files of a compressed model and their SHA-256; written last, so that a folder with it is
    complete.
    """

    version: int
    torch: str
    files: dict[str, str]
