"""Whether verdicts hold on a busy machine: comparisons with other processes beside them, against
the same comparisons on a quiet one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import numpy
import typer

from ..progress import progress
from ..records import Comparison, Quality, Record
from ..records.quality import word_for
from ..records.text import readable_share
from ..variant import Variant, apply
from ..variant.comparison import compare
from ..variant.load import load
from ..variant.recipe import Recipe
from ..workload import Workload
from .runner import BenchRecord, Names, measured_rows

MODELS = ("resnet18", "mobilenetv2", "vit-s")
RECIPES = (["fold"], ["layout"], [{"backend": "onnxruntime"}])
QUIET_TRIES, BUSY_TRIES = 5, 17  # of each model: 51 with three models beside other processes
BUSY_PROCESSES = 2
ROUNDS, SECONDS = 30, 10.0  # as a workbench compares
SETTLE_S = 1.0
LARGE = 1.5  # times as fast, or as slow, on a quiet machine
BURN = "while True: sum(range(10000))"


class TrustRow(Record):
    """One verdict of one comparison: what was said, and what the interval alone would have said."""

    model: str
    recipe: str
    processes: int
    speedup: float
    interval: tuple[float, float]
    word: str
    word_by_interval: str
    quality: Quality
    contradicts: bool = False
    contradicts_by_interval: bool = False


class TrustBench(BenchRecord):
    """The result of `paifuser-lab bench trust`."""

    caption = (
        f"verdicts on {{0.machine}}, quiet and beside {BUSY_PROCESSES} busy processes; a verdict "
        f"is wrong if most quiet comparisons say otherwise; an effect is large from {LARGE} × on"
    )
    rows: tuple[TrustRow, ...]

    def of(self, processes: int) -> tuple[TrustRow, ...]:
        """The verdicts taken beside so many busy processes."""
        return tuple(row for row in self.rows if row.processes == processes)

    def table(self) -> list[dict[str, str]]:
        """A row for the quiet machine and one for the busy one."""
        quiet = self.of(0)
        large = {effect for effect in map(_effect, self.rows) if _is_large(quiet, effect)}
        counts = [count for count in (0, BUSY_PROCESSES) if self.of(count)]
        return [_summary(self.of(count), count, large) for count in counts]


def bench(
    names: Names = None,
    *,
    tries: Annotated[
        int, typer.Option(min=1, help="Comparisons of each model beside busy processes.")
    ] = BUSY_TRIES,
) -> TrustBench:
    """Compare verdicts of a quiet machine with those beside two busy processes."""
    return TrustBench(**measured_rows(names or MODELS, lambda name: _rows(load(name), tries)))


def _rows(work: Workload, tries: int) -> list[TrustRow]:
    variants = [apply(work, Recipe(steps)) for steps in RECIPES]
    rows: list[TrustRow] = []
    with progress(work.name, QUIET_TRIES + tries) as shown:
        for _ in range(QUIET_TRIES):
            rows += _verdicts(work, variants, 0)
            shown.advance(doing="quiet")
        usual = {variant.recipe.label: _usual(rows, variant.recipe.label) for variant in variants}
        with _busy(BUSY_PROCESSES):
            for _ in range(tries):
                rows += _verdicts(work, variants, BUSY_PROCESSES)
                shown.advance(doing="beside busy processes")
    return [
        row.model_copy(
            update={
                "contradicts": _contradicts(row.word, usual[row.recipe]),
                "contradicts_by_interval": _contradicts(row.word_by_interval, usual[row.recipe]),
            }
        )
        for row in rows
    ]


def _verdicts(work: Workload, variants: list[Variant], processes: int) -> Iterator[TrustRow]:
    compared: Comparison = compare(work, *variants, rounds=ROUNDS, seconds=SECONDS, metric=False)
    for row in compared.rows:
        if not row.steps or row.speedup is None or row.speedup_interval is None:
            continue
        yield TrustRow(
            model=work.name,
            recipe=row.name,
            processes=processes,
            speedup=row.speedup,
            interval=row.speedup_interval,
            word=compared.verdict(row).word,
            word_by_interval=word_for(row.speedup_interval, None),
            quality=compared.quality or Quality(),
        )


def _usual(rows: list[TrustRow], recipe: str) -> str:
    """What most quiet comparisons say by their interval."""
    words = [row.word_by_interval for row in rows if row.recipe == recipe]
    return max(sorted(set(words)), key=words.count)


def _effect(row: TrustRow) -> tuple[str, str]:
    return row.model, row.recipe


def _is_large(quiet: tuple[TrustRow, ...], effect: tuple[str, str]) -> bool:
    """Whether a recipe's effect on a model is a large one by the quiet comparisons."""
    ratios = [row.speedup for row in quiet if _effect(row) == effect]
    ratio = float(numpy.median(ratios)) if ratios else 1.0
    return max(ratio, 1 / ratio) >= LARGE


def _contradicts(word: str, usual: str) -> bool:
    """Whether a verdict is another one than the usual; what is not told contradicts nothing."""
    return word not in ("", "not told", usual)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Other processes that compute without end, inside the block."""
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def _summary(
    rows: tuple[TrustRow, ...], processes: int, large_effects: set[tuple[str, str]]
) -> dict[str, str]:
    told = [row for row in rows if row.word not in ("", "not told")]
    large = [row for row in rows if _effect(row) in large_effects]
    wrong = sum(row.contradicts for row in rows)
    qualities = [row.quality for row in rows]

    def between(name: str) -> str:
        values = [value for one in qualities if (value := getattr(one, name)) is not None]
        return f"{min(values):.0%}–{max(values):.0%}" if values else "–"

    return {
        "machine": "quiet" if not processes else f"beside {processes} busy processes",
        "verdicts": f"{len(told)} of {len(rows)}",
        "of large effects": f"{sum(row in told for row in large)} of {len(large)}",
        "wrong": f"{wrong} ({readable_share(wrong / max(len(told), 1))})",
        "wrong by the interval alone": str(sum(row.contradicts_by_interval for row in rows)),
        "others took": between("others_share"),
        "calls waited": between("waited_share"),
        "rounds within ±": between("spread"),
    }
