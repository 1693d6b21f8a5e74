"""How much of a zoo of small architectures pruning covers: exact, refused or wrong, how far it went, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import MeasureError, PaifuserError
from ..machine import hardware, threads
from ..progress import progress
from ..recipe import Recipe
from ..records import Record
from ..variant import apply
from ..workload import Workload
from .masking import gap, masked
from .prune_zoo import Architecture, architectures

EXACT = 1e-9  # the answers are compared in float64
DEPTHS = (100, 300, 1000)


class PruneRow(Record):
    """One architecture: what was reached, and how far the answer is from that with zeros."""

    name: str
    verdict: Literal["exact", "refused", "wrong"]
    removed_channels: float = 0.0
    removed_weights: float = 0.0
    error: float = 0.0
    seconds: float
    note: str = ""


class PruneBench(Record):
    """What `paifuser-lab bench prune` measured."""

    machine: str
    ratio: float
    rows: tuple[PruneRow, ...]
    layers_to_seconds: dict[int, float]

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"{self.ratio:.0%} of the channels asked away, against the same model with zeros, on {self.machine}"

    @property
    def summary(self) -> str:
        """How many of each, and how the time grows."""
        counts = {verdict: sum(row.verdict == verdict for row in self.rows) for verdict in ("exact", "refused", "wrong")}
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        slowest = max((row.seconds for row in self.rows), default=0.0)
        grown = ", ".join(f"{layers:,} layers {seconds:.1f} s" for layers, seconds in self.layers_to_seconds.items())
        return f"{told} of {len(self.rows)}; the slowest took {slowest:.1f} s; {grown}"

    def table(self) -> list[dict[str, str]]:
        """A row an architecture."""
        return [
            {
                "model": row.name,
                "verdict": row.verdict,
                "channels removed": f"{row.removed_channels:.0%}",
                "weights removed": f"{row.removed_weights:.0%}",
                "error": f"{row.error:.0e}",
                "seconds": f"{row.seconds:.2f}",
                "note": row.note,
            }
            for row in self.rows
        ] or [{"model": "nothing was measured"}]


def bench(names: Sequence[str] = (), *, ratio: float = 0.5, depths: Sequence[int] = DEPTHS) -> PruneBench:
    """Prune every architecture, or those whose names have one of these words in them, and networks of growing depth."""
    chosen = [one for one in architectures() if not names or any(word.lower() in one.name.lower() for word in names)]
    rows: list[PruneRow] = []
    with threads(1), progress("architectures", len(chosen)) as shown:  # so small that a second one would only be waited for
        for one in chosen:
            rows.append(_row(one, ratio))
            shown.advance(doing=one.name)
        seconds = {layers: _seconds_of(_deep(layers), ratio) for layers in depths}
    return PruneBench(machine=hardware().name, ratio=ratio, rows=tuple(rows), layers_to_seconds=seconds)


def _row(architecture: Architecture, ratio: float) -> PruneRow:
    work = architecture.workload()
    began = time.perf_counter()
    try:
        variant = apply(work, _recipe(ratio))
    except PaifuserError as problem:
        return PruneRow(name=work.name, verdict="refused", seconds=time.perf_counter() - began, note=str(problem))
    seconds = time.perf_counter() - began
    try:
        error = gap(masked(work.model, variant.module), variant.module, work.inputs)
    except MeasureError as problem:
        return PruneRow(name=work.name, verdict="wrong", error=float("inf"), seconds=seconds, note=str(problem))
    return PruneRow(
        name=work.name,
        verdict="exact" if error < EXACT else "wrong",
        removed_channels=1 - _channels(variant.module) / _channels(work.model),
        removed_weights=1 - _weights(variant.module) / _weights(work.model),
        error=error,
        seconds=seconds,
        note=next((note for note in variant.notes[1:]), ""),
    )


def _recipe(ratio: float) -> Recipe:
    return Recipe([{"prune": {"ratio": ratio}}])


def _channels(model: nn.Module) -> int:
    """Rows of every matrix and kernel."""
    return sum(weight.shape[0] for weight in model.parameters() if weight.ndim > 1)


def _weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


class _Deep(nn.Module):
    """Many small layers, every second of them added to what goes through."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
        self.pairs = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16)) for _ in range(layers // 2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for pair in self.pairs:
            x = x + pair(x)
        answer: Tensor = self.head(x)
        return answer


def _deep(layers: int) -> Workload:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Workload(_Deep(layers).eval(), torch.randn(2, 8), name=f"{layers} layers")


def _seconds_of(work: Workload, ratio: float) -> float:
    began = time.perf_counter()
    apply(work, _recipe(ratio))
    return time.perf_counter() - began
