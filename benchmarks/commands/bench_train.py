"""`python -m benchmarks train`, `bench detector`, `bench formats`, `bench checkpoints`.

Built on typer.
"""

from __future__ import annotations

from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, show_bench

from .commands import bench


@bench.command("train")
def bench_train(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; all seven where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for racing each model.", min=0.1)] = 60.0,
    seeds: Annotated[
        int, typer.Option(help="Runs of 200 steps with and without; 0 for none.", min=0)
    ] = 3,
    compiles: Annotated[
        bool, typer.Option("--compile", help="Also race torch.compile, which takes minutes.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads of a step.", min=1)] = 1,
) -> None:
    """Train models with each switch of `lab.enable()`, with all, with what it chooses, and by
    peers: steps a second, peak memory, loss after 200 steps.
    """
    from ..train import bench as measure

    measured = measure(
        tuple(names or ()), seconds=seconds, seeds=seeds, compiles=compiles, threads=threads
    )
    show_bench(measured, json)


@bench.command("detector")
def bench_detector(
    json: Json = None,
    epochs: Annotated[int, typer.Option(help="Of each training.", min=1)] = 15,
    seeds: Annotated[int, typer.Option(help="Trainings in each way.", min=1)] = 2,
    threads: Annotated[int, typer.Option(help="Threads of a step.", min=1)] = 1,
) -> None:
    """Train the zoo's detector from scratch, plainly and under `lab.enable()`: CPU time, and mean
    average precision.
    """
    from ..detector import bench as measure

    show_bench(measure(epochs=epochs, seeds=seeds, threads=threads), json)


@bench.command("formats")
def bench_formats(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models with data; four where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Of a training in fp32.", min=0.1)] = 20.0,
    seeds: Annotated[int, typer.Option(help="Trainings in each way.", min=1)] = 3,
) -> None:
    """Train models in fp32, under torch's autocast and in a format for each layer, for the same
    time: steps, loss and metric on the test data.
    """
    from ..formats import bench as measure

    show_bench(measure(tuple(names or ()), seconds=seconds, seeds=seeds), json)


@bench.command("checkpoints")
def bench_checkpoints(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; four where none is named.")
    ] = None,
    json: Json = None,
    share: Annotated[
        float, typer.Option(help="Of the plain peak, which is the limit.", min=0.01, max=1)
    ] = 0.6,
) -> None:
    """Checkpoint blocks of models within a memory limit: peak and time, predicted and measured."""
    from ..checkpoints import bench as measure

    show_bench(measure(tuple(names or ()), share=share), json)
