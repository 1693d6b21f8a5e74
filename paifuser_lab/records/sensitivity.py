"""The sensitivity of each layer to each number format: predicted and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from .record import Record
from .table import TableRecord
from .text import counted, readable_count
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

Unit = Literal["loss", "output error"]


class Estimate(Record):
    """A number, with its standard error if it is estimated from samples."""

    value: float
    error: float | None = None
    samples: int | None = None


class Curvature(Record):
    """The Hessian of the loss in one layer's weights."""

    trace: Estimate | None = None
    top_eigenvalues: tuple[float, ...] = ()
    density: tuple[tuple[float, float], ...] = ()  # eigenvalue, share


class LayerSensitivity(Record):
    """One layer: the score of each method for each format. `scores["int8"]["quadratic"]` is an
    Estimate.
    """

    layer: str
    kind: str
    parameters: int
    scores: dict[str, dict[str, Estimate]] = Field(
        default={}, description="format → method → estimate"
    )
    curvature: Curvature | None = None
    note: str | None = None  # why a layer has no scores


class Method(Record):
    """One sensitivity method: its time, and the rank correlation of its scores with the
    ablation.
    """

    name: str
    seconds: float
    samples: int  # batches or probes that were used
    agreement: dict[str, float] = Field(
        default={}, description="format → rank correlation with the ablation over the layers"
    )


class Sensitivity(TableRecord):
    """A row per layer, a column per format. `unit` describes the scores: the rise of the loss, or
    the output's relative error.
    """

    text_columns = ("layer", "kind", "note")

    workload: AboutWorkload
    machine: str
    unit: Unit
    formats: tuple[str, ...]
    method: str = Field(description="the method that `predicted` reads")
    examples: int
    rows: tuple[LayerSensitivity, ...]
    methods: tuple[Method, ...] = ()
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False
    seed: int = 0  # of the order of the batches, and of the probes
    weights_hash: str | None = None

    def __getitem__(self, layer: str) -> LayerSensitivity:
        for row in self.rows:
            if row.layer == layer:
                return row
        raise KeyError(
            f"no layer '{layer}' was looked at; there are "
            f"{', '.join(row.layer for row in self.rows[:8])} …"
        )

    def predicted(self, layer: str, name: str) -> Estimate | None:
        """The predicted score of a layer in a format."""
        return self[layer].scores.get(name, {}).get(self.method)

    def measured(self, layer: str, name: str) -> Estimate | None:
        """The measured score of a layer in a format; None if it was not requested."""
        return self[layer].scores.get(name, {}).get("ablation")

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per layer, a column per format."""
        import pandas

        rows = []
        for row in self.rows:
            estimates = {name: self.predicted(row.layer, name) for name in self.formats}
            rows.append(
                {"layer": row.layer, "kind": row.kind, "parameters": row.parameters}
                | {name: score and score.value for name, score in estimates.items()}
            )
        return pandas.DataFrame(rows).set_index("layer")

    @property
    def title(self) -> str:
        """The workload, the machine, the method and the unit, in a line."""
        stopped = " · stopped early" if self.is_interrupted else ""
        unit = "rise of the loss" if self.unit == "loss" else "error of the output"
        what = "measured" if self.method == "ablation" else "predicted"
        return (
            f"{self.workload} on {self.machine} · {what} {unit} by {self.method} · "
            f"{counted(self.examples, 'example')}{stopped}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Each method's time and agreement with the ablation, and notes."""
        return (*map(_method_text, self.methods), *self.notes)

    def table(self) -> list[dict[str, str]]:
        """A row per layer, as text; predictions beside measurements, if there are any."""
        rows = [self._readable(row) for row in self.rows] or [{"layer": "nothing was judged"}]
        return [{key: row[key] for key in row if any(other[key] for other in rows)} for row in rows]

    def __repr__(self) -> str:
        layers, formats = counted(len(self.rows), "layer"), counted(len(self.formats), "format")
        return f"Sensitivity({self.workload}: {layers} × {formats} by {self.method})"

    def _readable(self, row: LayerSensitivity) -> dict[str, str]:
        texts = {"layer": row.layer, "kind": row.kind, "weights": readable_count(row.parameters)}
        for name in self.formats:
            texts[name] = _number(self.predicted(row.layer, name))
            if self.method != "ablation":
                texts[f"{name} measured" if self.unit == "loss" else f"{name} loss measured"] = (
                    _number(self.measured(row.layer, name))
                )
        return texts | {"note": row.note or ""}


def _number(estimate: Estimate | None) -> str:
    """An estimate with two digits and its standard error."""
    if estimate is None:
        return ""
    return (
        f"{estimate.value:.2g}"
        if estimate.error is None
        else f"{estimate.value:.2g} ± {estimate.error:.1g}"
    )


def _method_text(method: Method) -> str:
    agreement = ", ".join(f"{name} {value:.2f}" for name, value in method.agreement.items())
    agrees = f" · ranks agree with the ablation: {agreement}" if agreement else ""
    return f"{method.name}: {method.seconds:.1f} s, {counted(method.samples, 'sample')}{agrees}"
