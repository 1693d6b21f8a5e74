"""A format for each layer: what was chosen, the frontier it was chosen from, and what its
points really did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from .record import Record
from .sensitivity import Unit
from .text import counted, html_table, readable_bytes, text_table
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

Axis = Literal["latency_ms", "size_bytes"]


class Achieved(Record):
    """What a point did when it was applied: timed in turn with the model as it is, judged on
    held-out data.
    """

    latency_ms: float
    baseline_ms: float
    size_bytes: int
    loss: float | None = Field(
        default=None, description="rise over the model as it is, in the allocation's unit"
    )
    loss_error: float | None = None
    metric: float | None = None


class Agreement(Record):
    """How far a prediction agrees with what was achieved: the middle ratio of the two, and whether
    their orders agree.
    """

    points: int
    ratio: float | None = Field(
        default=None, description="achieved over predicted; the median over the points"
    )
    rank: float | None = Field(
        default=None, description="Spearman's correlation; None where one of the two is constant"
    )


class AllocationPoint(Record):
    """One choice of formats, and what it is predicted to cost."""

    name: str
    formats: dict[str, str]  # layer → format
    around: str = Field(description="the format of everything between the layers")
    loss: float
    loss_error: float
    latency_ms: float
    size_bytes: int
    recipe_steps: tuple[dict[str, Any], ...]
    achieved: Achieved | None = None

    @property
    def words(self) -> str:
        """How many layers are in each format, as text."""
        counts: dict[str, int] = {}
        for name in self.formats.values():
            counts[name] = counts.get(name, 0) + 1
        return ", ".join(
            f"{count} in {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1])
        )


class Allocation(Record):
    """The chosen point, the frontier by latency or size, and the uniform choices beside it."""

    workload: AboutWorkload
    machine: str
    threads: int
    unit: Unit
    axis: Axis
    limits: dict[str, float]
    baseline_ms: float
    baseline_bytes: int
    points: tuple[AllocationPoint, ...] = Field(
        min_length=1, description="the frontier, the quickest or smallest first"
    )
    chosen: int = Field(ge=0, description="its place in `points`")
    uniform: tuple[AllocationPoint, ...] = ()
    reason: str
    latency_agreement: Agreement | None = None
    loss_agreement: Agreement | None = None
    notes: tuple[str, ...] = ()

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
        """The frontier and the uniform choices."""
        return (*self.points, *self.uniform)

    @property
    def title(self) -> str:
        """What was allocated, and within what."""
        words = ", ".join(_limit(name, value) for name, value in self.limits.items())
        return f"{self.workload} on {self.machine} · {counted(self.threads, 'thread')} · {words}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why this point, how good the predictions were, and what there is to note."""
        agreements = (("latency", self.latency_agreement), ("loss", self.loss_agreement))
        return (
            self.reason,
            *(_agreement_text(what, one) for what, one in agreements if one is not None),
            *self.notes,
        )

    @property
    def frame(self) -> pandas.DataFrame:
        """A row a point, as plain numbers."""
        import pandas

        rows = []
        for point in self.everything:
            row = point.model_dump(
                include={"name", "around", "loss", "loss_error", "latency_ms", "size_bytes"}
            )
            did = point.achieved.model_dump() if point.achieved else {}
            rows.append(row | {f"achieved_{key}": value for key, value in did.items()})
        return pandas.DataFrame(rows).set_index("name")

    def table(self) -> list[dict[str, str]]:
        """The points as a person reads them; columns with nothing in them are left out."""
        rows = [_readable(point, is_chosen=point is self.best) for point in self.everything]
        return [{key: row[key] for key in row if any(other[key] for other in rows)} for row in rows]

    def __str__(self) -> str:
        return "\n".join([self.title, *text_table(self.table(), _WORDS), *self.remarks])

    def __repr__(self) -> str:
        return (
            f"Allocation({self.workload}: {self.best.words}; {counted(len(self.points), 'point')})"
        )

    def _repr_html_(self) -> str:
        return html_table((self.title, *self.remarks), self.table(), _WORDS)


_WORDS = ("point", "formats", "note")


def _limit(name: str, value: float) -> str:
    if name == "size_bytes":
        return f"at most {readable_bytes(round(value))}"
    return (
        f"at most {value:.3g} ms" if name == "latency_ms" else f"predicted loss at most {value:.3g}"
    )


def _agreement_text(what: str, one: Agreement) -> str:
    if one.rank is None:  # a single point, or all alike
        return (
            f"{what}: {counted(one.points, 'point')}, too few or too alike to say how good the "
            "prediction is"
        )
    ratio = "unknown" if one.ratio is None else f"{one.ratio:.2f}"
    return (
        f"{what}: achieved over predicted {ratio} in the middle, rank correlation {one.rank:.2f}, "
        f"over {counted(one.points, 'point')}"
    )


def _readable(point: AllocationPoint, *, is_chosen: bool) -> dict[str, str]:
    did = point.achieved
    return {
        "point": point.name,
        "latency ms": f"{point.latency_ms:.3g}",
        "achieved ms": "" if did is None else f"{did.latency_ms:.3g}",
        "speed-up": "" if did is None else f"{did.baseline_ms / did.latency_ms:.2f} ×",
        "size": readable_bytes(point.size_bytes),
        "loss": _with_error(point.loss, point.loss_error),
        "achieved loss": ""
        if did is None or did.loss is None
        else _with_error(did.loss, did.loss_error),
        "metric": "" if did is None or did.metric is None else f"{did.metric:.4g}",
        "formats": point.words,
        "note": "chosen" if is_chosen else "",
    }


def _with_error(value: float, error: float | None) -> str:
    return f"{value:.2g} ± {error:.1g}" if error else f"{value:.2g}"
