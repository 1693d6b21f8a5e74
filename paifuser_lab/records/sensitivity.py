"""How much each layer matters: what each number format of it is predicted to cost, and what it was measured to cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from .record import Record

if TYPE_CHECKING:
    import pandas

Unit = Literal["loss", "output error"]


class Estimate(Record):
    """A number, and its standard error where it came from samples."""

    value: float
    error: float | None = None


class Curvature(Record):
    """The loss's second derivatives in one layer's weights."""

    trace: Estimate | None = None
    top_eigenvalues: tuple[float, ...] = ()
    density: tuple[tuple[float, float], ...] = ()  # eigenvalue, share


class LayerSensitivity(Record):
    """One layer: for each format what each method says of it. `scores["int8"]["quadratic"]` is an Estimate."""

    layer: str
    kind: str
    parameters: int
    scores: dict[str, dict[str, Estimate]] = Field(default={}, description="format → method → estimate")
    curvature: Curvature | None = None
    note: str | None = None  # why a layer has no scores


class Method(Record):
    """How one way of judging did: what it took, and how far its order agrees with what was measured."""

    name: str
    seconds: float
    samples: int  # batches or probes that were used
    agreement: dict[str, float] = Field(default={}, description="format → rank correlation with the ablation over the layers")


class Sensitivity(Record):
    """A row a layer, a column a format. `unit` says what the scores are: the rise of the loss, or the output's relative error."""

    workload: str
    machine: str
    unit: Unit
    formats: tuple[str, ...]
    method: str = Field(description="the method that `predicted` reads")
    examples: int
    rows: tuple[LayerSensitivity, ...]
    methods: tuple[Method, ...] = ()
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False

    def __getitem__(self, layer: str) -> LayerSensitivity:
        for row in self.rows:
            if row.layer == layer:
                return row
        raise KeyError(f"no layer '{layer}' was looked at; there are {', '.join(row.layer for row in self.rows[:8])} …")

    def predicted(self, layer: str, name: str) -> Estimate | None:
        """What a layer in a format is predicted to cost."""
        return self[layer].scores.get(name, {}).get(self.method)

    def measured(self, layer: str, name: str) -> Estimate | None:
        """What a layer in a format was measured to cost; None where that was not asked for."""
        return self[layer].scores.get(name, {}).get("ablation")

    @property
    def frame(self) -> pandas.DataFrame:
        """A row a layer, a column a format."""
        import pandas

        rows = []
        for row in self.rows:
            found = {name: self.predicted(row.layer, name) for name in self.formats}
            rows.append(
                {"layer": row.layer, "kind": row.kind, "parameters": row.parameters}
                | {name: None if one is None else one.value for name, one in found.items()}
            )
        return pandas.DataFrame(rows).set_index("layer")
