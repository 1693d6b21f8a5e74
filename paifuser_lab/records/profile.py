"""A profile: the time, memory and bytes of each layer of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .hardware import Ceiling
from .layer_profile import Bound, OperatorProfile
from .profile_html import profile_brief, profile_html
from .profile_text import profile_table, profile_text
from .profile_tree import ProfileTree
from .record import Record
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas


class Point(Record):
    """A layer on a roofline plot."""

    layer: str
    kind: str
    intensity: float
    gflops: float
    ms: float
    bound: Bound | None = None


class Roofline(Record):
    """Layers by FLOPs per byte and FLOP/s, under the machine's ceilings."""

    workload: AboutWorkload
    machine: str
    ceiling: Ceiling
    points: tuple[Point, ...]

    def __repr__(self) -> str:
        return f"Roofline({self.workload}: {len(self.points)} layers)"


class Profile(ProfileTree):
    """A model's layers in the order of their first call; the model itself ('') is first."""

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per layer, as plain numbers."""
        import pandas

        skipped = {"operators", "kernels", "alternatives"}
        derived = ("depth", "intensity", "gflops", "gbs", "roof_share")
        rows = [
            row.model_dump(exclude=skipped) | {name: getattr(row, name) for name in derived}
            for row in self.layers
        ]
        return pandas.DataFrame(rows).set_index("layer")

    @property
    def operators(self) -> pandas.DataFrame:
        """A row per operator that a layer ran itself, including containers' operators between their
        layers.
        """
        import pandas

        rows = [
            {"layer": row.layer, **operator.model_dump()}
            for row in self.layers
            for operator in row.operators
        ]
        return pandas.DataFrame(rows, columns=["layer", *OperatorProfile.model_fields]).set_index(
            ["layer", "name"]
        )

    @property
    def roofline(self) -> Roofline:
        """The roofline plot's data: each layer under this machine's ceilings."""
        points = tuple(
            Point(
                layer=row.layer,
                kind=row.kind,
                intensity=row.intensity,
                gflops=row.gflops,
                ms=row.self_ms,
                bound=row.verdict,
            )
            for row in self.layers
            if row.intensity and row.gflops
        )
        return Roofline(
            workload=self.workload, machine=self.machine, ceiling=self.ceiling, points=points
        )

    def table(self, depth: int | None = None) -> list[dict[str, str]]:
        """The tree as text, down to a depth."""
        return profile_table(self, depth)

    def __str__(self) -> str:
        return profile_text(self)

    def __repr__(self) -> str:
        return f"Profile({self.workload}: {len(self.layers)} layers)"

    def _repr_html_(self) -> str:
        return profile_html(self)

    def brief_html(self) -> str:
        """The tree, or of a large model its costliest layers: to be sent along with a widget."""
        return profile_brief(self)
