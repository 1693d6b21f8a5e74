"""`paifuser-lab train`: train a model on its own data, resumed where it was stopped; or run a
training script with its loop accelerated. Built on typer.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import paifuser_lab as lab

from .._files import make_folder
from ..errors import PaifuserError
from ..model.weights import save_weights
from ..records import Record
from ..variant.trust import names_function
from ..zoo import names, trained_names
from .bench import Json
from .loading import Trust, load_model
from .terminal import print_table

CHECKPOINT = "checkpoint.safetensors"
# the parameters that a training script has too, alone and in several processes
OF_SCRIPT = ("context", "model", "arguments", "precision", "json", "processes")
OF_PROCESSES = ("context", "model", "arguments", "processes", "restarts")


def train(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="A model (as in `paifuser-lab profile`), or a training script FILE.py."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own; its options after `--`.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="How often it sees the train data.", min=1)] = 3,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest rate; found by the rate finder if left out.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adamw or sgd.")] = "adamw",
    precision: Annotated[
        str | None,
        typer.Option(
            help="fp32 (a model's default), bf16, fp16; or auto (a script's default), which "
            "chooses a format for each layer of a model, and for a script whether bf16 is faster."
        ),
    ] = None,
    react: Annotated[
        str | None, typer.Option(help="How the rate reacts to the loss: plateau or adaptive.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Such as '2 GB': activations are computed again where that is needed."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the batches' order and of the weights.")] = 0,
    trained: Annotated[
        bool, typer.Option(help="Begin with the trained weights of a model of ours.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for the checkpoint, the weights and the record."),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="A folder for TensorBoard.")] = None,
    processes: Annotated[
        int, typer.Option(help="So many train it together; a script then runs as it is.", min=1)
    ] = 1,
    restarts: Annotated[
        int, typer.Option(help="How often a script is started again when a process dies.", min=0)
    ] = 0,
    json: Json = None,
    trust: Trust = False,
) -> None:
    """Train a model on its train data by its loss; killed and started again, it goes on from its
    checkpoint to the same losses. A script runs as it is, with `lab.enable()` in force.
    """
    if model.endswith(".py"):
        if processes > 1:
            _check_options(context, "a script in several processes", OF_PROCESSES)
            _run_in_processes(Path(model), arguments or [], processes, restarts)
        _check_options(context, "a script in one process", OF_SCRIPT)
        _run_script(Path(model), arguments or [], precision or "auto", json)
        return
    if restarts:
        raise PaifuserError("--restarts is for a script with --processes 2 or more.")
    if arguments:
        raise PaifuserError(f"{' '.join(arguments)}: a model has no arguments; a script has.")
    work = load_model(model, trust=trust, **_untrained(model, seed, trained=trained))
    options: dict[str, Any] = {"epochs": epochs, "optimizer": optimizer, "seed": seed}
    options |= _precision(work, precision or "fp32", out)
    options |= _checkpointed(work, memory_limit, optimizer, options["precision"], out)
    if react is not None:
        options["react"] = react
    if learning_rate is None:
        curve = lab.find_rate(work, **options)  # as it is trained: within the same memory
        typer.echo(f"learning rate {curve.suggested:.2g}: {curve.reason}")
        learning_rate = curve.suggested
    record = lab.train(
        work,
        learning_rate=learning_rate,
        checkpoint=None if out is None else out / CHECKPOINT,
        log=log,
        processes=processes,
        **options,
    )
    print_table(record.title, record.table())
    for remark in record.remarks:
        typer.echo(remark)
    if out is not None:
        save_weights(work.model, out / "weights.safetensors")
        record.save(out / "training.json")
        typer.echo(f"in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    if json is not None:
        record.save(json)


def _check_options(context: typer.Context, what: str, known: tuple[str, ...]) -> None:
    """Raise if the command line has an option that this way of training does not use."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in known and source is not None and source.name == "COMMANDLINE":
            option = "--" + name.replace("_", "-")
            raise PaifuserError(f"{option} is not for {what}; leave it out.")


def _run_script(path: Path, arguments: list[str], precision: str, json: Path | None) -> None:
    """Run a script as Python would, its training loop accelerated, and print what that did."""
    if not path.is_file():
        raise PaifuserError(f"There is no file {path}.")
    if precision not in ("auto", "fp32", "bf16", "fp16"):
        raise PaifuserError(
            f"--precision {precision} is not for a script; take auto, bf16, fp16 or fp32."
        )
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = [str(path), *arguments], [str(path.parent), *sys.path]
    acceleration = lab.enable(precision=None if precision == "fp32" else precision)
    acceleration.yields = True  # to the script's own lab.enable()
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before
        record = lab.status()
        if record.is_enabled:
            lab.disable()
        print_table(record.captions, record.table())
        if json is not None:
            record.save(json)


def _run_in_processes(path: Path, arguments: list[str], processes: int, restarts: int) -> None:
    """Become torchrun, which runs the script in so many processes."""
    folder = tempfile.mkdtemp(prefix="paifuser-")
    from ..parallel.torchrun import torchrun_command

    command, environment = torchrun_command(
        path, arguments, processes=processes, restarts=restarts, folder=folder
    )
    os.execve(command[0], command, environment)


def _untrained(model: str, seed: int, *, trained: bool) -> dict[str, Any]:
    """The options to load a model with; one of ours comes trained unless it is told not to."""
    is_seeded = model in names() or names_function(model)
    options: dict[str, Any] = {"seed": seed} if is_seeded else {}
    return options | ({"trained": trained} if model in trained_names() else {})


def _kept(out: Path | None, name: str, make: Callable[[], Record]) -> Any:
    """The plan that the checkpoint in the folder was made with, as another is no continuation;
    without one a new plan, which is kept there.
    """
    if out is not None and (out / CHECKPOINT).is_file() and (out / name).is_file():
        plan = Record.load(out / name)
    else:
        plan = make()
        if out is not None:
            make_folder(out)
            plan.save(out / name)
    typer.echo(str(plan))
    return plan


def _precision(work: Any, precision: str, out: Path | None) -> dict[str, Any]:
    if precision != "auto":
        return {"precision": precision}
    from ..planner.training import plan_training_formats

    plan = _kept(out, "formats.json", lambda: plan_training_formats(work))
    return {"precision": plan.default, "formats": plan.formats}


def _checkpointed(
    work: Any, limit: str | None, optimizer: str, precision: str, out: Path | None
) -> dict[str, Any]:
    if limit is None:
        return {}
    from ..planner.training import plan_checkpoints

    # fp16 takes the bytes of bf16
    lower = "fp32" if precision == "fp32" else "amp-bf16"
    plan = _kept(
        out,
        "checkpointed.json",
        lambda: plan_checkpoints(work, limit, optimizer=optimizer, precision=lower),
    )
    if not plan.is_within:
        raise PaifuserError(
            f"{work.name} needs {plan.predicted_bytes:,} bytes even with every block checkpointed; "
            "raise --memory-limit, or take a smaller batch."
        )
    return {"checkpointed": plan.layers}
