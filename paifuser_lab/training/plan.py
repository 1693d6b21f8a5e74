"""The options of every step that trains: how long, at what learning rate and in what precision."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LOWEST = 1 / 25  # of the learning rate, at the start of the warm-up
RISES = {"one-cycle": 0.3, "cosine": 0.0, "constant": 0.0}


class Training(BaseModel):
    """How a model is trained; equal plans on equal data give equal weights."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    epochs: int = Field(default=3, ge=1, description="how often it sees the train data")
    learning_rate: float = Field(
        default=1e-3, gt=0, description="the highest that the schedule comes to"
    )
    optimizer: Literal["adamw", "sgd"] = Field(default="adamw", description="sgd has momentum 0.9")
    schedule: Literal["one-cycle", "cosine", "constant"] = Field(
        default="one-cycle",
        description="the learning rate rises and falls to 0, only falls, or stays",
    )
    warm_up: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of the steps in which it rises; 0.3 of one-cycle",
    )
    weight_decay: float = Field(
        default=0.01, ge=0, description="of weights with two dimensions or more"
    )
    clip: float | None = Field(
        default=1.0, gt=0, description="the longest gradient; a longer one is shortened"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32",
        description="what it computes in; weights stay as they are, fp16 has its loss scaled",
    )
    seed: int = Field(
        default=0, ge=0, description="of the order of batches and of whatever is drawn"
    )

    def rate_at(self, progress: float) -> float:
        """The learning rate after this share (0–1) of the steps."""
        rise = RISES[self.schedule] if self.warm_up is None else self.warm_up
        if progress < rise:
            return self.learning_rate * (LOWEST + (1 - LOWEST) * progress / rise)
        if self.schedule == "constant":
            return self.learning_rate
        return (
            self.learning_rate
            * (1 + math.cos(math.pi * min(1.0, (progress - rise) / (1 - rise))))
            / 2
        )
