"""The comparisons with peers on this machine, one after the other, each into its own record."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from paifuser_lab.bench.runner import BenchRecord, Columns, check_known, measured_rows
from paifuser_lab.bench.text import number
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Record

from .child import ROOT, printed
from .measured import COMMANDS

PEERS = ("models", "fuse", "precision", "train", "hessian", "prune_peer", "language")


class MeasuredBench(Record):
    """A bench that wrote its record."""

    name: str
    seconds: float


class PeersBench(BenchRecord):
    """The result of `python -m benchmarks peers`."""

    caption = "comparisons on {0.machine}, each in its own record"
    rows: tuple[MeasuredBench, ...] = ()

    columns: ClassVar[Columns] = {
        "record": "name",
        "seconds": lambda row: number(row.seconds),
    }


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Records; those with peers where none is named.")
    ] = None,
    *,
    minutes: Annotated[float, typer.Option(help="Of all together.", min=0.0)] = 60.0,
    folder: Annotated[Path, typer.Option(help="Of the records.")] = ROOT / "docs" / "measured",
) -> PeersBench:
    """Measure every comparison with peers anew, or the records that are named, one after the other;
    what fails or has no time left is named, and the rest goes on.
    """
    check_known(names or (), COMMANDS)
    until = time.monotonic() + 60 * minutes
    measure = lambda name: [_measured(name, folder, until - time.monotonic())]
    return PeersBench(**measured_rows(names or PEERS, measure, "benches"))


def _measured(name: str, folder: Path, left_s: float) -> MeasuredBench:
    """Run a bench within the seconds that are left; it writes its record where it ends in time."""
    if left_s <= 0:
        raise MeasureError("there was no time left for it")
    program, *words = shlex.split(COMMANDS[name])
    module = ["-m", "paifuser_lab.cli"] if program == "paifuser-lab" else []
    began = time.monotonic()
    printed(name, [*module, *words, "--json", str(folder / f"{name}.json")], limit_s=left_s)
    return MeasuredBench(name=name, seconds=time.monotonic() - began)
