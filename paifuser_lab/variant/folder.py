"""A compressed model as one folder, which is loaded without executing anything but the code that
builds the original.

    recipe.yaml            the steps
    structure.json         what each step chose and reported, and where the original comes from
    (records.SavedModel)
    weights.safetensors    the weights, tied ones once
    report.json            a comparison or another record; by default the checks of `apply`
    manifest.json          the SHA-256 of each file

A folder appears with all its files, and takes the place of an earlier one in one step. It is read
if its hashes match; then the steps are repeated on the original's code, the weights loaded, and
the output compared.
"""

from __future__ import annotations

import math
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from .. import zoo
from .._files import (
    cannot_write,
    check_size,
    checked_path,
    file_exists,
    folder_exists,
    read_text,
    replace_folder,
    sha256,
    staged,
)
from ..errors import FileError, PaifuserError, RecipeError, first_line
from ..model.tensors import tensors_in
from ..model.weights import answer_hash, load_weights, save_weights
from ..quantization import QuantizedLayer, reduce_ranges
from ..quantization.float_formats import computes_in_16_bits
from ..records import Manifest, Measurement, Origin, Record, SavedModel, SavedStep, Sketch
from ..steps import Draft, Step, step_names
from ..steps.pool import NOT_HERE
from ..steps.step import DEFINED
from ..workload import Workload, running
from .load import TEXT, load_named_in_file, models
from .model_files import is_model_file, is_program
from .python_names import CodeName
from .recipe import Recipe
from .trust import check_named_in_file, names_function

VERSION = 1
RECIPE, STRUCTURE, WEIGHTS, REPORT, MANIFEST = (
    "recipe.yaml",
    "structure.json",
    "weights.safetensors",
    "report.json",
    "manifest.json",
)
NEEDED = (RECIPE, STRUCTURE, WEIGHTS)
GIVE = "If you have the original, give it: load(folder, work=original)."
# The allowed change of the output; other versions of torch and processors sum in another order.
ALLOWED = 1e-2
ALLOWED_IN_FEW_BITS = 0.1
SHADOWS = 32  # numbers of a sketch
MOST_NUMBERS = 1 << 14  # per tensor


def write_folder(
    folder: Path,
    recipe: Recipe,
    module: nn.Module,
    saved: SavedModel,
    report: Record | None,
    checked: Measurement,
) -> None:
    """Write the files; without a new report one about these weights stays, else `checked`."""
    folder = checked_path(folder).resolve()
    try:
        if folder.exists() and not folder.is_dir():
            raise FileError(f"{folder} is a file; give a folder.")
        with staged(folder) as stage:
            recipe.save(stage / RECIPE)
            saved.save(stage / STRUCTURE)
            save_weights(module, stage / WEIGHTS)
            if report is not None or not _keep_report(folder / REPORT, saved.weights_hash, stage):
                (report or checked).save(stage / REPORT)
            files = {path.name: sha256(path) for path in sorted(stage.iterdir())}
            Manifest(version=VERSION, torch=torch.__version__, files=files).save(stage / MANIFEST)
            _swap(stage, folder)
    except (OSError, FileError) as error:
        cause = error.__cause__ if isinstance(error, FileError) else error
        if not isinstance(cause, OSError):
            raise
        raise cannot_write(f"into {folder}", cause) from error


def _keep_report(report: Path, weights_hash: str, stage: Path) -> bool:
    """Whether an existing report stays: one about these weights, which is copied to the stage, or
    one that no earlier save has written.
    """
    if not report.is_file():
        return False
    try:
        if weights_hash in read_text(report):
            shutil.copyfile(report, stage / REPORT)
            return True
        return sha256(report) != Manifest.load(report.with_name(MANIFEST)).files.get(REPORT)
    except FileError:  # it is not text, or there was no earlier save
        return True


def _swap(stage: Path, folder: Path) -> None:
    """Put the stage in the folder's place in one step, with what else is in that folder."""
    for path in folder.iterdir() if folder.exists() else ():
        if not (stage / path.name).exists():
            _link(path, stage / path.name)
    replace_folder(stage, folder)


def _link(source: str | Path, target: str | Path) -> None:
    """A hard link, or a copy where the file system has none; of a folder, to each of its files."""
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


@dataclass(frozen=True)
class SavedFolder:
    """The contents of a folder, with valid hashes; the weights are still in their file."""

    path: Path
    recipe: Recipe
    saved: SavedModel
    torch: str


def is_folder(name: str | Path) -> bool:
    """Whether a folder exists that holds a recipe."""
    return file_exists(Path(name) / RECIPE)


def remove_folder(path: Path) -> None:
    """Remove a saved model: the files that a save wrote, and the folder if it holds no others."""
    try:
        saved = _manifest(path).files
    except FileError:  # nothing was saved there
        return
    for name in (*NEEDED, REPORT):
        if name in saved:
            (path / name).unlink(missing_ok=True)
    (path / MANIFEST).unlink()
    with suppress(OSError):  # it holds others, or is a link
        path.rmdir()


