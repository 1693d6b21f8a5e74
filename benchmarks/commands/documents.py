"""`python -m benchmarks pages` and `pictures`: the figures and pictures of README and docs/.
Built on typer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .commands import bench

__all__ = ["bench"]


@bench.command("pages")
def bench_pages(
    root: Annotated[
        Path, typer.Argument(help="The checkout, with README.md, docs/ and docs/measured/.")
    ] = Path(),
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; fail where a figure is not the record's."),
    ] = False,
) -> None:
    """Write the measured figures of README.md and docs/*.md from the records in docs/measured."""
    from ..pages import rewrite

    stale = rewrite(root, check=check)
    for page, names in stale.items():
        state = "differs from its records in" if check else "written:"
        typer.echo(f"{page.name} {state} {', '.join(names)}", err=check)
    if stale and check:
        typer.echo("`make figures` writes them.", err=True)
        raise typer.Exit(1)
    if not stale:
        typer.echo("Every page agrees with its records.")


@bench.command("pictures")
def bench_pictures(
    folder: Annotated[Path, typer.Argument(help="Where the PNG files are written.")] = Path("docs"),
    model: Annotated[str, typer.Option(help="The model in the workbench.")] = "resnet18",
    rounds: Annotated[int, typer.Option(help="Rounds of each measurement.", min=1)] = 10,
    seconds: Annotated[float, typer.Option(help="Time for each measurement.", min=0.1)] = 4.0,
) -> None:
    """Take pictures of the workbench in JupyterLab, light and dark."""
    from ..pictures import take_pictures

    for path in take_pictures(folder, model, rounds=rounds, seconds=seconds):
        typer.echo(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
