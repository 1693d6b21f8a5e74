"""Keeps freed memory for the next request while the model runs: a memory pool."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator

from ..arguments import bytes_of
from ..errors import MeasureError, PoolError, StepError
from ..memory.pools import memory_pool
from ..records import readable_bytes
from .step import Draft, Step

NOT_HERE = "not in force here"
HOLDS = {
    "cpu": "on a CPU that spares page faults, where buffers of tens of megabytes come and go",
    "cuda": "what the model allocates comes from segments of its own",
}


class Pool(Step):
    """Let a memory pool be in force during each call; the values do not change.

    What a call has freed stays for the next one, until a large buffer is freed outside of a call or
    something trims. A comparison lets it be in force turn by turn, and times the same model without
    it beside.
    """

    kind: ClassVar[str] = "pool"
    is_single: ClassVar[bool] = True
    main_option: ClassVar[str] = "limit"
    tolerance: ClassVar[float | None] = 1e-6
    leaves_module: ClassVar[bool] = True
    limit: int | str | None = Field(
        default=None,
        description="what may be kept, as bytes or '2 GB'; on CUDA, what the pool may take",
    )

    @field_validator("limit", mode="before")
    @classmethod
    def _limit_is_a_size(cls, limit: Any) -> Any:
        try:
            if limit is not None:
                bytes_of(limit)
        except MeasureError as error:
            raise ValueError(str(error).rstrip(".")) from error
        return limit

    @property
    def label(self) -> str:
        if self.limit is None:
            return "memory pool"
        return f"memory pool of {readable_bytes(bytes_of(self.limit))}"

    def apply(self, draft: Draft) -> None:
        """Make the pool; the calls enter it."""
        try:
            draft.pool = memory_pool(self.limit, device=draft.work.device, name=draft.work.name)
        except PoolError as error:
            raise StepError(str(error)) from error
        kind = draft.work.device.type
        draft.notes.append(f"in force during each call: {HOLDS.get(kind, HOLDS['cpu'])}")

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Make the pool, where this machine can have one; the model computes the same without."""
        try:
            draft.pool = memory_pool(self.limit, device=draft.work.device, name=draft.work.name)
        except PoolError as error:
            draft.notes.append(f"{NOT_HERE}: {error}")
