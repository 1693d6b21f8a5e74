"""`python -m benchmarks memory`, `bench reuse`, `bench memory-snapshot` and `bench memory-replay`.
Built on typer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, show_bench

from .commands import bench


@bench.command("memory")
def bench_memory(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; eight of the zoo where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for each model and batch.", min=0.1)] = 20.0,
    threads: Annotated[int, typer.Option(help="Threads of a call.", min=1)] = 1,
) -> None:
    """Time calls with a memory pool and without one, and count their page faults and memory."""
    from ..memory import bench as measure

    show_bench(measure(tuple(names or ()), seconds=seconds, threads=threads), json)


@bench.command("reuse")
def bench_reuse(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; eight of the zoo where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for each model and batch.", min=0.1)] = 20.0,
    threads: Annotated[int, typer.Option(help="Threads of a call.", min=1)] = 1,
) -> None:
    """Measure peak memory and time of calls with the step `reuse` and without it."""
    from ..reuse import bench as measure

    show_bench(measure(tuple(names or ()), seconds=seconds, threads=threads), json)


@bench.command("memory-snapshot")
def bench_memory_snapshot(
    gigabytes: Annotated[float, typer.Option(help="The size of the file.", min=0.001)] = 1.0,
    json: Json = None,
) -> None:
    """Generate a memory snapshot, and measure how long and how much memory reading it takes."""
    from ..memory_snapshot import bench as measure

    show_bench(measure(gigabytes), json)


@bench.command("memory-replay")
def bench_memory_replay(
    files: Annotated[list[Path], typer.Argument(help="Files of torch.cuda.memory._dump_snapshot.")],
    json: Json = None,
) -> None:
    """Replay recorded snapshots, and compare the simulated peak of reserved bytes with theirs."""
    from ..memory_replay import bench as measure

    show_bench(measure(files), json)


@bench.command("memory-peak")
def bench_memory_peak(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; the whole zoo where none is named.")
    ] = None,
    json: Json = None,
) -> None:
    """Compare predicted peaks of memory with measured ones."""
    from benchmarks.memory_peak import bench as measure

    measured = measure(tuple(names or ()))
    show_bench(measured, json)
