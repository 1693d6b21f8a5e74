"""A format for each layer under a budget, the Pareto frontier, and the latencies behind it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field

from .record import AboutWorkload, Frame, Record, TableRecord, frame_of
from .sensitivity import Unit
from .text import counted, readable_bytes, readable_ms, without_empty


class LayerLatency(Record):
    """The latency of a layer alone, including conversions from and to its neighbours' format."""

    # its kind and options, those of the batch-norm that int8 folds into it, and its input shapes
    likeness: str
    format: str
    around: str  # the format of its input and output
    ms: float
    size_bytes: int


class ConversionLatency(Record):
    """Converting a layer's input to int8 and back; consecutive int8 layers need neither."""

    likeness: str
    to_int8_ms: float
    back_ms: float


class LatencyTable(Record):
    """Latencies on one machine with one number of threads; equal layers are measured once."""

    machine: str
    threads: int
    torch_version: str
    rows: tuple[LayerLatency, ...] = ()
    conversions: tuple[ConversionLatency, ...] = ()

    def find(self, likeness: str, name: str, around: str) -> LayerLatency | None:
        """The row of a layer, if it was measured."""
        key = likeness, name, around
        return next(
            (row for row in self.rows if (row.likeness, row.format, row.around) == key), None
        )

    def conversion(self, likeness: str) -> ConversionLatency | None:
        """The latency of converting a layer's input, if it was measured."""
        return next((row for row in self.conversions if row.likeness == likeness), None)

    def with_rows(
        self, rows: tuple[LayerLatency, ...], conversions: tuple[ConversionLatency, ...]
    ) -> LatencyTable:
        """The table with newer rows replacing older ones."""
        merged = {(row.likeness, row.format, row.around): row for row in (*self.rows, *rows)}
        converted = {row.likeness: row for row in (*self.conversions, *conversions)}
        return self.model_copy(
            update={"rows": tuple(merged.values()), "conversions": tuple(converted.values())}
        )


Axis = Literal["latency_ms", "size_bytes"]


class Achieved(Record):
    """A point timed in turn with the unchanged model, its loss taken on held-out data."""

    latency_ms: float
    baseline_ms: float
    size_bytes: int
    loss: float | None = None  # rise over the unchanged model, in the allocation's unit
    loss_error: float | None = None
    metric: float | None = None

    def with_baseline(self, latency_ms: float) -> Achieved:
        """The point with this latency of the unchanged model, its own by its speed-up."""
        own = latency_ms * self.latency_ms / self.baseline_ms
        return self.model_copy(update={"latency_ms": own, "baseline_ms": latency_ms})


class Agreement(Record):
    """How well predictions agree with measurements: the median ratio, and the rank correlation."""

    points: int
    ratio: float | None = None  # achieved over predicted; the median over the points
    rank: float | None = None  # Spearman's correlation; None if one of the two is constant


class AllocationPoint(Record):
    """One assignment of formats, with its predicted loss, latency and size."""

    name: str
    formats: dict[str, str]  # layer → format
    around: str  # the format of everything between the layers
    loss: float
    loss_error: float
    latency_ms: float
    size_bytes: int
    recipe_steps: tuple[dict[str, Any], ...]
    achieved: Achieved | None = None

    def with_baseline(self, latency_ms: float, scale: float) -> AllocationPoint:
        """The point with its predicted latency scaled to this one of the unchanged model."""
        achieved = self.achieved and self.achieved.with_baseline(latency_ms)
        return self.model_copy(update={"latency_ms": scale * self.latency_ms, "achieved": achieved})

    @property
    def words(self) -> str:
        """How many layers are in each format, as text."""
        counts = Counter(self.formats.values())
        return ", ".join(f"{count} in {name}" for name, count in counts.most_common())


