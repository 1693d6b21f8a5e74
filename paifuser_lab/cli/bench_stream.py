"""`paifuser-lab bench stream`. Built on typer."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import MeasureError
from .commands import Json, _show_bench, bench


@bench.command("stream")
def bench_stream(
    engines: Annotated[
        list[str] | None, typer.Argument(help="threads, ray; both where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for each stream.", min=1)] = 8.0,
) -> None:
    """Run streams over simulated workers: rate against the ideal, faults, overhead, batching."""
    from ..bench.header import save
    from ..bench.stream import ENGINES
    from ..bench.stream import bench as measure

    if unknown := set(engines or ()) - set(ENGINES):
        raise MeasureError(f"{sorted(unknown)} are no engines; there are {', '.join(ENGINES)}.")
    chosen = tuple(name for name in ENGINES if name in (engines or ENGINES))
    if json is None:
        _show_bench(measure(engines=chosen, seconds=seconds), None)
    else:  # each part is kept, as a killed process keeps nothing else
        _show_bench(measure(engines=chosen, seconds=seconds, keep=lambda it: save(it, json)), json)
