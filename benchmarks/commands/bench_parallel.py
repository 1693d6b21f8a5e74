"""`python -m benchmarks parallel`. Built on typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, show_bench
from paifuser_lab.records import Record

from .commands import bench


@bench.command("parallel")
def bench_parallel(
    model: Annotated[str, typer.Argument(help="cnn, vit or gpt-like.")] = "gpt-like",
    json: Json = None,
    processes: Annotated[int, typer.Option(help="Processes of this machine.", min=2)] = 2,
    seeds: Annotated[int, typer.Option(help="Trainings of each way; 0 for none.", min=0)] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of the race.", min=1)] = 5,
    kills: Annotated[
        int, typer.Option(help="Instead, kill ranks so often under torchrun, and resume.", min=0)
    ] = 0,
    equal: Annotated[
        bool,
        typer.Option(
            "--equal",
            help="Instead, compare every strategy, model, and 2 and 4 processes with one.",
        ),
    ] = False,
) -> None:
    """Train on several processes in every way: bytes sent, steps a second, loss after the same
    examples, simulated links, pipelines.
    """
    if kills:
        from ..parallel_kills import kill_ranks

        survived = kill_ranks(
            kills, processes=processes, on_kill=lambda so_far: _save(so_far, json)
        )
        show_bench(survived, json)
        if not survived.is_equal:
            raise typer.Exit(1)
        return
    if equal:
        from ..parallel_equal import bench as compare

        compared = compare(on_row=lambda so_far: _save(so_far, json))
        show_bench(compared, json)
        if not compared.is_equal:
            raise typer.Exit(1)
        return
    from ..parallel import bench as measure

    measured = measure(
        model,
        processes=processes,
        seeds=seeds,
        rounds=rounds,
        on_part=lambda so_far: _save(so_far, json),
    )
    show_bench(measured, json)


def _save(so_far: Record, json: Path | None) -> None:
    """Keep what was measured so far, however the rest ends."""
    if json is not None:
        from paifuser_lab.bench.header import save

        save(so_far, json)
