"""A training's record as TensorBoard's logs. Built on torch.utils.tensorboard."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..errors import FileError, MissingExtraError
from ..records import GradientRange, TrainingRun
from ..records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH

SCALARS = {
    "loss": "losses",
    "learning rate": "rates",
    "loss scale": "scales",
    "gradient norm": "gradient_norms",
    "underflow share": "underflow_shares",
    "overflow share": "overflow_shares",
    "ms a step": "step_ms",
    "lower precision": "is_lower",
}
EDGES = [2.0 ** (LOWEST_EXPONENT + RANGE_WIDTH * index) for index in range(1, RANGE_BINS + 1)]


class TensorBoardLog:
    """Writes what is new in a record each time it is called with one."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                "tensorboard", extra="tensorboard", needed_for="A log for TensorBoard"
            ) from error
        if Path(folder).is_file():
            raise FileError(f"{folder} is a file; give a folder for TensorBoard's logs.")
        self._writer: Any = SummaryWriter(str(folder))
        self._steps = self._ranges = self._events = 0

    def __call__(self, record: TrainingRun) -> None:
        """Write the steps since the last call."""
        for step in range(self._steps, len(record.losses)):
            for name, column in SCALARS.items():
                value = float(getattr(record, column)[step])
                if math.isfinite(value):
                    self._writer.add_scalar(name, value, step)
        for row in record.ranges[self._ranges :]:
            self._write_range(record, row)
        for event in record.events[self._events :]:
            self._writer.add_text("what was switched", event.what, event.step)
        self._steps, self._ranges = len(record.losses), len(record.ranges)
        self._events = len(record.events)
        self._writer.flush()

    def _write_range(self, record: TrainingRun, row: GradientRange) -> None:
        """The gradient's sizes of each layer, as a histogram."""
        for layer, counts in zip(record.layers, row.counts, strict=True):
            used = [count for count in counts[1:] if count]
            if used:
                sizes = list(zip(EDGES, counts[1:], strict=True))
                self._writer.add_histogram_raw(
                    f"gradient sizes/{layer}",
                    min=0.0,
                    max=max(edge for edge, count in sizes if count),
                    num=sum(used),
                    sum=sum(edge * count for edge, count in sizes),
                    sum_squares=sum(edge * edge * count for edge, count in sizes),
                    bucket_limits=EDGES,
                    bucket_counts=list(counts[1:]),
                    global_step=row.step,
                )

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()
