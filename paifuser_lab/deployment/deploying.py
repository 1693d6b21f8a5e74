"""`lab.deploy`: a model as a folder that runs without this package and without torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from .._files import write_text
from ..arguments import checked_options
from ..converter import Exportable, export, target_of
from ..errors import (
    NO_RESULT,
    ExportError,
    PaifuserError,
    ParityError,
    ShouldStop,
    StoppedError,
    stop_if_asked,
)
from ..machine import machine_label
from ..records import Comparison, Deployment, ExporterRow, LayerDifference
from ..variant.recipe import Recipe
from ..variant.recipe_checks import order_of, step_of
from .container import cluster_name, dockerfile, manifests, requirements
from .folder import replaced_folder, write_manifest
from .model_card import model_card
from .preprocessing import Preprocessing, preprocessing_of

ONNX = "onnx"
SCRIPTS = ("run.py", "check.py", "serve.py", "batch.py", "ray_serve.py")
TEMPLATES = Path(__file__).parent / "templates"
TAG_CHARACTERS = 12  # of the weights' hash, in an image's tag


class DeployOptions(BaseModel):
    """How a model is exported, and what its author states of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    precision: str | None = None  # None: as the model is
    opset: int | None = None
    dynamic: bool = False  # any batch size
    labels: Sequence[str] = ()
    preprocessing: Mapping[str, Any] = {}  # mean, std, order of an image
    licence: str = ""
    comparison: Comparison | None = None
    seconds: float = 1.0  # for timing each file beside the live model; 0 leaves that out


class _NothingToDeployError(Exception):
    """Leaves the stage without replacing the folder."""


def deploy(
    subject: Any,
    folder: str | Path,
    to: Sequence[str] = (ONNX,),
    *,
    should_stop: ShouldStop | None = None,
    **options: Any,
) -> Deployment:
    """Write a folder with the model for each target, ONNX always among them, what its inputs are,
    scripts that run it with ONNX Runtime alone, a Dockerfile, manifests and a model card.

    The subject is a variant, a workload or a model. Options are precision, opset, dynamic (any
    batch size), labels (one a class), preprocessing (mean, std, order), licence of the original and
    comparison (the measured table of the card). An existing folder is replaced whole, if an earlier
    deployment wrote all of it; a target that refuses is a row of the record, with its reason.
    """
    chosen = checked_options(DeployOptions, options, "deploy", ExportError)
    (*_, last) = deployments(subject, folder, to, chosen, should_stop=should_stop)
    if not last.folder:
        onnx = next(row for row in last.rows if row.target == ONNX)
        raise ParityError(onnx.refused or onnx.obstacle, difference=last.difference)
    return last


def deployments(
    subject: Any,
    folder: str | Path,
    to: Sequence[str],
    options: DeployOptions,
    *,
    should_stop: ShouldStop | None = None,
) -> Iterator[Deployment]:
    """The deployment as it grows, target by target; the folder stands with the last one."""
    names = checked_targets(to)
    exportable = Exportable.of(subject)
    preprocessing = preprocessing_of(
        exportable,
        stated=options.preprocessing,
        labels=options.labels,
        is_dynamic=options.dynamic,
    )
    recipe = _recipe_of(exportable)
    so_far = Deployment(
        workload=exportable.name, recipe=recipe.label, machine=machine_label(), is_done=False
    )
    with suppress(_NothingToDeployError), replaced_folder(folder) as stage:
        for name in names:
            stop_if_asked(should_stop, NO_RESULT)
            row, difference = _exported(exportable, name, stage, options, should_stop)
            so_far = _with(
                so_far, rows=(*so_far.rows, row), difference=so_far.difference or difference
            )
            yield so_far
        if so_far.rows[0].report is None:
            raise _NothingToDeployError
        notes = getattr(subject, "notes", ())
        finished = _completed(stage, exportable, preprocessing, so_far, recipe, options, notes)
        so_far = _with(finished, folder=str(folder))
    yield _with(so_far, is_done=True)


def checked_targets(to: Sequence[str]) -> tuple[str, ...]:
    """The targets, each once, ONNX first: the scripts run that file."""
    names = to.split(",") if isinstance(to, str) else to
    for name in names:
        target_of(name)
    return tuple(dict.fromkeys((ONNX, *names)))


