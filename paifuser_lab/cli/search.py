"""The command that searches for the best recipe within limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import paifuser_lab as lab

from .._files import make_folder, write_text
from ..planner import SearchResult, searches
from ..records import SearchGoal
from ..variant.folder import remove_folder
from .loading import Name, Shapes, Trust, load_model
from .terminal import print_table


def search(
    model: Name,
    goal: Annotated[SearchGoal, typer.Option(help="What to improve.")] = "latency",
    metric_drop: Annotated[
        float,
        typer.Option(
            help="The loss of the metric that is allowed, 0.01 for one point; without labelled "
            "data the relative error of the output."
        ),
    ] = 0.01,
    seconds: Annotated[float, typer.Option(help="Time for all of it.")] = 120.0,
    may_train: Annotated[
        bool, typer.Option("--may-train", help="Train what was pruned, by the original's outputs.")
    ] = False,
    size_bytes: Annotated[
        float | None, typer.Option(help="The weights that the recipe may leave.")
    ] = None,
    peak_bytes: Annotated[
        float | None, typer.Option(help="The memory that a call may take.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="A database to go on from, such as sqlite:///searches.db."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="A Ray cluster whose machines of this processor measure, such as auto."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write recipe.yaml, search.json, search.html and the model here."),
    ] = None,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Find the best recipe within limits: engine, formats, width and memory together."""
    work = load_model(model, trust=trust, shapes=shapes)
    if out is not None:
        make_folder(out)
    bounds = {"size_bytes": size_bytes, "peak_bytes": peak_bytes}
    shown = ""
    for found in searches(
        work,
        goal=goal,
        metric_drop=metric_drop,
        limits={name: limit for name, limit in bounds.items() if limit is not None},
        seconds=seconds,
        may_train=may_train,
        study=study,
        workers=workers,
    ):
        first = found.first
        line = "" if first is None else f"{first.label}: {first.effect}"
        if line and line != shown:
            typer.echo(f"{found.took_s:4.0f} s  {len(found.rows)} tried, best: {line}")
            shown = line
    print_table(found.captions, found.table())
    typer.echo(found.best.explain() or found.reason)
    if out is not None:
        _write(work, found, out)


def _write(work: Any, found: SearchResult, out: Path) -> None:
    from ..views.page import offline_page  # matplotlib takes a second

    found.save(out / "search.json")
    picture = lab.figure(found).svg() if found.rows else ""
    write_text(out / "search.html", offline_page(found.workload, found._repr_html_() + picture))
    best = found.best
    best.save(out / "recipe.yaml")
    if best.steps:
        lab.apply(work, best).save(out / "model")
    else:
        remove_folder(out / "model")  # of an earlier search
    typer.echo(f"in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
