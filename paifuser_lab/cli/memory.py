"""`paifuser-lab memory`: the predicted peak of a model, or who held memory. Built on typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import paifuser_lab as lab

from .._files import write_text
from ..errors import FileError
from ..memory import predicted_peak
from ..records import MemorySnapshot
from .bench import Json
from .loading import Shapes, Trust, load_model

SNAPSHOTS = (".pickle", ".pkl")


def memory(
    subject: Annotated[
        str,
        typer.Argument(
            help="A model's name, hf:TYPE, package.module:function, or a saved model's folder; or "
            "a .pickle file of torch.cuda.memory._dump_snapshot, in which nothing is executed."
        ),
    ],
    train: Annotated[
        bool, typer.Option("--train", help="Of a step of training instead of a call.")
    ] = False,
    batch: Annotated[int | None, typer.Option(help="The batch size.", min=1)] = None,
    limit: Annotated[
        str | None,
        typer.Option(help="A memory limit, such as '8 GB': the largest batch, and what helps."),
    ] = None,
    shapes: Shapes = "",
    trust: Trust = False,
    device: Annotated[
        int | None,
        typer.Option(help="Of a snapshot: the device; by default that with most events.", min=0),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(help="Of a snapshot: simulate its requests under other allocator settings."),
    ] = True,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a report that works offline: of a snapshot, or of a run of the model."
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Predict the peak memory of a model without running it, and with --html run it once and show
    who held memory; or show who held it in a snapshot, why it ran out, and what other settings
    would reserve.
    """
    if subject.endswith(SNAPSHOTS):
        of_model = {"--train": train, "--batch": batch, "--limit": limit, "--input": shapes}
        if given := [option for option, value in of_model.items() if value]:
            raise FileError(f"{given[0]} is for a model; {subject} is a snapshot's file.")
        _show_snapshot(Path(subject), device, html, json, replay=replay)
        return
    if device is not None:
        raise FileError(f"--device is for a snapshot's file; {subject} is a model.")
    work = load_model(subject, trust=trust, shapes=shapes)
    predicted = (
        predicted_peak(work, train, batch=batch)
        if limit is None
        else lab.fits(work, train, limit, batch=batch)
    )
    typer.echo(str(predicted))
    if json is not None:
        predicted.save(json)
    if html is not None:
        _report(lab.memory_snapshot(work, train, batch=batch), html)


def _show_snapshot(
    path: Path, device: int | None, html: Path | None, json: Path | None, *, replay: bool
) -> None:
    record = lab.memory_snapshot(path, device=device, replay=replay)
    if json is not None:
        record.save(json)
    if html is None:
        typer.echo(str(record))
    else:
        _report(record, html)


def _report(record: MemorySnapshot, html: Path) -> None:
    from ..views.page import snapshot_report  # matplotlib takes a second

    typer.echo(str(record))
    write_text(html, snapshot_report(record))
    typer.echo(f"report in {html}")
