"""What a recipe may cost in quality before it is refused."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from .record import Record


class Limit(Record):
    """How much of the metric may be lost; where there is no labelled data, how far the answer may
    be from the baseline's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    metric_drop: float = Field(
        default=0.01, ge=0, le=1, description="0.01 is one point of accuracy"
    )
    output_error: float = Field(default=0.1, gt=0, description="relative L2 error")