def read_folder(path: str | Path) -> SavedFolder:
    """Read everything but the weights, after the hash of every file has been verified."""
    path = Path(path)
    manifest = _manifest(path)
    for name in NEEDED:
        if not (path / name).is_file():
            raise FileError(f"{path} no longer has {name}; copy the whole folder again.")
        if name != WEIGHTS:
            check_size(path / name)
        if sha256(path / name) != manifest.files.get(name):
            raise FileError(
                f"{path / name} is not the file that was saved: it was changed or cut short; copy "
                "the whole folder again."
            )
    saved = SavedModel.load(path / STRUCTURE)
    _check_steps(path, saved)
    recipe = Recipe.load(path / RECIPE)
    if [step.kind for step in recipe] != [step.kind for step in saved.steps]:
        raise FileError(
            f"{path}: {RECIPE} and {STRUCTURE} list different steps; apply the recipe and save "
            "it anew."
        )
    return SavedFolder(path, recipe, saved, manifest.torch)


def original_of(
    folder: SavedFolder,
    *,
    trained: bool,
    trust: bool = False,
    batch: int | None = None,
    seed: int | None = None,
    device: str = "cpu",
    **options: Any,
) -> Workload:
    """The workload that the model was made from, by the name in its folder, which is followed as
    the module `trust` allows. With `trained=False` the original is not trained.
    """
    origin = folder.saved.origin or _by_recipe(folder)
    if not trust:
        # beside weights that have a hash a text is only read; in a config it may mean anything
        checked = {
            key: value for key, value in origin.options.items() if key != TEXT or not origin.sha256
        }
        check_named_in_file(origin.name, checked, folder.path)
    all_options = {**_own_options(folder, origin, options), **options}
    if not trained and origin.name in zoo.names():
        all_options["trained"] = False
    # earlier folders of programs have 1 where no batch was chosen, those of functions any
    is_own = names_function(origin.name) or (is_program(origin.name) and origin.batch == 1)
    known = None if is_own else origin.batch
    try:
        return load_named_in_file(
            origin,
            folder.path,
            trust=trust,
            batch=known if batch is None else batch,
            seed=origin.seed if seed is None else seed,
            device=device,
            options=all_options,
        )
    except PaifuserError as error:
        raise FileError(
            f"{folder.path} was made from {origin.name!r}, which cannot be loaded here: {error} "
            f"{GIVE}"
        ) from error


def _manifest(path: Path) -> Manifest:
    if not folder_exists(path):
        raise FileError(f"There is no folder {str(path)!r}.")
    if not (path / MANIFEST).is_file():
        raise FileError(
            f"{path} has no {MANIFEST}, so it is no saved model, or saving it was interrupted; a "
            "model is saved with variant.save(folder)."
        )
    manifest = Manifest.load(path / MANIFEST)
    if manifest.version != VERSION:
        raise FileError(
            f"{path} is a saved model of version {manifest.version}; this program reads version "
            f"{VERSION}."
        )
    return manifest


def _check_steps(path: Path, saved: SavedModel) -> None:
    for step in saved.steps:
        if step.kind not in step_names() and step.kind not in DEFINED:
            remedy = (
                "which a notebook or script has defined; define it here first."
                if step.package == "__main__"
                else f"which comes with the package '{step.package}'; install that first."
            )
            raise RecipeError(f"{path} needs step '{step.kind}', {remedy}")


def can_be_named(name: str | None) -> bool:
    """Whether a recipe's workload is a name to load the original by."""
    if name is None:
        return False
    # a workload may be called 'exp 3: wide'
    names_code = ":" in name and CodeName.of(name).attribute.isidentifier()
    return names_code or name.startswith("hf:") or name in models() or is_model_file(name)


def _by_recipe(folder: SavedFolder) -> Origin:
    """The origin of a model that was not loaded by name, by the name in its recipe."""
    name = folder.recipe.workload
    if name is None or not can_be_named(name):
        raise FileError(
            f"{folder.path} was made from a model that has no name to load it by "
            f"('{folder.saved.name}'). {GIVE}"
        )
    return Origin(name=name)


def _own_options(folder: SavedFolder, origin: Origin, options: dict[str, Any]) -> dict[str, Any]:
    """The options that the original was built with; those of a function are not taken from a file,
    as the function may do anything with them.
    """
    if not names_function(origin.name):
        return origin.options
    if missing := [
        f"{key}={value!r}" for key, value in origin.options.items() if key not in options
    ]:
        raise FileError(
            f"{folder.path} was made from {origin.name} with {', '.join(missing)}; a function's "
            f"options are not taken from a file, so give them: "
            f"load(folder, {', '.join(missing)})."
        )
    return {}


