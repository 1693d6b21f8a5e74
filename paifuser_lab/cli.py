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

WORDS = ("name", "recipe", "model", "device", "note", "best", "layer", "kind", "bound by")  # columns that are read, not compared

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
    command += ["--LabApp.expose_app_in_browser=True"]  # a panel whose Jupyter kernel is gone offers to run the cells again
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
def profile(
    model: Name,
    depth: Annotated[int, typer.Option(help="How deep the printed tree goes.", min=0)] = 2,
    backward: Annotated[bool, typer.Option("--backward", help="Also time the gradients of a training step.")] = False,
    layer: Annotated[str, typer.Option(help="Explain this layer instead of the costliest.")] = "",
    seconds: Annotated[float, typer.Option(help="Time for the repeated runs.")] = 10.0,
    batch: Annotated[int | None, typer.Option(help="The batch size, for a model of ours.", min=1)] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report to this file; it works offline.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write every figure to this file, as JSON.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto, or, to a folder, for TensorBoard.")] = None,
) -> None:
    """Show where a model spends its time, memory and bytes, layer by layer, and what would help."""
    from . import profiler
    from .loading import load

    work = load(model, batch=batch) if batch else load(model)
    seen = profiler.profile(work, backward=backward, seconds=seconds)
    asked = [layer] if layer else ["", *(row.layer for row in seen.costliest(3) if row.layer)]
    explained = [profiler.explain(seen, one) for one in asked]
    _print_table(seen.title, seen.table(depth))
    typer.echo(seen.accuracy + "\n")
    typer.echo("\n\n".join(map(str, explained)))
    if save is not None:
        seen.save(save)
    if html is not None:
        _write_page(html, seen, explained)
    if trace is not None:
        profiler.trace(work, trace)
    if seen.failure:
        raise PaifuserError(seen.failure)


@app.command("trace")
def trace_(path: Annotated[Path, typer.Argument(help="A saved trace (.json or .json.gz), also one made elsewhere.")]) -> None:
    """Sum up a trace of torch's profiler: operators, kernels, layers, idle time, data loading."""
    from .profiler import read_trace

    typer.echo(str(read_trace(path)))


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

    _show_bench(measure(tuple(names or ()), seconds=seconds, by_hand=by_hand), json)


@bench.command("precision")
def bench_precision(
    names: Annotated[list[str] | None, typer.Argument(help="Models; six of the zoo where none is named.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring each model, twice.")] = 30.0,
    peers: Annotated[str, typer.Option(help="Which peers, separated by commas.")] = "inductor,onnxruntime,openvino,nncf",
) -> None:
    """Time our recipes in few bits against fp32 in every engine and against other quantizers, errors beside."""
    from .bench.precision import bench as measure

    _show_bench(measure(tuple(names or ()), seconds=seconds, peers=tuple(peers.split(","))), json)


@bench.command("profile")
def bench_profile(
    names: Annotated[list[str] | None, typer.Argument(help="Models; the full-size zoo where none is named.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
) -> None:
    """Measure what profiling costs, whether its rows add up, and its FLOPs against torch's."""
    from .bench.profile import bench as measure

    _show_bench(measure(tuple(names or ())), json)


@bench.command("prune")
def bench_prune(
    names: Annotated[list[str] | None, typer.Argument(help="Words in names of architectures; all without any.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
) -> None:
    """Prune many small architectures and compare each with itself with zeros: exact, refused or wrong."""
    from .bench.prune import bench as measure

    _show_bench(measure(tuple(names or ())), json)


@bench.command("sensitivity")
def bench_sensitivity(
    names: Annotated[list[str] | None, typer.Argument(help="Trained models; those of the zoo where none is named.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
) -> None:
    """Hold each way of judging layers against what was really measured: rank agreement and seconds."""
    from .bench.sensitivity import bench as measure

    _show_bench(measure(tuple(names or ())), json)


@bench.command("widgets")
def bench_widgets(
    rows: Annotated[list[int] | None, typer.Argument(help="Sizes of the panel; 300 and 2000 where none is named.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
    clicks: Annotated[int, typer.Option(help="How often a row is clicked, and selected from Python.", min=2)] = 30,
) -> None:
    """Measure a widget in a real JupyterLab: create, wire, paint, click to Python and back."""
    from .bench.widgets import SIZES
    from .bench.widgets import bench as measure

    _show_bench(measure(tuple(rows or SIZES), clicks), json)


def _show_bench(measured: Any, json: Path | None) -> None:
    _print_table(measured.title, measured.table())
    typer.echo(getattr(measured, "summary", ""))
    if json is not None:
        measured.save(json)


def _write_page(path: Path, seen: Any, explained: list[Any]) -> None:
    from ._files import write_text
    from .figures.page import html_report

    write_text(path, html_report(seen, explained))
    typer.echo(f"report in {path}")


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
        table.add_column(key, justify="left" if key in WORDS else "right", overflow="fold")
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
