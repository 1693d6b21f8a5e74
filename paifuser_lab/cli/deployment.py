"""`paifuser-lab export … --deploy FOLDER`. Built on typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import file_exists, read_text
from ..errors import PaifuserError
from .terminal import print_table

Deploy = Annotated[
    Path | None,
    typer.Option(help="Write a deploy folder here: model, scripts, Dockerfile, manifests, card."),
]
Labels = Annotated[
    Path | None, typer.Option(help="For --deploy: the names of the classes, one a line.")
]
Mean = Annotated[
    str | None, typer.Option(help="For --deploy: of an image's channels, as 0.485,0.456,0.406.")
]
Std = Annotated[str | None, typer.Option(help="For --deploy: the channels' standard deviation.")]
Licence = Annotated[str, typer.Option(help="For --deploy: the licence of the original.")]
Report = Annotated[
    Path | None, typer.Option(help="For --deploy: a saved comparison for the card's table.")
]


def write_deployment(
    model: str,
    subject: Any,
    folder: Path,
    targets: list[str],
    *,
    options: dict[str, Any],
    labels: Path | None,
    mean: str | None,
    std: str | None,
    licence: str,
    report: Path | None,
) -> Any:
    """Write the folder and print its table; the record of it."""
    from ..deployment import deploy

    stated = {"mean": _numbers("mean", mean), "std": _numbers("std", std)}
    deployment = deploy(
        subject,
        folder,
        targets,
        labels=read_text(labels).splitlines() if labels else (),
        preprocessing={name: values for name, values in stated.items() if values is not None},
        licence=licence,
        comparison=_comparison(model, report),
        **options,
    )
    print_table(deployment.title, deployment.table())
    typer.echo(deployment.sentence)
    return deployment


def _comparison(model: str, report: Path | None) -> Any:
    """The given comparison, or that in a saved variant's folder, if it holds one."""
    from ..records import Comparison, Record

    if report is not None:
        return Comparison.load(report)
    path = Path(model) / "report.json"
    found = Record.load(path) if file_exists(path) else None
    return found if isinstance(found, Comparison) else None


def _numbers(name: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise PaifuserError(
            f"--{name} {text!r} is no list of numbers; write 0.5,0.5,0.5."
        ) from None