class Allocation(TableRecord):
    """The chosen point, the frontier by latency or size, and one format for all layers."""

    text_columns = ("point", "formats", "note")

    workload: AboutWorkload
    machine: str
    threads: int
    unit: Unit
    axis: Axis
    limits: dict[str, float]
    baseline_ms: float
    baseline_bytes: int
    # the frontier, the quickest or smallest first
    points: tuple[AllocationPoint, ...] = Field(min_length=1)
    chosen: int = Field(ge=0)  # its index in `points`
    uniform: tuple[AllocationPoint, ...] = ()
    reason: str
    latency_agreement: Agreement | None = None
    loss_agreement: Agreement | None = None
    notes: tuple[str, ...] = ()

    def with_baseline(self, latency_ms: float) -> Allocation:
        """The plan scaled to this latency of the unchanged model; itself if it has that already."""
        known = [point.achieved.baseline_ms for point in self.everything if point.achieved]
        if {self.baseline_ms, *known} == {latency_ms}:
            return self
        scale = latency_ms / self.baseline_ms
        limits = dict(self.limits)
        if "latency_ms" in limits:
            limits["latency_ms"] *= scale
        points, uniform = (
            tuple(point.with_baseline(latency_ms, scale) for point in group)
            for group in (self.points, self.uniform)
        )
        update = {"limits": limits, "points": points, "uniform": uniform}
        return self.model_copy(update={"baseline_ms": latency_ms, **update})

    @property
    def best(self) -> AllocationPoint:
        """The chosen point."""
        return self.points[self.chosen]

    @property
    def formats(self) -> dict[str, str]:
        """The chosen format of each layer."""
        return self.best.formats

    @property
    def everything(self) -> tuple[AllocationPoint, ...]:
        """The points of the frontier, then the uniform ones."""
        return (*self.points, *self.uniform)

    @property
    def title(self) -> str:
        words = ", ".join(_limit(name, value) for name, value in self.limits.items())
        return f"{self.workload} on {self.machine} · {counted(self.threads, 'thread')} · {words}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """The reason of the choice, the quality of the predictions, and notes."""
        agreements = (("latency", self.latency_agreement), ("loss", self.loss_agreement))
        return (
            self.reason,
            *(_agreement_text(name, fit) for name, fit in agreements if fit is not None),
            *self.notes,
        )

    @property
    def frame(self) -> Frame:
        rows = []
        names = {"name", "around", "loss", "loss_error", "latency_ms", "size_bytes"}
        for point in self.everything:
            row = point.model_dump(include=names)
            achieved = point.achieved.model_dump() if point.achieved else {}
            rows.append(row | {f"achieved_{key}": value for key, value in achieved.items()})
        return frame_of(rows, "name")

    def table(self) -> list[dict[str, str]]:
        rows = [_readable(point, is_chosen=point is self.best) for point in self.everything]
        return without_empty(rows)


def _limit(name: str, value: float) -> str:
    if name == "size_bytes":
        return f"at most {readable_bytes(round(value))}"
    limit = f"at most {value:.3g}"
    return f"{limit} ms" if name == "latency_ms" else f"predicted loss {limit}"


def _agreement_text(name: str, fit: Agreement) -> str:
    points = counted(fit.points, "point")
    if fit.rank is None:  # a single point, or equal values
        return f"{name}: {points}, too few or too alike to say how good the prediction is"
    ratio = "unknown" if fit.ratio is None else f"{fit.ratio:.2f}"
    middle = f"achieved over predicted {ratio} in the middle"
    return f"{name}: {middle}, rank correlation {fit.rank:.2f}, over {points}"


def _readable(point: AllocationPoint, *, is_chosen: bool) -> dict[str, str]:
    row = {"point": point.name, "latency ms": readable_ms(point.latency_ms)}
    row |= dict.fromkeys(("achieved ms", "speed-up"), "")
    row |= {"size": readable_bytes(point.size_bytes)}
    row |= {"loss": _with_error(point.loss, point.loss_error), "achieved loss": "", "metric": ""}
    if (achieved := point.achieved) is not None:
        row["achieved ms"] = readable_ms(achieved.latency_ms)
        row["speed-up"] = f"{achieved.baseline_ms / achieved.latency_ms:.2f} ×"
        if achieved.loss is not None:
            row["achieved loss"] = _with_error(achieved.loss, achieved.loss_error)
        if achieved.metric is not None:
            row["metric"] = f"{achieved.metric:.4g}"
    return row | {"formats": point.words, "note": "chosen" if is_chosen else ""}


def _with_error(value: float, error: float | None) -> str:
    return f"{value:.2g} ± {error:.1g}" if error else f"{value:.2g}"
