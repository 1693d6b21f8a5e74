"""The commands of `python -m benchmarks`. Built on typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paifuser_lab.cli.bench import Json, began, show_bench

bench = typer.Typer(help="Measure this project beside its peers.", no_args_is_help=True)
bench.callback()(began)


@bench.command("fuse")
def bench_fuse(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; seven of the zoo where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring each model.")] = 30.0,
    batch: Annotated[int | None, typer.Option(help="Examples at once.", min=1)] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    builds: Annotated[
        bool,
        typer.Option(
            "--builds", help="Instead, how long building takes, with caches empty and filled."
        ),
    ] = False,
) -> None:
    """Time each model with fused layers and fused attention against eager and compiled torch."""
    from .. import builds as building
    from ..fuse import bench as measure

    if builds:
        show_bench(building.bench(tuple(names or ())), json)
        return

    show_bench(measure(tuple(names or ()), batch=batch, device=device, seconds=seconds), json)


@bench.command("precision")
def bench_precision(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; six of the zoo where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring each model, twice.")] = 30.0,
    peers: Annotated[
        str, typer.Option(help="Which peers, separated by commas.")
    ] = "inductor,onnxruntime,openvino,nncf",
) -> None:
    """Time our recipes in lower precision against fp32 in every engine and against other
    quantizers, with their errors.
    """
    from ..precision import bench as measure

    show_bench(measure(tuple(names or ()), seconds=seconds, peers=tuple(peers.split(","))), json)


@bench.command("int4")
def bench_int4(
    rows: Annotated[
        list[int] | None,
        typer.Argument(help="Rows of a call; 1, 8, 32 and 64 where none is named."),
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring each number of rows.")] = 30.0,
    width: Annotated[int, typer.Option(help="Numbers a token.", min=1)] = 768,
    inner: Annotated[
        int, typer.Option(help="Numbers a token between a block's last layers.", min=1)
    ] = 2048,
    blocks: Annotated[int, typer.Option(help="Blocks of seven linear layers.", min=0)] = 12,
    answers: Annotated[int, typer.Option(help="Outputs of the last layer.", min=1)] = 32000,
    engines: Annotated[
        str, typer.Option(help="Which engines beside, separated by commas.")
    ] = "onnxruntime,openvino",
) -> None:
    """Time the linear layers of a Llama-like model in int4, one token and more at a time, against
    fp32 and bf16, one thread.
    """
    from ..int4 import ROWS
    from ..int4 import bench as measure

    beside = tuple(name for name in engines.split(",") if name)
    measured = measure(
        tuple(rows or ROWS),
        seconds=seconds,
        width=width,
        inner=inner,
        blocks=blocks,
        answers=answers,
        engines=beside,
    )
    show_bench(measured, json)


@bench.command("profile")
def bench_profile(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; the full-size zoo where none is named.")
    ] = None,
    json: Json = None,
    flops: Annotated[
        bool, typer.Option("--flops", help="Only count FLOPs, ours and torch's; nothing is timed.")
    ] = False,
) -> None:
    """Measure what profiling costs, whether its rows add up, and its FLOPs against torch's."""
    from .. import flops as counting
    from ..profile import bench as measure

    show_bench((counting.bench if flops else measure)(tuple(names or ())), json)


@bench.command("advice")
def bench_advice(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; a selection where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for timing each model.", min=0.1)] = 8.0,
    fit: Annotated[
        bool, typer.Option(help="Write the fitted coefficients where advice reads them.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Take the figures of this file, and measure nothing.")
    ] = None,
) -> None:
    """Measure the steps that advice offers against what it predicts of them."""
    from ..advice import AdviceBench
    from ..advice import bench as measure

    measured = AdviceBench.load(record) if record else measure(tuple(names or ()), seconds=seconds)
    show_bench(measured, json)
    if fit:
        measured.fit()


@bench.command("prune")
def bench_prune(
    names: Annotated[
        list[str] | None, typer.Argument(help="Words in names of architectures; all without any.")
    ] = None,
    json: Json = None,
    peer: Annotated[
        str | None,
        typer.Option(help="torch-pruning: also prune each with that package, to compare."),
    ] = None,
) -> None:
    """Prune many small architectures and compare each with itself with zeros: exact, refused or
    wrong.
    """
    from ..prune import bench as measure

    show_bench(measure(tuple(names or ()), peer=peer), json)


@bench.command("recipes")
def bench_recipes(
    names: Annotated[
        list[str] | None, typer.Argument(help="Words in names of models; all without any.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write every recipe and its verdict to this file.")
    ] = None,
    count: Annotated[int, typer.Option(help="How many recipes.", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="The seed of the random recipes.", min=0)] = 0,
) -> None:
    """Apply random recipes: own model untouched, undo to the bit, the same hash twice, saved =
    loaded in a fresh process.
    """
    from ..recipes import bench as measure

    measured = measure(tuple(names or ()), count=count, seed=seed)
    show_bench(measured, json)
    if measured.violations:
        raise typer.Exit(1)


@bench.command("sensitivity")
def bench_sensitivity(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Trained models; those of the zoo where none is named."),
    ] = None,
    json: Json = None,
    peer: Annotated[
        str | None,
        typer.Option(
            help="pyhessian: instead, seconds to each layer's trace beside that package's."
        ),
    ] = None,
) -> None:
    """Compare each method of sensitivity with measurements: rank agreement and seconds."""
    from .. import hessian_peer, sensitivity

    if peer not in (None, "pyhessian"):
        raise typer.BadParameter(f"'{peer}' is no peer; there is pyhessian.")
    measure = sensitivity.bench if peer is None else hessian_peer.bench
    show_bench(measure(tuple(names or ())), json)


@bench.command("compress")
def bench_compress(
    model: Annotated[str, typer.Argument(help="A trained model.")] = "resnet18-hard-digits",
    json: Json = None,
    goals: Annotated[
        str, typer.Option(help="Shares of the parameters that are to be left, separated by commas.")
    ] = "0.18,0.1,0.05",
    seeds: Annotated[int, typer.Option(help="How many seeds of the model.", min=1)] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of distillation in each round.", min=1)] = 3,
) -> None:
    """Prune, distil and train in int8, over several seeds: losses and gains, each against its own
    original.
    """
    from ..compress import bench as measure

    show_bench(
        measure(
            model, goals=[float(goal) for goal in goals.split(",")], seeds=seeds, epochs=epochs
        ),
        json,
    )


@bench.command("widgets")
def bench_widgets(
    rows: Annotated[
        list[int] | None,
        typer.Argument(help="Sizes of the panel; 300 and 2000 where none is named."),
    ] = None,
    json: Json = None,
    clicks: Annotated[
        int, typer.Option(help="How often a row is clicked, and selected from Python.", min=2)
    ] = 30,
) -> None:
    """Measure a widget in a real JupyterLab: create, wire, paint, click to Python and back."""
    from ..widgets import SIZES
    from ..widgets import bench as measure

    show_bench(measure(tuple(rows or SIZES), clicks), json)


@bench.command("experiment")
def bench_experiment(
    name: Annotated[
        str, typer.Argument(help="cut, int4, allocation, sums, promises or attention.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; the experiment's own where none is named.")
    ] = None,
    json: Json = None,
    seconds: Annotated[float, typer.Option(help="Time for measuring each model.", min=0.1)] = 20.0,
) -> None:
    """Repeat the measurement behind one sentence of the pages in docs/."""
    from ..experiments import bench as measure

    show_bench(measure(name, tuple(names or ()), seconds=seconds), json)
