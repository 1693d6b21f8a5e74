"""The commands of `paifuser-lab`. Built on typer and rich."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import paifuser_lab as lab

from .._files import asset, notebook_file, write_text
from ..errors import PaifuserError, terminated_like_ctrl_c
from ..profiler import explain, read_trace, trace
from ..records import counted
from .bench import bench, tune_kernels
from .export import export, exporters
from .jupyterlab import command, copy_notebooks, environment
from .loading import Name, Shapes, Trust, load_model, model_of
from .memory import memory
from .search import search
from .serve import serve, stream
from .terminal import console, escaped, print_table
from .train import train

app = typer.Typer(
    help="See where a PyTorch model spends its time, change it, measure the effect, replay it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Out = Annotated[Path, typer.Option(help="The folder that receives the results.")]
Save = Annotated[Path | None, typer.Option(help="Write every figure to this file, as JSON.")]
Rounds = Annotated[int, typer.Option(help="How often each candidate is timed.", min=1)]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the results of an earlier run in that folder.")
]


def main(command: typer.Typer | None = None) -> None:
    """The command's entry point; errors of this package print their message, not a traceback."""
    try:
        with terminated_like_ctrl_c():
            (command or app)()
    except PaifuserError as error:
        console(stderr=True).print(
            f"[bold red]paifuser-lab:[/] {escaped(str(error))}", highlight=False, soft_wrap=True
        )
        raise SystemExit(2) from None


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"paifuser-lab {lab.__version__}")
        raise typer.Exit


