"""The coverage of pruning over a zoo of small architectures: exact, refused or wrong, the share
removed, and the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paifuser_lab.errors import MeasureError, PaifuserError
from paifuser_lab.machine import machine_label, threads
from paifuser_lab.progress import progress
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import Record
from paifuser_lab.variant import apply
from paifuser_lab.workload import Workload
from tests.support.prune_zoo import Architecture, architectures

from .prune_peer import PEERS, peer_rows, torch_pruning
from .prune_rows import PruneRow, counts, row_of

DEPTHS = (100, 300, 1000)


class PruneBench(Record):
    """The result of `python -m benchmarks prune`."""

    machine: str
    ratio: float
    rows: tuple[PruneRow, ...]
    layers_to_seconds: dict[int, float]
    peer: str = ""
    peer_rows: tuple[PruneRow, ...] = ()

    @property
    def title(self) -> str:
        """The title of the table."""
        return (
            f"{self.ratio:.0%} of the channels to be removed, against the same model with zeros, "
            f"on {self.machine}"
        )

    @property
    def summary(self) -> str:
        """The number of each verdict, and the time by depth."""
        outcomes = counts(self.rows, ("exact", "refused", "wrong"))
        slowest = max((row.seconds for row in self.rows), default=0.0)
        grown = ", ".join(
            f"{layers:,} layers {seconds:.1f} s"
            for layers, seconds in self.layers_to_seconds.items()
        )
        ours = f"{outcomes} of {len(self.rows)}; the slowest took {slowest:.1f} s; {grown}"
        every = counts(self.peer_rows, ("exact", "refused", "wrong", "failed", "timed out"))
        return f"{ours}\n{self.peer}: {every} of {len(self.peer_rows)}" if self.peer else ours

    def table(self) -> list[dict[str, str]]:
        """A row for each architecture, with the peer's result."""
        beside = {row.name: row for row in self.peer_rows}
        return [
            {
                "model": row.name,
                "verdict": row.verdict,
                "channels removed": f"{row.removed_channels:.0%}",
                "weights removed": f"{row.removed_weights:.0%}",
                "error": f"{row.error:.0e}",
                "seconds": f"{row.seconds:.2f}",
                **(_beside(self.peer, beside[row.name]) if row.name in beside else {}),
                "note": row.note,
            }
            for row in self.rows
        ] or [{"model": "nothing was measured"}]


def _beside(peer: str, row: PruneRow) -> dict[str, str]:
    removed = f"{row.removed_weights:.0%}" if row.verdict in ("exact", "wrong") else "–"
    return {
        peer: row.verdict,
        "its weights removed": removed,
        "its seconds": f"{row.seconds:.2f}",
        "its note": row.note,
    }


def bench(
    names: Sequence[str] = (),
    *,
    ratio: float = 0.5,
    depths: Sequence[int] = DEPTHS,
    peer: str | None = None,
) -> PruneBench:
    """Prune every architecture, or those whose names contain one of these words, and networks of
    growing depth.
    """
    if peer not in (None, *PEERS):
        raise MeasureError(f"'{peer}' is not a peer in pruning; there is {', '.join(PEERS)}.")
    if peer is not None:
        torch_pruning()
    chosen = [
        architecture
        for architecture in architectures()
        if not names or any(word.lower() in architecture.name.lower() for word in names)
    ]
    rows: list[PruneRow] = []
    # so small that a second thread would only be waited for
    with threads(1), progress("architectures", len(chosen)) as shown:
        for architecture in chosen:
            rows.append(_row(architecture, ratio))
            shown.advance(doing=architecture.name)
        seconds = {layers: _seconds_of(_deep(layers), ratio) for layers in depths}
        beside = _peer_rows(chosen, ratio) if peer else ()
    return PruneBench(
        machine=machine_label(),
        ratio=ratio,
        rows=tuple(rows),
        layers_to_seconds=seconds,
        peer=peer or "",
        peer_rows=beside,
    )


def _peer_rows(chosen: Sequence[Architecture], ratio: float) -> tuple[PruneRow, ...]:
    rows = []
    with progress("the peer's architectures", len(chosen)) as shown:
        for row in peer_rows(chosen, ratio):
            rows.append(row)
            shown.advance(doing=row.name)
    return tuple(rows)


def _row(architecture: Architecture, ratio: float) -> PruneRow:
    work = architecture.workload()
    start = time.perf_counter()
    try:
        variant = apply(work, _recipe(ratio))
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


def _recipe(ratio: float) -> Recipe:
    return Recipe([{"prune": {"ratio": ratio}}])


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


def _deep(layers: int) -> Workload:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Workload(_Deep(layers).eval(), torch.randn(2, 8), name=f"{layers} layers")


def _seconds_of(work: Workload, ratio: float) -> float:
    start = time.perf_counter()
    apply(work, _recipe(ratio))
    return time.perf_counter() - start
