"""Reads a compressed model's folder, and builds the workload that it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import zoo
from ..._files import check_size, file_exists, folder_exists, sha256
from ...errors import FileError, PaifuserError, RecipeError
from ...loading.load import load_named_in_file
from ...loading.model_files import is_model_file
from ...loading.trust import check_named_in_file, names_function
from ...recipe import Recipe
from ...records import Manifest, Origin, SavedModel
from ...steps import step_names
from ...workload import Workload
from .write import MANIFEST, RECIPE, STRUCTURE, VERSION, WEIGHTS

NEEDED = (RECIPE, STRUCTURE, WEIGHTS)


@dataclass(frozen=True)
class SavedFolder:
    """The contents of a folder, with valid hashes; the weights are still in their file."""

    path: Path
    recipe: Recipe
    saved: SavedModel
    torch: str

    @property
    def weights(self) -> Path:
        """The path of the weights."""
        return self.path / WEIGHTS


def is_folder(name: str | Path) -> bool:
    """Whether a folder exists that holds a recipe."""
    return file_exists(Path(name) / RECIPE)


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
        check_named_in_file(origin.name, origin.options, folder.path)
    all_options = {**_own_options(folder, origin, options), **options}
    if not trained and origin.name in zoo.names():
        all_options["trained"] = False
    try:
        return load_named_in_file(
            origin,
            folder.path,
            trust=trust,
            batch=origin.batch if batch is None else batch,
            seed=origin.seed if seed is None else seed,
            device=device,
            options=all_options,
        )
    except PaifuserError as error:
        raise FileError(
            f"{folder.path} was made from {origin.name!r}, which cannot be loaded here: {error} "
            f"{GIVE}"
        ) from error


GIVE = "If you have the original, give it: load(folder, work=original)."


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
        if step.kind not in step_names():
            raise RecipeError(
                f"{path} needs step '{step.kind}', which comes with the package '{step.package}'; "
                "install that first."
            )


def can_be_named(name: str | None) -> bool:
    """Whether a recipe's workload is a name to load the original by."""
    return name is not None and (":" in name or name in zoo.names() or is_model_file(name))


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
