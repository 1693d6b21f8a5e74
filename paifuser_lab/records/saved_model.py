"""The metadata saved with a compressed model's weights: its origin, steps and preprocessing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, PositiveInt

from .comparison import StepReport
from .record import Record


def _per_channel(value: Any) -> Any:
    """A single number stands for every channel."""
    return (value,) if isinstance(value, int | float) else value


Divisor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ImagePreprocessing(Record):
    """Pixels of 0 to 1, less `mean`, divided by `std`, as the model was trained with."""

    # one number, or one a channel
    mean: Annotated[tuple[FiniteFloat, ...], BeforeValidator(_per_channel)] = Field(
        default=(0.0,), min_length=1
    )
    # one number, or one a channel
    std: Annotated[tuple[Divisor, ...], BeforeValidator(_per_channel)] = Field(
        default=(1.0,), min_length=1
    )
    # height and width; None: those of the example input
    size: tuple[PositiveInt, PositiveInt] | None = None
    order: Literal["RGB", "BGR"] = "RGB"  # of three channels
    classes: tuple[str, ...] = ()


class Origin(Record):
    """The arguments with which `load` can build the workload again."""

    name: str
    batch: int | None = None
    seed: int = 0
    options: dict[str, Any] = {}
    path: str = ""  # where the file was that the name means
    sha256: str = ""  # of what the file held


class Sketch(Record):
    """A random projection of an output, from which the error of another output is estimated."""

    inputs: str  # the hash of the inputs
    answer: str  # the hash of the output
    norms: tuple[float, ...]  # of each tensor of the output
    shapes: tuple[tuple[int, ...], ...]
    shadows: tuple[tuple[float, ...], ...]  # its products with fixed vectors of +1 and -1


class SavedStep(Record):
    """A step as it was applied, with the choices needed to repeat it exactly."""

    kind: str
    package: str  # where its code comes from
    report: StepReport
    remembered: dict[str, Any] = {}


class SavedModel(Record):
    """The structure of a compressed model."""

    name: str  # of the workload that it was made from
    origin: Origin | None = None  # None for a model built by the user, who has to pass it again
    original_hash: str  # the hash of the original's weights
    weights_hash: str
    steps: tuple[SavedStep, ...] = ()
    # None if nobody stated how a picture becomes its input
    preprocessing: ImagePreprocessing | None = None
    sketch: Sketch | None = None  # None if the model's output is not deterministic


class Manifest(Record):
    """A compressed model's files and their SHA-256; written last, so that all are there."""

    version: int
    torch: str
    files: dict[str, str]