def _recipe_of(exportable: Exportable) -> Recipe:
    """Its steps, in an order that one recipe can have: those of a saved folder may end with an
    engine, and a variant of that goes on with others.
    """
    steps = [step_of(each, "a step") for each in exportable.recipe]
    engines = [step for step in steps if step.is_last]
    others = sorted((step for step in steps if not step.is_last), key=order_of)
    return Recipe([*others, *engines[-1:]], workload=exportable.name)


def _exported(
    exportable: Exportable,
    name: str,
    stage: Path,
    options: DeployOptions,
    should_stop: ShouldStop | None,
) -> tuple[ExporterRow, LayerDifference | None]:
    """A target's row: what it wrote into the stage, or why it refused, and where it differs."""
    target = target_of(name)
    row = ExporterRow(target=name, title=target.title, extra=target.extra)
    if obstacle := target.obstacle():
        return row.model_copy(update={"obstacle": obstacle}), None
    path = (stage if name == ONNX else stage / name) / f"model{target.suffix}"
    chosen = _options_of(target, options)
    try:
        report = export(
            exportable, name, path, seconds=options.seconds, should_stop=should_stop, **chosen
        )
    except StoppedError:
        raise
    except PaifuserError as error:
        shutil.rmtree(stage / name, ignore_errors=True)
        difference = getattr(error, "difference", None)
        return row.model_copy(update={"refused": str(error)}), difference
    if name == ONNX and not report.runs_here:
        why = f"{report.not_verified} The scripts of a deploy folder run it; choose fp32 or fp16."
        return row.model_copy(update={"refused": why}), None
    inside = report.model_copy(update={"path": path.relative_to(stage).as_posix()})
    return row.model_copy(update={"report": inside}), None


def _options_of(target: Any, options: DeployOptions) -> dict[str, Any]:
    """The options that a target has; one that it has not cannot be asked of it."""
    wanted: dict[str, Any] = {"opset": options.opset, "dynamic": options.dynamic or None}
    given = {key: value for key, value in wanted.items() if key in target.Options.model_fields}
    given["precision"] = options.precision
    return {key: value for key, value in given.items() if value is not None}


def _completed(
    stage: Path,
    exportable: Exportable,
    preprocessing: Preprocessing,
    so_far: Deployment,
    recipe: Recipe,
    options: DeployOptions,
    notes: Sequence[str],
) -> Deployment:
    """Write what stands beside the model: inputs, labels, scripts, image, card, hashes."""
    report = so_far.rows[0].report
    assert report is not None
    preprocessing = preprocessing.model_copy(update={"tolerance": report.tolerance})
    write_text(stage / "preprocessing.json", preprocessing.model_dump_json(indent=1) + "\n")
    if preprocessing.labels:
        write_text(stage / "labels.json", json.dumps(preprocessing.labels, indent=1) + "\n")
    _write_arrays(stage / "example.npz", exportable.input_names, exportable.tensors)
    _write_arrays(stage / "expected.npz", exportable.output_names, exportable.reference)
    for script in SCRIPTS:
        shutil.copyfile(TEMPLATES / script, stage / script)
    _write_image(stage, exportable, report.bytes)
    card = model_card(
        exportable,
        so_far,
        preprocessing,
        recipe.to_text(),
        licence=options.licence,
        notes=notes,
        comparison=options.comparison,
    )
    write_text(stage / "MODEL_CARD.md", card)
    files = write_manifest(stage, model=exportable.name, recipe=recipe.digest)
    return _with(so_far, files=files)


def _write_image(stage: Path, exportable: Exportable, model_bytes: int) -> None:
    """The Dockerfile, its packages, and the manifests."""
    name, tag = cluster_name(exportable.name), exportable.weights_hash[:TAG_CHARACTERS]
    image, batch_image = f"{name}:{tag}", f"{name}-batch:{tag}"
    write_text(stage / "requirements.txt", requirements())
    write_text(stage / "Dockerfile", dockerfile(image, batch_image))
    (stage / "kubernetes").mkdir()
    for file, text in manifests(name, image, batch_image, model_bytes).items():
        write_text(stage / "kubernetes" / file, text)


def _write_arrays(path: Path, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """Tensors by name, in types that numpy has."""
    plain = [tensor.float() if tensor.dtype == torch.bfloat16 else tensor for tensor in tensors]
    arrays: dict[str, Any] = {
        name: tensor.cpu().numpy() for name, tensor in zip(names, plain, strict=True)
    }
    # the keyword allow_pickle would be one more array before numpy 2.2
    numpy.savez(path, **arrays)


def _with(deployment: Deployment, **changes: Any) -> Deployment:
    return deployment.model_copy(update=changes)
