"""The section of export: which targets there are here, what each wrote or why it refused, where a
refused model's outputs begin to differ, and the files to take along.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ...converter import target_names, target_of
from ...deployment import checked_file
from ...errors import ExportError
from ...records import DeployedFile, Deployment, ExporterRow
from ...session.state import State
from ..section import Bench, Context, Request, Section

LARGEST_DOWNLOAD = 16 << 20  # bytes; a larger file stays in the folder
FILE = "exported_file"  # the record of the file that the page asked for


def packed_deployment(
    deployment: Deployment | None, file: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """The targets' rows, the first differing layer, the files, and the one that is downloaded."""
    if deployment is None:
        return None
    difference = deployment.difference
    return {
        "title": deployment.title,
        "sentence": deployment.sentence if deployment.is_done else "",
        "folder": deployment.folder,
        "rows": [_packed_row(row) for row in deployment.rows],
        "difference": None
        if difference is None
        else {
            "sentence": difference.sentence,
            "layer": difference.layer,
            "tolerance": difference.tolerance,
            "probes": [list(probe) for probe in difference.probes],
        },
        "files": [_packed_file(one) for one in deployment.files],
        "file": file,
    }


def _packed_row(row: ExporterRow) -> dict[str, Any]:
    report = row.report
    packed: dict[str, Any] = {
        "target": row.target,
        "title": row.title,
        "refused": row.refused or row.obstacle,
    }
    if report is None:
        return packed
    return packed | {
        "path": report.path,
        "precision": report.precision,
        "opset": report.opset,
        "bytes": report.bytes,
        "error": report.error,
        "tolerance": report.tolerance,
        "compared": list(report.compared),
        "not_verified": report.not_verified,
        "latency_ms": report.latency_ms,
        "live_ms": report.live_ms,
        "notes": list(report.notes),
    }


def _packed_file(file: DeployedFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "can_download": file.bytes <= LARGEST_DOWNLOAD,
    }


def deployment_now(state: State) -> Deployment | None:
    """The deployment of the current recipe; None if it was not exported."""
    deployment: Deployment | None = (state.record("export") or {}).get(state.recipe.digest)
    return deployment


def offered_targets() -> list[dict[str, Any]]:
    """Each target with what it can deliver, and why it cannot convert here."""
    targets = [target_of(name) for name in target_names()]
    return [
        {
            "name": target.name,
            "title": target.title,
            "precisions": list(target.precisions),
            "obstacle": target.obstacle(),
            "has_opset": "opset" in target.Options.model_fields,
        }
        for target in targets
    ]


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
        folder=folder_name(bench.session.work.name),
    )


def folder_name(workload: str) -> str:
    """The deploy folder of a model, in the notebook's folder."""
    plain = re.sub(r"[^\w.-]+", "_", workload).strip("._")
    return f"{plain or 'model'}-export"


def _download(bench: Bench, request: Request) -> None:
    """Send one of the folder's files to the page, as it was when it was written."""
    deployment = deployment_now(bench.session.state)
    if deployment is None or not deployment.folder:
        raise ExportError("Nothing was exported with this recipe; export it first.")
    name = str(request["name"])
    content = checked_file(Path(deployment.folder), name, LARGEST_DOWNLOAD)
    asked = {"name": name, "data": content, "number": request["id"]}
    bench.session.show(FILE, asked)


def _state(state: State, context: Context) -> dict[str, Any]:
    return {"export_targets": context.once("export targets", offered_targets, context.work)}


SECTION = Section(
    "exports",
    record=Deployment,
    pack=packed_deployment,
    sources=lambda state: (deployment_now(state), state.record(FILE)),
    title="Export",
    tab="exports",
    is_wide=True,
    is_always_shown=True,
    state=_state,
    requests={"export": _ask, "export_file": _download},
)
