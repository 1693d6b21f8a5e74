"""How a picture becomes a model's input, and what its classes are called."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, PositiveInt

from .record import Record


def _per_channel(value: Any) -> Any:
    """A single number stands for every channel."""
    return (value,) if isinstance(value, int | float) else value


Divisor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ImagePreprocessing(Record):
    """Pixels of 0 to 1, less `mean`, divided by `std`, as the model was trained with."""

    mean: Annotated[tuple[FiniteFloat, ...], BeforeValidator(_per_channel)] = Field(
        default=(0.0,), min_length=1, description="one number, or one a channel"
    )
    std: Annotated[tuple[Divisor, ...], BeforeValidator(_per_channel)] = Field(
        default=(1.0,), min_length=1, description="one number, or one a channel"
    )
    size: tuple[PositiveInt, PositiveInt] | None = Field(
        default=None, description="height and width; None: those of the example input"
    )
    order: Literal["RGB", "BGR"] = Field(default="RGB", description="of three channels")
    classes: tuple[str, ...] = ()
