"""`paifuser-lab tune-kernels`: rank tile sizes of the CUDA kernels, and measure them on a GPU.
Built on typer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import KernelError
from .terminal import print_table

MAX_ROWS = 20


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
    """Tune case by case; a failed case does not stop the others, an interrupt does."""
    from ..bench.kernels.tuning import tune
    from ..kernels.tuning.search import INTERRUPTED

    failed = False
    for case in chosen:
        try:
            result = tune(case, budget=budget, seconds=seconds)
        except KernelError as error:
            typer.echo(f"{case.kernel.name}, {case.name}: {error}", err=True)
            failed = True
            continue
        typer.echo(f"{case.kernel.name}, {case.name}: {result}.")
        if result.search.ended_by == INTERRUPTED:
            break
    if failed:
        raise typer.Exit(1)


def _show(title: str, ranking: Any) -> None:
    if ranking.ranked:
        print_table(title, ranking.table()[:MAX_ROWS])
    if len(ranking.ranked) > MAX_ROWS:
        typer.echo(f"and {len(ranking.ranked) - MAX_ROWS} more that run.")
    for reason, count in Counter(reason for _, reason in ranking.dropped).most_common():
        typer.echo(f"{count} dropped: {reason}")
