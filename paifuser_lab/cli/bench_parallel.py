"""`paifuser-lab bench parallel`. Built on typer."""

from __future__ import annotations

from typing import Annotated

import typer

from .commands import Json, _show_bench, bench


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
) -> None:
    """Train on several processes in every way: bytes sent, steps a second, loss after the same
    examples, simulated links, pipelines.
    """
    if kills:
        from ..bench.parallel_kills import kill_ranks

        _show_bench(kill_ranks(kills, processes=processes), json)
        return
    from ..bench.parallel import bench as measure

    _show_bench(measure(model, processes=processes, seeds=seeds, rounds=rounds), json)
