"""The section of export: the targets, what each wrote or why it refused, the files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ...converter import Target, target_names, target_of
from ...deployment import checked_file
from ...errors import ExportError
from ...records import DeployedFile, Deployment, ExporterRow, readable_bytes
from ...records.table import Table
from ...session.state import State
from ..recipe_edits import file_name
from ..section import Bench, Context, Request, Section, of_recipe
from ..wire import cell

LARGEST_DOWNLOAD = 16 << 20  # bytes; a larger file stays in the folder
PROBES = "the bisection, in the order of its steps"
PRECISIONS = ("", "fp32", "fp16", "bf16", "int8")
HASH_SHOWN = 12  # of its digits
FILE = "exported_file"  # the record of the file that the page asked for


def packed_deployment(
    deployment: Deployment | None, file: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """The tables of targets, of compared layers and of files, and the file that is downloaded."""
    if deployment is None:
        return None
    difference, table = deployment.difference, deployment.as_table("what was exported")
    tones = {"refused": "bad", "converted, not run": "open"}
    rows = [
        row | {"checked": cell(row["checked"], tone=tones.get(row["checked"], "good"), hint=inputs)}
        for row, inputs in zip(table.rows, map(_compared, deployment.rows), strict=True)
    ]
    files = [_file_row(one) for one in deployment.files]
    return {
        "title": deployment.title,
        "sentence": deployment.sentence if deployment.is_done else "",
        "folder": deployment.folder,
        "targets": table._replace(rows=rows).packed(),
        "difference": difference and difference.sentence,
        "probes": difference and Table((PROBES,), difference.table(), ("layer", "")).packed(),
        "files": Table(("files",), files, ("file", "SHA-256", "")).packed(),
        "file": file,
    }


def _compared(row: ExporterRow) -> str:
    return ", ".join(row.report.compared) if row.report else ""


def _file_row(file: DeployedFile) -> dict[str, Any]:
    download = cell(
        "Download", ask={"do": "export_file", "name": file.name}, spoken=f"download {file.name}"
    )
    return {
        "file": file.name,
        "size": readable_bytes(file.bytes),
        "SHA-256": cell(file.sha256[:HASH_SHOWN], hint=file.sha256),
        "": download if file.bytes <= LARGEST_DOWNLOAD else "in the folder",
    }


def offered_targets() -> list[dict[str, Any]]:
    """Each target with why it cannot convert here, in each precision; '' is the model's own."""
    return [
        {"name": target.name, "title": target.title, "obstacles": _obstacles(target)}
        for target in map(target_of, target_names())
    ]


def _obstacles(target: Target) -> dict[str, str]:
    own, written = target.obstacle(), ("", *target.precisions)
    barred = f": {', '.join(target.precisions)}"
    return {
        name: own or ("" if name in written else f"not written in {name}{barred}")
        for name in PRECISIONS
    }


def _ask(bench: Bench, request: Request) -> None:
    """Export with the chosen recipe into a folder beside the notebook."""
    targets, opset = request.get("targets"), request.get("opset")
    if not isinstance(targets, list) or not targets:
        raise ExportError("Choose at least one target to export to.")
    for name in targets:
        target_of(str(name))
    if opset is not None and (isinstance(opset, bool) or not isinstance(opset, int)):
        raise ExportError(f"An opset is a whole number, not {opset!r}.")
    bench.session.show(FILE, None)
    bench.session.query(
        "export",
        targets=[str(name) for name in targets],
        precision=request.get("precision") or None,
        opset=opset,
        dynamic=bool(request.get("dynamic")),
        folder=f"{file_name(bench.session.work.name)}-export",
    )


def _download(bench: Bench, request: Request) -> None:
    """Send one of the folder's files to the page, as it was when it was written; '': none more."""
    name = str(request["name"])
    if not name:
        bench.session.show(FILE, None)
        return
    deployment = of_recipe(bench.session.state, "export")
    if deployment is None or not deployment.folder:
        raise ExportError("Nothing was exported with this recipe; export it first.")
    content = checked_file(Path(deployment.folder), name, LARGEST_DOWNLOAD)
    known = {file.name: file.sha256 for file in deployment.files}
    if hashlib.sha256(content).hexdigest() != known.get(name):
        raise ExportError("The folder holds another recipe's export by now; export it again.")
    asked = {"name": name, "data": content, "number": request["id"]}
    bench.session.show(FILE, asked)


def _state(state: State, context: Context) -> dict[str, Any]:
    return {"export_targets": context.once("export targets", offered_targets, context.work)}


SECTION = Section(
    "exports",
    record=Deployment,
    pack=packed_deployment,
    sources=lambda state: (of_recipe(state, "export"), state.record(FILE)),
    title="Export",
    tab="exports",
    is_always_shown=True,
    state=_state,
    requests={"export": _ask, "export_file": _download},
)
