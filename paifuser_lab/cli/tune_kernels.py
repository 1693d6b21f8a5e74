"""`paifuser-lab tune-kernels`: tiles of the CUDA kernels, ranked anywhere and measured on a GPU.
Stands on typer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import KernelError
from .terminal import print_table

ROWS = 20


def tune_kernels(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Words in names of kernels or cases; all without any."),
    ] = None,
    budget: Annotated[
        int, typer.Option(help="How many tiles to measure for each case.", min=1)
    ] = 60,
    seconds: Annotated[float, typer.Option(help="Time for measuring each case.", min=1)] = 120.0,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Without a GPU: compile, drop what does not fit, rank."),
    ] = False,
    device: Annotated[
        str, typer.Option(help="With --offline, the published device to rank for: H200, A100 …")
    ] = "H200",
) -> None:
    """Find how each CUDA kernel is best cut on this GPU, and keep that for every later run."""
    from ..bench.kernels.tuning import published, ranked_offline, tunable

    chosen = tunable(tuple(names or ()))
    if not offline:
        _tune(chosen, budget, seconds)
        return
    target = published(device)
    for case in chosen:
        _show(
            f"{case.kernel.name}, {case.name}, predicted for {target.name}",
            ranked_offline(case, target),
        )
    typer.echo(
        "Nothing was timed, so nothing is kept: the order is a prediction that no measurement has "
        "confirmed."
    )


def _tune(chosen: Sequence[Any], budget: int, seconds: float) -> None:
    """Case by case; one that cannot be tuned leaves the others, an interrupt ends them all."""
    from ..bench.kernels.tuning import tune
    from ..kernels.tuning.record import INTERRUPTED

    failed = False
    for case in chosen:
        try:
            found = tune(case, budget=budget, seconds=seconds)
        except KernelError as error:
            typer.echo(f"{case.kernel.name}, {case.name}: {error}", err=True)
            failed = True
            continue
        typer.echo(f"{case.kernel.name}, {case.name}: {found}.")
        if found.search.ended_by == INTERRUPTED:
            break
    if failed:
        raise typer.Exit(1)


def _show(title: str, found: Any) -> None:
    if found.kept:
        print_table(title, found.table()[:ROWS])
    if len(found.kept) > ROWS:
        typer.echo(f"and {len(found.kept) - ROWS} more that run.")
    for reason, count in Counter(reason for _, reason in found.dropped).most_common():
        typer.echo(f"{count} dropped: {reason}")
