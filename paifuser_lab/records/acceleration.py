"""What `lab.enable()` has done to a training loop: a row a switch, and why."""

from __future__ import annotations

from typing import ClassVar, Literal

from .quality import readable_interval
from .record import Record, TableRecord, row_of
from .table import Columns
from .text import counted, or_dash, readable_bytes, readable_share, three_figures

SwitchState = Literal["waiting", "judging", "on", "taken back", "not offered"]


class SwitchStatus(Record):
    """One switch: its state and, once it was judged, steps a second without it and with it.

    `ratio` is how many times faster a step is with it, over pairs of blocks of steps, with its 95%
    interval; the bytes are the most that was held during such a block.
    """

    name: str
    state: SwitchState
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    without_steps_per_s: float | None = None
    with_steps_per_s: float | None = None
    without_bytes: int | None = None
    with_bytes: int | None = None
    why: str = ""


class AccelerationStatus(TableRecord):
    """The switches of an accelerated training loop, as they are now.

    `judging_share` is the time that judging took beyond that of the same steps without any switch,
    as a share of the first 200 steps, or of all steps past those.
    """

    columns: ClassVar[Columns] = {
        "switch": "name",
        "state": "state",
        "steps/s": lambda row: _pair(
            or_dash(row.without_steps_per_s), or_dash(row.with_steps_per_s)
        ),
        "×": lambda row: _ratio(row),
        "peak": lambda row: _pair(
            readable_bytes(row.without_bytes), readable_bytes(row.with_bytes)
        ),
        "why": "why",
    }
    text_columns = ("switch", "state", "why")

    is_enabled: bool
    model: str = ""
    optimizer: str = ""
    device: str = "cpu"
    steps: int = 0
    judged_steps: int = 0
    judging_share: float | None = None
    clock: Literal["wall", "cpu"] = "wall"
    rows: tuple[SwitchStatus, ...] = ()
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> SwitchStatus:
        return row_of(self.rows, "name", name, "switch")

    @property
    def on(self) -> tuple[str, ...]:
        """The names of the switches that are in force."""
        return tuple(row.name for row in self.rows if row.state == "on")

    @property
    def is_judging(self) -> bool:
        """Whether a switch is still being judged or waits for it; compiling may wait for long."""
        return any(row.state in ("waiting", "judging") for row in self.rows)

    @property
    def title(self) -> str:
        if not self.is_enabled and not self.steps:
            return "acceleration is off"
        if not self.steps:
            return f"no training step seen yet on {self.device}"
        model = self.model or ("tensors of no module" if self.optimizer else "a loop begun anew")
        loop = f"{model} with {self.optimizer}" if self.optimizer else model
        on, verb = ", ".join(self.on) or "nothing", "on" if self.is_enabled else "off; was on"
        return f"{loop} on {self.device} · {counted(self.steps, 'step')} · {verb}: {on}"

    @property
    def captions(self) -> tuple[str, ...]:
        if not self.judged_steps:
            return (self.title, *self.notes)
        clock = "CPU time of the loop's thread" if self.clock == "cpu" else "wall time"
        share = readable_share(self.judging_share)
        cost = "" if self.judging_share is None else f"; judging cost {share}"
        timed = f"{counted(self.judged_steps, 'step')} judged in {clock}{cost}."
        return (self.title, timed, *self.notes)


def _ratio(row: SwitchStatus) -> str:
    if row.ratio is None or row.interval is None:
        return "–"
    return f"{row.ratio:.2f} ({readable_interval(row.interval)})"


def _pair(before: str, after: str) -> str:
    return "–" if before == after == "–" else f"{before} → {after}"


class FasterFunctionReport(TableRecord):
    """A function against its faster form on the same arguments: kernels, error, time in turn."""

    text_columns = ("form",)

    name: str
    backend: str
    kernels_before: int
    kernels_after: int
    relative_error: float
    largest_error: float
    before_ms: float
    after_ms: float
    ratio: float
    interval: tuple[float, float]
    threads: int = 1

    @property
    def title(self) -> str:
        return (
            f"{self.name} by {self.backend} · {self.kernels_before} → "
            f"{counted(self.kernels_after, 'kernel')} · {self.ratio:.2f} × "
            f"({readable_interval(self.interval)}) · relative error {self.relative_error:.1e}"
        )

    @property
    def is_slower(self) -> bool:
        """Whether the faster form is slower for these arguments by more than the interval."""
        return self.interval[1] < 1

    @property
    def captions(self) -> tuple[str, ...]:
        slower = f"{self.backend} is slower for inputs of these shapes"
        after = f"which {self.name} computes as written from now on."
        return (self.title, *((f"{slower}, {after}",) if self.is_slower else ()))

    def table(self) -> list[dict[str, str]]:
        forms = (
            ("as written", self.kernels_before, self.before_ms),
            (self.backend, self.kernels_after, self.after_ms),
        )
        return [
            {"form": form, "kernels": str(kernels), "ms": three_figures(ms)}
            for form, kernels, ms in forms
        ]
