"""`python -m benchmarks export`. Built on typer."""

from __future__ import annotations

from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, show_bench

from .commands import bench


@bench.command("export")
def bench_export(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models; six of the zoo where none is named, and no model for `none`."),
    ] = None,
    json: Json = None,
    to: Annotated[str, typer.Option(help="Targets, separated by commas.")] = "onnx",
    tricky: Annotated[
        bool, typer.Option(help="Also export the models that are hard to export.")
    ] = True,
    every: Annotated[
        bool, typer.Option(help="Also export the first model to every target.")
    ] = True,
    seconds: Annotated[float, typer.Option(help="Time for each export's latency.", min=0)] = 4.0,
) -> None:
    """Export models in fp32, fp16 and int8: parity, size, seconds, latency beside the live model;
    the first of them to every target; and models that are hard to export, which come out right or
    are refused.
    """
    from ..export import bench as measure

    targets = [name.strip() for name in to.split(",") if name.strip()]
    hard = None if tricky else ()
    found = measure(tuple(names or ()), targets=targets, tricky=hard, every=every, seconds=seconds)
    show_bench(found, json)
