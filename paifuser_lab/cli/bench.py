"""`paifuser-lab bench …`: the benchmarks that a user runs on their own machine. Built on typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import print_table

Json = Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")]

bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)


@bench.callback()
def began() -> None:
    """Note the commit that is about to run: a bench may take hours, and another may come."""
    from ..bench.header import commit

    commit()


@bench.command("kernels")
def bench_kernels(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Words in names of kernels or cases; all without any."),
    ] = None,
    json: Json = None,
    on: Annotated[
        str, typer.Option(help="gpu, or cpu: small shapes in the emulator, nothing timed.")
    ] = "gpu",
    seconds: Annotated[float, typer.Option(help="Time for all of it.", min=1)] = 420.0,
) -> None:
    """Check every CUDA kernel against float64, then time it against torch, as shares of the
    machine's ceilings.
    """
    from ..bench.kernels import bench as measure

    measured = measure(tuple(names or ()), on=on, seconds=seconds)
    show_bench(measured, json)
    if not measured.is_sound:
        raise typer.Exit(1)


@bench.command("models")
def bench_models(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; four of the zoo where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Most time for each measurement.")] = 30.0,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="Also time each engine called directly, against the plan."),
    ] = False,
) -> None:
    """Time each model with each back end: ratio to eager, and to the best."""
    from ..bench.models import bench as measure

    show_bench(measure(tuple(names or ()), seconds=seconds, by_hand=by_hand), json)


@bench.command("trust")
def bench_trust(
    names: Annotated[list[str] | None, typer.Argument(help="Models to compare.")] = None,
    json: Json = None,
    tries: Annotated[
        int, typer.Option(min=1, help="Comparisons of each model beside busy processes.")
    ] = 17,
) -> None:
    """Compare verdicts of a quiet machine with those beside two busy processes."""
    from ..bench.trust import bench as measure

    show_bench(measure(tuple(names or ()), tries=tries), json)


def show_bench(measured: Any, json: Path | None) -> None:
    print_table(measured.title, measured.table())
    typer.echo(getattr(measured, "summary", ""))
    if json is not None:
        from ..bench.header import save

        save(measured, json)