@app.callback()
def options(
    shows_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of no command."""


def open_(
    notebook: Annotated[str, typer.Argument(help="A notebook's name.")] = "00_tour.ipynb",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only serve; the address is printed.")
    ] = False,
    port: Annotated[int | None, typer.Option(help="The port to serve on.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="The folder of your copies of the notebooks; ~/paifuser-lab by default."),
    ] = None,
) -> None:
    """Open JupyterLab on your own copy of the tour, or on another notebook."""
    path = Path(notebook)
    if not path.is_file():
        path = (folder or Path.home() / "paifuser-lab") / notebook_file(notebook).name
        for name in copy_notebooks(path.parent):
            typer.echo(
                f"{path.parent / name} has your changes and stays; the package has a newer one: "
                "move yours away to get it."
            )
    served = subprocess.Popen(command(path, port=port, browser=not no_browser), env=environment())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # JupyterLab gets Ctrl-C too, and asks
    try:
        status = served.wait()
    except KeyboardInterrupt:  # SIGTERM
        served.terminate()
        status = served.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    raise SystemExit(status)


def models() -> None:
    """List the models that need no download."""
    for name in lab.models():
        typer.echo(name)


def hardware_(
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again.")] = False,
) -> None:
    """Show what this machine can do."""
    typer.echo(str(lab.hardware(refresh=refresh)))


def profile(
    model: Name,
    depth: Annotated[int, typer.Option(help="How deep the printed tree goes.", min=0)] = 2,
    backward: Annotated[
        bool, typer.Option("--backward", help="Also time the gradients of a training step.")
    ] = False,
    layer: Annotated[str, typer.Option(help="Explain this layer instead of the costliest.")] = "",
    seconds: Annotated[float, typer.Option(help="Time for the repeated runs.")] = 10.0,
    batch: Annotated[
        int | None, typer.Option(help="The batch size, for a model of ours.", min=1)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a report to this file; it works offline.")
    ] = None,
    save: Save = None,
    trace_to: Annotated[
        Path | None,
        typer.Option("--trace", help="Write a trace for Perfetto or, to a folder, TensorBoard."),
    ] = None,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Show where a model spends its time, memory and bytes, layer by layer, and what would help."""
    work = load_model(model, trust=trust, shapes=shapes, batch=batch)
    result = lab.profile(work, backward=backward, seconds=seconds)
    print_table(result.title, result.table(depth))
    typer.echo(result.accuracy + "\n")
    if save is not None:
        result.save(save)
    layers = [layer] if layer else ["", *(row.layer for row in result.costliest(3) if row.layer)]
    explained = [explain(result, name) for name in layers]  # raises for a layer that is not there
    typer.echo("\n\n".join(map(str, explained)))
    if html is not None:
        _write_page(html, result, explained)
    if trace_to is not None:
        trace(work, trace_to)


def plan(
    model: Name,
    save: Annotated[Path | None, typer.Option(help="Write the recipe to this file.")] = None,
    seconds: Annotated[
        float,
        typer.Option(help="Time for all of it; 0 decides from the hardware's figures alone."),
    ] = 60.0,
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
    work, began = load_model(model, trust=trust, shapes=shapes), time.perf_counter()
    recipe = lab.plan(work, seconds=seconds, max_error=max_error)
    took = time.perf_counter() - began
    if recipe.evidence is not None:
        print_table(recipe.evidence.title, recipe.evidence.table())
        built = counted(
            sum(bool(row.steps) and not row.failure for row in recipe.evidence.rows), "recipe"
        )
        typer.echo(f"{took:.0f} s of {seconds:g} for building and measuring {built}.")
    typer.echo(recipe.explain() or "Nothing tried here is faster than the model as it is.")
    if save is not None:
        recipe.save(save)


def compare(
    model: Name,
    recipes: Annotated[list[Path], typer.Argument(help="Recipe files.")],
    rounds: Rounds = 30,
    seconds: Annotated[float, typer.Option(help="Time for all of them.")] = 30.0,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of a call; what suits the unchanged model if left out.", min=1),
    ] = None,
    save: Save = None,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Time recipes in turn with the unchanged model, and say what each changes."""
    loaded = [lab.Recipe.load(path) for path in recipes]
    work = load_model(model, trust=trust, shapes=shapes)
    labels = [recipe.label for recipe in loaded]
    named: dict[str, Any] = {
        label if labels.count(label) == 1 else f"{label} ({path})": recipe
        for path, label, recipe in zip(recipes, labels, loaded, strict=True)
    }
    compared = lab.compare(work, rounds=rounds, seconds=seconds, threads=threads, **named)
    print_table(compared.captions, compared.table())
    for row in compared.rows:
        if row.steps:
            typer.echo(f"{row.name}: {row.failure or compared.verdict(row).sentence}")
    if save is not None:
        compared.save(save)


def history(
    model: Annotated[str, typer.Argument(help="Only models with this in their names.")] = "",
    machine: Annotated[str, typer.Option(help="Only machines with this in their names.")] = "",
    since: Annotated[str, typer.Option(help="From this day on, such as 2026-11-01.")] = "",
    recipe: Annotated[
        int | None, typer.Option(help="Print the recipe of the row with this number, as YAML.")
    ] = None,
    pair: Annotated[
        tuple[int, int] | None, typer.Option(help="Compare the rows with these numbers.")
    ] = None,
    save: Save = None,
) -> None:
    """List what was measured in any session, the newest last; PAIFUSER_HISTORY=0 keeps nothing."""
    past = lab.history().where(model, machine, since)
    if save is not None:
        past.save(save)
    if recipe is not None:
        typer.echo(past[recipe].recipe.to_text(), nl=False)
    elif pair is not None:
        compared = past.pair(*pair)
        typer.echo(f"{compared.verdict.sentence}\n{compared.difference}")
    else:
        print_table(past.title, past.table())


def trace_(
    path: Annotated[
        Path, typer.Argument(help="A saved trace (.json or .json.gz), also one made elsewhere.")
    ],
) -> None:
    """Sum up a trace of torch's profiler: operators, kernels, layers, idle time, data loading."""
    typer.echo(str(read_trace(path)))


def run(
    recipe: Annotated[Path, typer.Argument(help="A recipe file.")],
    out: Out,
    model: Annotated[
        str | None, typer.Option(help="The model; the recipe's own workload where it is left out.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="A file of weights for the model (safetensors, or a state_dict)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the model's weights and inputs.")] = 0,
    rounds: Rounds = 30,
    trust: Trust = False,
    force: Force = False,
) -> None:
    """Apply a recipe by running the compression notebook; notebook, report.json and weights land in
    the folder together.
    """
    loaded = lab.Recipe.load(recipe)
    name = model or model_of(loaded, recipe, trust=trust)
    parameters = {
        "model": name,
        "recipe": loaded.to_text(),
        "weights": str(weights.resolve()) if weights else "",
        "seed": seed,
        "rounds": rounds,
        "trust": trust,
    }
    _run_notebook("notebooks/50_compress.ipynb", out, parameters, replace=force)


def report(
    out: Out = Path("out"),
    model: Annotated[str | None, typer.Option(help="The model that the tour is about.")] = None,
    trust: Trust = False,
    force: Force = False,
) -> None:
    """Run the tour without a browser and print its table."""
    parameters = {"trust": trust} | ({"model": model} if model else {})
    _run_notebook("notebooks/00_tour.ipynb", out, parameters, replace=force)


def sweep_(
    notebook: Annotated[str, typer.Argument(help="A notebook's file, or the name of one of ours.")],
    parameter: Annotated[
        list[str],
        typer.Option(
            "--parameter", "-p", help="name=value,value or name=low..high; once for each."
        ),
    ],
    out: Out,
    jobs: Annotated[
        int, typer.Option(help="How many run at a time; they share the cores.", min=1)
    ] = 1,
    sort: Annotated[
        str | None,
        typer.Option(help="The figure or parameter to sort by; the metric, else the latency."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="A database that sweeps share, such as sqlite:///runs.db."),
    ] = None,
    trust: Trust = False,
    force: Force = False,
) -> None:
    """Run a notebook with every combination of values, each in a process of its own; what is
    complete is not run again.
    """
    path = notebook_file(notebook)
    from .grid import values_of
    from .sweep import sweep

    values = values_of(parameter) | ({"trust": [True]} if trust else {})
    swept = sweep(
        path, values, out, jobs=jobs, sort=sort, replace=force, study=study, on_run=_print_run
    )
    print_table(swept.title, swept.table())
    typer.echo(f"in {out}: sweep.json, sweep.md and sweep.html")
    raise typer.Exit(130 if swept.is_interrupted else 1 if swept.failed else 0)


def _print_run(run: Any) -> None:
    """A line a run of a sweep: its figures, or what went wrong."""
    if run.failure:
        typer.echo(f"{run.name}: {run.failure}", err=True)
    else:
        typer.echo(run.sentence)


def _write_page(path: Path, profile: Any, explanations: list[Any]) -> None:
    from ..views.page import html_report  # matplotlib takes a second

    write_text(path, html_report(profile, explanations))
    typer.echo(f"report in {path}")


def _run_notebook(name: str, out: Path, parameters: dict[str, Any], *, replace: bool) -> None:
    """Run one of our notebooks with a line a stage, then print its comparison."""
    from .notebook import run_notebook

    run_notebook(asset(name), out, parameters, replace=replace, on_stage=typer.echo)
    comparison = lab.Comparison.load(out / "report.json")
    print_table(comparison.captions, comparison.table())
    typer.echo(f"in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


# the groups of --help and their commands, in the order in which they are shown
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start here": {
        "open": open_,
        "report": report,
        "profile": profile,
        "plan": plan,
        "search": search,
        "compare": compare,
        "run": run,
        "history": history,
    },
    "What there is": {"models": models, "hardware": hardware_, "exporters": exporters},
    "Use a model": {"train": train, "export": export, "stream": stream, "serve": serve},
    "In detail": {"memory": memory, "trace": trace_, "sweep": sweep_, "tune-kernels": tune_kernels},
}
for _panel, _commands in COMMANDS.items():
    for _name, _function in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_function)
app.add_typer(bench, name="bench", rich_help_panel="In detail")
