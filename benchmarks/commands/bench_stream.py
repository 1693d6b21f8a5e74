"""`python -m benchmarks stream`. Built on typer."""

from __future__ import annotations

from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, show_bench
from paifuser_lab.errors import MeasureError

from .commands import bench


@bench.command("stream")
def bench_stream(
    engines: Annotated[
        list[str] | None, typer.Argument(help="threads, ray; both where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for each stream.", min=1)] = 8.0,
) -> None:
    """Run streams over simulated workers: rate against the ideal, faults, overhead, batching."""
    from paifuser_lab.bench.header import save

    from ..stream import ENGINES
    from ..stream import bench as measure

    if unknown := set(engines or ()) - set(ENGINES):
        raise MeasureError(f"{sorted(unknown)} are no engines; there are {', '.join(ENGINES)}.")
    chosen = tuple(name for name in ENGINES if name in (engines or ENGINES))
    if json is None:
        show_bench(measure(engines=chosen, seconds=seconds), None)
    else:  # each part is kept, as a killed process keeps nothing else
        show_bench(measure(engines=chosen, seconds=seconds, keep=lambda it: save(it, json)), json)
