"""`python -m benchmarks serve` and `bench stream-video`. Built on typer."""

from __future__ import annotations

from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, show_bench

from .commands import bench


@bench.command("serve")
def bench_serve(
    name: Annotated[str, typer.Argument(help="A model of the zoo.")] = "resnet18-digits-tiny",
    json: Json = None,
    clients: Annotated[int, typer.Option(help="Clients at once.", min=1)] = 200,
    seconds: Annotated[float, typer.Option(help="How long they ask.", min=0.1)] = 60.0,
    max_batch: Annotated[int, typer.Option(help="Requests in one call.", min=1)] = 32,
    max_delay_ms: Annotated[float, typer.Option(help="How long the first one waits.", min=0)] = 5.0,
) -> None:
    """Load a server of our own with many clients: what is lost, and how long answers take."""
    from ..serve import bench as measure

    measured = measure(
        name, clients=clients, seconds=seconds, max_batch=max_batch, max_delay_ms=max_delay_ms
    )
    show_bench(measured, json)


@bench.command("stream-video")
def bench_stream_video(
    json: Json = None,
    frames: Annotated[int, typer.Option(help="Of each clip.", min=8)] = 96,
    workers: Annotated[int, typer.Option(help="Processes that decode.", min=1)] = 2,
) -> None:
    """Send groups of encoded pictures to other processes, and decoded frames, in turn: frames a
    second and bytes, at 540p, 1080p and 4K; and the share of each stage of a pipeline.
    """
    from ..stream_video import bench as measure

    show_bench(measure(frames=frames, workers=workers), json)
