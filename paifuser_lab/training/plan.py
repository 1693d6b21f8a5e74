"""The options of every step that trains: how long, at what learning rate and in what precision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .rates import scheduled_rate


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
        return scheduled_rate(self.schedule, self.learning_rate, self.warm_up, progress)


class TrainPlan(Training):
    """All options of a training, also those that react to its losses; the defaults react to
    nothing.
    """

    react: Literal["plateau", "adaptive"] | None = Field(
        default=None, description="what the rate does when the loss stays, rises or falls"
    )
    react_window: int = Field(default=20, ge=2, description="losses averaged before they compare")
    patience: int | None = Field(
        default=None,
        ge=1,
        description="epochs without a new best after which it stops early",
    )
    stop_on: Literal["loss", "metric"] = Field(
        default="loss",
        description="the best is the lowest mean loss, or the best metric on the test data",
    )
    bad_steps: int | None = Field(
        default=None,
        ge=0,
        description="steps in a row that may be skipped as loss or gradient is not finite; 16 in "
        "fp16, else 0",
    )
    loss_scale: float = Field(
        default=2.0**16, gt=0, description="what fp16 multiplies the loss by at first"
    )
    formats: dict[str, Literal["fp32", "bf16", "fp16"]] = Field(
        default={}, description="layers that compute in another format than `precision`"
    )
    fp32_until: Annotated[float, Field(ge=0)] | Literal["settled"] = Field(
        default=0.0,
        description="fp32 first: below 1 a share of the steps, from 1 on steps, or until the loss "
        "has settled",
    )
    back_on_trouble: bool = Field(
        default=True, description="whether a loss that rises after the switch brings fp32 back"
    )
    weights: Literal["fp32", "bf16"] = Field(
        default="fp32", description="what weights are stored in while it trains; norms stay in fp32"
    )
    rounding: Literal["nearest", "stochastic", "kahan"] = Field(
        default="nearest", description="how an update is rounded to weights in bf16"
    )
    checkpointed: tuple[str, ...] = Field(
        default=(), description="layers whose activations are computed again in backward"
    )

    @classmethod
    def of(cls, plan: Training) -> TrainPlan:
        """The plan itself, or one with these options and no reactions."""
        return (
            plan
            if isinstance(plan, TrainPlan)
            else cls(**{name: getattr(plan, name) for name in Training.model_fields})
        )

    @property
    def lower(self) -> str:
        """The format that it computes in once it has left fp32."""
        return "bf16" if self.weights == "bf16" else self.precision

    @property
    def uses_fp16(self) -> bool:
        """Whether something computes in fp16, so that the loss is scaled."""
        return self.lower == "fp16" or "fp16" in self.formats.values()

    @property
    def allowed_bad_steps(self) -> int:
        """The bad steps in a row that are skipped."""
        return self.bad_steps if self.bad_steps is not None else 16 if self.uses_fp16 else 0