def rebuild(folder: SavedFolder, work: Workload, module: nn.Module) -> tuple[Draft, list[str]]:
    """Give a module of the original's code the saved structure and weights; steps that come last,
    such as an engine, follow the weights. Also notes on what differs here from what was saved.
    """
    draft = Draft(work, module)
    steps = list(zip(folder.recipe, folder.saved.steps, strict=True))
    for step, saved in steps:
        if not step.is_last:
            _rebuild(folder, draft, step, saved)
    try:
        load_weights(draft.module, folder.path / WEIGHTS)
    except FileError as error:
        raise FileError(
            f"{folder.path} does not fit {work.name}: {error} {_changed(work)}"
        ) from error
    rounding = [step for step in folder.recipe if step.kind in ("precision", "qat")]
    is_meant = any(step.options.get("reduced_range") is False for step in rounding)
    notes = reduce_ranges(draft.module) if rounding and not is_meant else []
    for step, saved in steps:
        if step.is_last:
            _rebuild(folder, draft, step, saved)
    draft.call_in_pool()
    _check_output(folder, draft)
    return draft, [*notes, *(note for note in draft.notes if note.startswith(NOT_HERE))]


def _rebuild(folder: SavedFolder, draft: Draft, step: Step, saved: SavedStep) -> None:
    try:
        step.rebuild(draft, saved.remembered)
    except PaifuserError as error:
        raise FileError(
            f"{folder.path}, step '{step.label}': {str(error).rstrip('.')}. {_changed(draft.work)}"
        ) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
        raise FileError(
            f"{folder.path}, step '{step.label}' cannot be repeated: {reason}. "
            f"{_changed(draft.work)}"
        ) from error


def _changed(work: Workload) -> str:
    return f"Load it with the code and the options that {work.name} had when it was saved."


def _check_output(folder: SavedFolder, draft: Draft) -> None:
    """Refuse code that computes something else from equal weights."""
    if folder.saved.sketch is None:
        return
    try:
        sketch = sketch_of(draft.work, draft.model)
    except Exception as error:
        raise FileError(
            f"{folder.path} loads, but does not run on the example inputs "
            f"({first_line(error).rstrip('.')}). {_changed(draft.work)}"
        ) from error
    gap = difference(folder.saved.sketch, sketch)
    if gap is not None and not gap <= _allowed(draft):
        raise FileError(
            f"{folder.path} loads, but its output for the example inputs differs by {gap:.1e} "
            f"from that when it was saved (with torch {folder.torch}). {_changed(draft.work)}"
        )


def _allowed(draft: Draft) -> float:
    is_rounded = any(
        isinstance(layer, QuantizedLayer) or getattr(layer, "is_onnx_file", False)
        for layer in draft.module.modules()
    )
    has_few_bits = computes_in_16_bits(draft.module) or getattr(
        draft.model, "computes_in_bf16", False
    )
    return ALLOWED_IN_FEW_BITS if is_rounded or has_few_bits else ALLOWED


def sketch_of(work: Workload, model: nn.Module) -> Sketch | None:
    """A model's output for the example inputs as a few numbers that keep distances, by a random
    projection (Johnson and Lindenstrauss 1984); None if the model is not deterministic.
    """
    with running(model):
        output, repeated = (work.inputs.clone()(model) for _ in range(2))
    if answer_hash(output) != answer_hash(repeated):
        return None
    leaves = tensors_in(output)
    rows = [_numbers(leaf) for leaf in leaves]
    return Sketch(
        inputs=answer_hash(work.inputs.tensors),
        answer=answer_hash(output),
        norms=tuple(float(row.norm()) for row in rows),
        shapes=tuple(tuple(leaf.shape) for leaf in leaves),
        shadows=tuple(tuple((_signs(len(row)) @ row).tolist()) for row in rows),
    )


def difference(saved: Sketch, now: Sketch | None) -> float | None:
    """The estimated relative L2 distance of two outputs; None if it is not known."""
    if now is None or now.inputs != saved.inputs:
        return None
    if now.answer == saved.answer:
        return 0.0
    if not all(map(math.isfinite, saved.norms)):  # of an earlier version
        return None
    forms = [(one.shapes, [len(shadow) for shadow in one.shadows]) for one in (saved, now)]
    if forms[0] != forms[1]:
        return math.inf
    pairs = zip(saved.shadows, now.shadows, strict=True)
    gap = sum(float(numpy.square(numpy.subtract(first, second)).mean()) for first, second in pairs)
    total = sum(norm**2 for norm in saved.norms)
    return math.sqrt(gap / total) if total else math.sqrt(gap)


def _numbers(leaf: Tensor) -> Tensor:
    """The tensor's numbers, 0 for an infinity; of a large tensor a sample at even distances."""
    flat = (torch.view_as_real(leaf) if leaf.is_complex() else leaf).detach().cpu().reshape(-1)
    sample = flat[:: max(1, flat.numel() // MOST_NUMBERS)][:MOST_NUMBERS].double()
    return sample.masked_fill(sample.isinf(), 0.0)  # inf - inf is no distance


def _signs(count: int) -> Tensor:
    """Random signs, always the same: numpy keeps RandomState's stream stable."""
    signs = numpy.random.RandomState(0).randint(0, 2, (SHADOWS, count)) * 2.0 - 1.0
    return torch.from_numpy(signs)
