"""`paifuser-lab plan` and `compare`. Built on typer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..records import counted
from .loading import Name, Shapes, Trust, load_model
from .terminal import print_table


def plan(
    model: Name,
    save: Annotated[Path | None, typer.Option(help="Write the recipe to this file.")] = None,
    seconds: Annotated[
        float,
        typer.Option(
            help="Time for measuring, beside that for building; 0 decides from the hardware's "
            "figures alone."
        ),
    ] = 40.0,
    max_error: Annotated[
        float,
        typer.Option(
            help="The relative output error that is acceptable; with 0.02 also int8 is tried."
        ),
    ] = 1e-3,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Choose a recipe for this hardware and say why."""
    from ..planner import plan as choose

    work, began = load_model(model, trust=trust, shapes=shapes), time.perf_counter()
    recipe = choose(work, seconds=seconds, max_error=max_error)
    took = time.perf_counter() - began
    if recipe.evidence is not None:
        print_table(recipe.evidence.title, recipe.evidence.table())
        built = counted(sum(bool(row.steps) for row in recipe.evidence.rows), "recipe")
        typer.echo(
            f"{took:.0f} s in all: at most {seconds:g} s of measuring; the rest built {built}."
        )
    typer.echo(recipe.explain() or "Nothing tried here is faster than the model as it is.")
    if save is not None:
        recipe.save(save)


def compare(
    model: Name,
    recipes: Annotated[list[Path], typer.Argument(help="Recipe files.")],
    rounds: Annotated[int, typer.Option(help="How often each candidate is timed.", min=1)] = 30,
    seconds: Annotated[float, typer.Option(help="Time for all of them.")] = 30.0,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of a call; what suits the unchanged model if left out.", min=1),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write every figure to this file, as JSON.")
    ] = None,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Time recipes in turn with the unchanged model, and say what each changes."""
    from ..comparison import compare as measure
    from ..recipe import Recipe

    loaded = [Recipe.load(path) for path in recipes]
    work = load_model(model, trust=trust, shapes=shapes)
    compared = measure(work, *loaded, rounds=rounds, seconds=seconds, threads=threads)
    print_table(compared.captions, compared.table())
    for row in compared.rows:
        if row.steps:
            typer.echo(f"{row.name}: {row.failure or compared.verdict(row).sentence}")
    if save is not None:
        compared.save(save)
