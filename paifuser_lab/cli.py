"""`paifuser-lab`: the workbench from a terminal. Stands on typer and rich."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from ._assets import asset
from .errors import PaifuserError

app = typer.Typer(
    help="See where a PyTorch model spends its time, change it, measure the effect, replay it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
bench = typer.Typer(help="Measure this project against its peers.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Out = Annotated[Path, typer.Option(help="The folder that receives the results.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the results of an earlier run in that folder.")]
Name = Annotated[str, typer.Argument(help="A model's name (see `paifuser-lab models`), hf:TYPE, or package.module:function.")]


def main() -> None:
    """The command's entry: what we raise on purpose is one sentence, not a traceback."""
    sys.path.insert(0, os.getcwd())
    try:
        app()
    except PaifuserError as error:
        _console(stderr=True).print(f"[bold red]paifuser-lab:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


@app.command("open")
def open_(
    notebook: Annotated[str, typer.Argument(help="A notebook's name.")] = "00_tour.ipynb",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only serve; the address is printed.")] = False,
    port: Annotated[int | None, typer.Option(help="The port to serve on.")] = None,
) -> None:
    """Open JupyterLab on the tour, or on another notebook."""
    path = Path(notebook) if Path(notebook).is_file() else _own_copy(notebook)
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={path.resolve().parent}"]
    command += [f"--LabApp.default_url=/lab/tree/{quote(path.name)}"]  # so that a printed address leads to it, too
    command += ["--no-browser"] if no_browser else []
    command += [f"--port={port}"] if port else []
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    try:
        raise SystemExit(subprocess.run(command, check=False).returncode)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


@app.command()
def models() -> None:
    """List the models that need no download."""
    from .loading import models as names

    for name in names():
        typer.echo(name)


@app.command("hardware")
def hardware_(refresh: Annotated[bool, typer.Option("--refresh", help="Measure again.")] = False) -> None:
    """Show what this machine can do."""
    from .machine import hardware
    from .records import counted, readable_bytes

    found = hardware(refresh=refresh)
    typer.echo(f"{found.name} · {found.physical_cores} cores · {readable_bytes(found.memory_bytes)} · {' '.join(found.isa)}")
    ceilings = [(counted(one.threads, "thread"), one) for one in found.ceilings] + [
        (one.name, one.ceiling) for one in found.accelerators
    ]
    rows = [
        {
            "device": name,
            **{
                key: "–" if rate is None else f"{rate:,.0f}"
                for key, rate in (
                    ("fp32 GFLOP/s", one.fp32_gflops),
                    ("bf16 GFLOP/s", one.bf16_gflops),
                    ("fp16 GFLOP/s", one.fp16_gflops),
                    ("int8 GOP/s", one.int8_gops),
                    ("GB/s", one.bandwidth_gbs),
                )
            },
        }
        for name, one in ceilings
    ]
    _print_table(found.source, rows)
    if found.note:
        typer.echo(found.note)


@app.command()
def profile(model: Name) -> None:
    """Not yet: a model's time, memory and bytes, layer by layer."""
    raise PaifuserError(
        f"Profiling {model} layer by layer is not there yet; `paifuser-lab plan {model}` says what makes it faster."
    )


@app.command()
def plan(
    model: Name,
    save: Annotated[Path | None, typer.Option(help="Write the recipe to this file.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring; 0 decides from the hardware's figures alone.")] = 40.0,
    max_error: Annotated[float, typer.Option(help="The relative output error that is acceptable.")] = 0.02,
) -> None:
    """Choose a recipe for this hardware and say why."""
    from .loading import load
    from .planner import plan as choose

    recipe = choose(load(model), seconds=seconds, max_error=max_error)
    if recipe.evidence is not None:
        _print_table(recipe.evidence.title, recipe.evidence.table())
    typer.echo(recipe.explain() or "Nothing tried here is faster than the model as it is.")
    if save is not None:
        recipe.save(save)


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="A recipe file.")],
    out: Out,
    model: Annotated[str | None, typer.Option(help="The model; the recipe's own workload where it is left out.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A file of weights for the model (safetensors, or a state_dict).")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the model's weights and inputs.")] = 0,
    rounds: Annotated[int, typer.Option(help="How often each candidate is timed.", min=1)] = 30,
    force: Force = False,
) -> None:
    """Apply a recipe by running the compression notebook; notebook, report.json and weights land in the folder together."""
    from .batch import run_notebook
    from .recipe import Recipe

    wanted = Recipe.load(recipe)
    name = model or wanted.workload
    if name is None:
        raise PaifuserError(f"{recipe.name} names no workload; say which with --model.")
    own = str(weights.resolve()) if weights else ""
    parameters = {"model": name, "recipe": wanted.to_text(), "weights": own, "seed": seed, "rounds": rounds}
    _finish(run_notebook(asset("notebooks/50_compress.ipynb"), out, parameters, replace=force))


@app.command()
def report(
    out: Out = Path("out"),
    model: Annotated[str | None, typer.Option(help="The model that the tour is about.")] = None,
    force: Force = True,
) -> None:
    """Run the tour without a browser and print its table."""
    from .batch import run_notebook

    _finish(run_notebook(asset("notebooks/00_tour.ipynb"), out, {"model": model} if model else {}, replace=force))


@bench.command("models")
def bench_models(
    names: Annotated[list[str] | None, typer.Argument(help="Models; the full-size zoo where none is named.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring each model.")] = 60.0,
    by_hand: Annotated[bool, typer.Option("--by-hand", help="Also time each engine called directly, against the plan.")] = False,
) -> None:
    """Time each model with each back end: ratio to eager, and to the best."""
    from .bench.models import bench as measure

    measured = measure(tuple(names or ()), seconds=seconds, by_hand=by_hand)
    _print_table(measured.title, measured.table())
    if json is not None:
        measured.save(json)


def _finish(out: Path) -> None:
    from .records import Comparison

    comparison = Comparison.load(out / "report.json")
    _print_table(comparison.title, comparison.table())
    typer.echo(f"in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


def _own_copy(name: str) -> Path:
    """A notebook of ours that may be written to: the checkout's own, or a copy of the wheel's in the current folder."""
    source = asset(f"notebooks/{name}")
    if "_sources" not in source.parts:
        return source
    target = Path.cwd() / name
    if not target.exists():
        target.write_bytes(source.read_bytes())
    return target


def _print_table(title: str, rows: list[dict[str, str]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for key in rows[0]:
        table.add_column(
            key, justify="left" if key in ("name", "recipe", "model", "device", "note", "best") else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*(_escaped(value) for value in row.values()))
    _console().print(table)


def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    return Console(stderr=stderr, width=width)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


if __name__ == "__main__":
    main()
