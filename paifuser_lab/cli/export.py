"""`paifuser-lab export`, also as a deploy folder, and `paifuser-lab exporters`. Built on typer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import paifuser_lab as lab

from .._files import file_exists, make_folder, read_text
from ..converter import target_of
from ..errors import PaifuserError, first_line
from ..records import ExporterRow, Exporters
from ..variant.folder import is_folder
from ..variant.open import means_folder
from .loading import Name, Shapes, Trust, load_model, numbers, split
from .terminal import console, escaped, print_table

To = Annotated[str, typer.Option(help="Targets, separated by commas: onnx,openvino …")]
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


def export(
    model: Name,
    to: To = "onnx",
    out: Annotated[Path, typer.Option(help="The folder that receives the files.")] = Path(),
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, fp16, bf16 or int8; as the model is where it is left out."),
    ] = None,
    opset: Annotated[int | None, typer.Option(help="The opset of an ONNX file.", min=1)] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Any batch size instead of the example's.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="name=value: another option of the one target."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Time for timing each file beside the live model; 0 for none.")
    ] = 2.0,
    save: Annotated[
        Path | None, typer.Option(help="Write what is known of each file here, as JSON.")
    ] = None,
    deploy: Deploy = None,
    labels: Labels = None,
    mean: Mean = None,
    std: Std = None,
    licence: Licence = "",
    report: Report = None,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Write a model, or a saved variant's folder, as files of other runtimes; each file's outputs
    are compared with the live model's before it is written. With --deploy, as a folder that runs
    without this package.
    """
    targets = [target_of(name) for name in split(to)]
    chosen = _options(precision, opset, option, dynamic=dynamic)
    if not targets:
        raise PaifuserError("--to names no target; `paifuser-lab exporters` lists them.")
    of_deploy = {
        "--labels": labels, "--mean": mean, "--std": std, "--licence": licence, "--report": report,
    }  # fmt: skip
    if deploy is None and (given := [name for name, value in of_deploy.items() if value]):
        raise PaifuserError(f"{given[0]} is for --deploy; give that too, or leave it out.")
    subject = load_subject(model, trust=trust, shapes=shapes)
    if deploy is not None:
        stated = {"mean": numbers("mean", mean), "std": numbers("std", std)}
        deployment = lab.deploy(
            subject,
            deploy,
            [target.name for target in targets],
            labels=read_text(labels).splitlines() if labels else (),
            preprocessing={name: values for name, values in stated.items() if values is not None},
            licence=licence,
            comparison=_comparison(model, report),
            seconds=seconds,
            **chosen,
        )
        print_table(deployment.title, deployment.table())
        typer.echo(deployment.sentence)
        if save is not None:
            deployment.save(save)
        raise typer.Exit(1 if deployment.refused else 0)
    make_folder(out)
    rows = []
    for target in targets:
        known = {name: chosen[name] for name in chosen if name in target.Options.model_fields}
        if missing := chosen.keys() - known.keys() - {"opset"}:
            target.checked_options({name: chosen[name] for name in missing})
        row: dict[str, Any] = {"target": target.name, "title": target.title, "extra": target.extra}
        try:
            written = lab.export(subject, target.name, out, seconds=seconds, **known)
        except PaifuserError as error:
            console(stderr=True).print(escaped(str(error)), highlight=False, soft_wrap=True)
            rows.append(ExporterRow(**row, refused=first_line(error)))
            continue
        typer.echo(written.sentence)
        rows.append(ExporterRow(**row, report=written))
    if save is not None:
        Exporters(model=model, rows=tuple(rows)).save(save)
    if any(row.refused for row in rows):
        raise typer.Exit(1)


def exporters(
    model: Annotated[
        str | None,
        typer.Argument(help="A model, as for `paifuser-lab export`; a small one if not."),
    ] = None,
    to: Annotated[str, typer.Option(help="Targets, separated by commas; all if left out.")] = "",
    save: Annotated[Path | None, typer.Option(help="Write the table here, as JSON.")] = None,
    trust: Trust = False,
) -> None:
    """Export a model to every target on this machine, and show what converts and what runs."""
    subject = load_subject(model, trust=trust) if model else None
    table = lab.exporters(subject, split(to) or None)
    print_table(table.title, table.table())
    if save is not None:
        table.save(save)


def load_subject(model: str, *, trust: bool, shapes: str = "") -> Any:
    """A saved folder's variant, with its recipe; else the model of that name."""
    if _is_saved(model):
        return lab.Variant.load(model, trained=False, trust=trust)
    return load_model(model, trust=trust, shapes=shapes)


def _is_saved(model: str) -> bool:
    """Whether the name means the folder of a saved variant, as it does for `lab.load`."""
    return means_folder(model) and is_folder(model)


def _options(
    precision: str | None, opset: int | None, more: list[str] | None, *, dynamic: bool
) -> dict[str, Any]:
    """The options that were given, by name; values of `--option` as JSON where they are."""
    chosen: dict[str, Any] = {"precision": precision, "opset": opset, "dynamic": dynamic or None}
    for entry in more or ():
        name, equals, text = entry.partition("=")
        if not equals:
            raise PaifuserError(f"--option {entry!r} has no value; write name=value.")
        try:
            chosen[name] = json.loads(text)
        except ValueError:
            chosen[name] = text
    return {name: value for name, value in chosen.items() if value is not None}


def _comparison(model: str, report: Path | None) -> Any:
    """The given comparison, or that in a saved variant's folder, if it holds one."""
    if report is not None:
        return lab.Comparison.load(report)
    path = Path(model) / "report.json"
    found = lab.Record.load(path) if _is_saved(model) and file_exists(path) else None
    return found if isinstance(found, lab.Comparison) else None
