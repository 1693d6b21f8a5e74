"""The coverage of pruning over a zoo of small architectures: exact, refused or wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import torch
import typer
from torch import Tensor, nn

from paifuser_lab.bench.runner import BenchRecord, Columns, Words
from paifuser_lab.errors import MeasureError, PaifuserError
from paifuser_lab.machine import threads
from paifuser_lab.progress import Progress, progress
from paifuser_lab.records import Record
from paifuser_lab.records.table import table_of
from paifuser_lab.variant import apply
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload
from tests.support.masking import gap, masked
from tests.support.prune_zoo import Architecture, architectures

RATIO = 0.5  # of the channels to be removed
DEPTHS = (100, 300, 1000)
EXACT = 1e-9  # the outputs are compared in float64
RECIPE = Recipe([{"prune": {"ratio": RATIO}}])

Verdict = Literal["exact", "refused", "wrong", "failed", "timed out"]


class PruneRow(Record):
    """One architecture: the share removed, and the error against the model with zeroed channels."""

    name: str
    verdict: Verdict
    removed_channels: float = 0.0
    removed_weights: float = 0.0
    error: float = 0.0
    seconds: float
    note: str = ""


class PruneBench(BenchRecord):
    """The result of `python -m benchmarks prune`."""

    caption = (
        "{0.ratio:.0%} of the channels to be removed, against the same model with zeros, on "
        "{0.machine}"
    )
    ratio: float
    rows: tuple[PruneRow, ...]
    layers_to_seconds: dict[int, float]
    peer: str = ""
    peer_rows: tuple[PruneRow, ...] = ()
    columns: ClassVar[Columns] = {
        "model": "name",
        "verdict": "verdict",
        "channels removed": lambda row: f"{row.removed_channels:.0%}",
        "weights removed": lambda row: f"{row.removed_weights:.0%}",
        "error": lambda row: f"{row.error:.0e}",
        "seconds": lambda row: f"{row.seconds:.2f}",
        "note": "note",
    }

    @property
    def summary(self) -> str:
        """The number of each verdict, and the time by depth."""
        slowest = max((row.seconds for row in self.rows), default=0.0)
        grown = ", ".join(
            f"{layers:,} layers {seconds:.1f} s"
            for layers, seconds in self.layers_to_seconds.items()
        )
        ours = f"{self.verdicts}; the slowest took {slowest:.1f} s; {grown}"
        return f"{ours}\n{self.peer}: {self.peer_verdicts}" if self.peer else ours

    @property
    def verdicts(self) -> str:
        """How many were exact, refused, or wrong."""
        return _counts(self.rows, ("exact", "refused", "wrong"))

    @property
    def peer_verdicts(self) -> str:
        """The same of the peer's, which may also fail or run out of time."""
        return _counts(self.peer_rows, ("exact", "wrong", "failed", "refused", "timed out"))

    def table(self) -> list[dict[str, str]]:
        """A row for each architecture, and for the peer's."""
        theirs = table_of(self.columns, self.peer_rows)
        return super().table() + [row | {"model": f"{row['model']}, {self.peer}"} for row in theirs]


def bench(
    names: Words = None,
    *,
    peer: Annotated[
        str | None,
        typer.Option(help="torch-pruning: also prune each with that package, to compare."),
    ] = None,
    depths: Sequence[int] = DEPTHS,
) -> PruneBench:
    """Prune many small architectures and compare each with itself with zeros: exact, refused or
    wrong.
    """
    from .prune_peer import PEERS, peer_row, torch_pruning

    if peer not in (None, *PEERS):
        raise MeasureError(f"'{peer}' is not a peer in pruning; there is {', '.join(PEERS)}.")
    if peer is not None:
        torch_pruning()
    chosen = [
        architecture
        for architecture in architectures()
        if not names or any(word.lower() in architecture.name.lower() for word in names)
    ]
    beside: list[PruneRow] = []
    # so small that a second thread would only be waited for
    with threads(1), progress("architectures", len(chosen) * (2 if peer else 1)) as shown:
        rows = [_row(architecture) for architecture in _each(chosen, shown)]
        seconds = {layers: _seconds_of(layers) for layers in depths}
        if peer:
            beside = [peer_row(one.name, RATIO) for one in _each(chosen, shown)]
    return PruneBench(
        ratio=RATIO,
        rows=tuple(rows),
        layers_to_seconds=seconds,
        peer=peer or "",
        peer_rows=tuple(beside),
    )


def _each(chosen: Iterable[Architecture], shown: Progress) -> Iterator[Architecture]:
    """Each architecture; what is done with one is shown before the next."""
    for architecture in chosen:
        yield architecture
        shown.advance(doing=architecture.name)


def _counts(rows: Sequence[PruneRow], verdicts: Sequence[Verdict]) -> str:
    return ", ".join(
        f"{verdict} on {sum(row.verdict == verdict for row in rows)}" for verdict in verdicts
    )


def _row(architecture: Architecture) -> PruneRow:
    work = architecture.workload()
    start = time.perf_counter()
    try:
        variant = apply(work, RECIPE)
    except PaifuserError as problem:
        return PruneRow(
            name=work.name,
            verdict="refused",
            seconds=time.perf_counter() - start,
            note=str(problem),
        )
    return row_of(
        work,
        variant.module,
        time.perf_counter() - start,
        next((note for note in variant.notes[1:]), ""),
    )


def row_of(work: Workload, model: nn.Module, seconds: float, note: str = "") -> PruneRow:
    """The row of a pruned model; `work` has the original."""
    try:
        error = gap(masked(work.model, model), model, work.inputs)
    except MeasureError as problem:
        return PruneRow(
            name=work.name, verdict="wrong", error=float("inf"), seconds=seconds, note=str(problem)
        )
    return PruneRow(
        name=work.name,
        verdict="exact" if error < EXACT else "wrong",
        removed_channels=1 - _channels(model) / _channels(work.model),
        removed_weights=1 - _weights(model) / _weights(work.model),
        error=error,
        seconds=seconds,
        note=note,
    )


def _channels(model: nn.Module) -> int:
    """The number of rows of all weights with two or more dimensions."""
    return sum(weight.shape[0] for weight in model.parameters() if weight.ndim > 1)


def _weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


class _Deep(nn.Module):
    """Many small layers, every second of them added to what goes through."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
        self.pairs = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16))
            for _ in range(layers // 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for pair in self.pairs:
            x = x + pair(x)
        output: Tensor = self.head(x)
        return output


def _seconds_of(layers: int) -> float:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        work = Workload(_Deep(layers).eval(), torch.randn(2, 8), name=f"{layers} layers")
    start = time.perf_counter()
    apply(work, RECIPE)
    return time.perf_counter() - start
