"""Loads a workload by name: from the zoo, from a file or a folder of another tool, from a
transformers config, or from a function of the user's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import zoo
from .._files import file_exists
from ..arguments import check_count, device_of
from ..errors import (
    MissingInputsError,
    PaifuserError,
    UnknownModelError,
    WorkloadError,
    first_line,
    optional_module,
)
from ..importer import Imported
from ..importer.hugging_face import load_folder, plausible_inputs
from ..model.weights import load_weights
from ..records import Origin
from ..records.record import WorkloadName
from ..workload import Workload, inputs_of_shapes
from ..workload.checks import check_data
from ..workload.generation import give_text, writes_text
from ..zoo.installed import MINILM, installed_names, name_of_file
from ..zoo.language import give_sentences
from .model_files import (
    FOLDER,
    PARTS,
    changed,
    check_options,
    content_hash,
    is_model_file,
    is_program,
    places,
    read_model_file,
)
from .python_names import CodeName, shapes_of
from .trust import check_program, followed, imported, names_function

TEXT = "text"  # the option of a language model: a plain file to learn from and to judge by


def load(
    name: str,
    *,
    batch: int | None = None,
    seed: int = 0,
    weights: str | Path | None = None,
    data: str | None = None,
    device: str = "cpu",
    trust: bool = False,
    **options: Any,
) -> Workload:
    """Load a workload by a name that is no folder; `lab.load` says which there are, and what its
    options mean.
    """
    size = 1 if batch is None else batch
    check_count("batch", size, error=WorkloadError)
    target = device_of(device)
    asked, name = name, name_of_file(name)
    with _fits_memory(name, size):
        if is_model_file(name):
            check_program(name, trust=trust)
            # a program has the batch of its capture unless another is given
            work = _from_file(name, batch if is_program(name) else size, seed, options)
        elif name.startswith("hf:"):
            work = _from_transformers(name, size, seed, options)
        elif ":" in name:
            _check_batch(name, batch)
            work = _from_function(name, seed, options)
        else:
            work = _from_zoo(name, size, seed, options)
    if asked != name:
        work.name = WorkloadName(asked)
    if asked == MINILM:
        give_sentences(work)
    work.origin = _origin(asked, batch, seed, options, work, name)
    if weights is not None:
        load_weights(work.model, weights)
        work.loaded_with["weights"] = str(weights)
    if data is not None:
        work.train, work.test = _load_data(data, seed)
        work.metric = work.metric if work.test is not None else None
        check_data(work)
        work.loaded_with["data"] = data
    return work if target == work.device else work.to(target)


@contextmanager
def _fits_memory(name: str, batch: int) -> Iterator[None]:
    """One sentence on too large a batch; other errors pass."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if batch == 1 or "allocate" not in str(error):
            raise
        raise WorkloadError(
            f"{name!r} does not fit into memory with batch={batch}; give a smaller batch."
        ) from error


def load_named_in_file(
    origin: Origin,
    source: Path,
    *,
    trust: bool,
    batch: int | None,
    seed: int,
    device: str,
    options: dict[str, Any],
) -> Workload:
    """Load the workload that a file names: a function only with `trust`, or as the module `trust`
    allows; a file of another tool only if it holds what it held.
    """
    name = origin.name
    if origin.sha256:
        for place in places(origin, source):
            if is_program(place) and content_hash([Path(place)]) != origin.sha256:
                continue  # another program is not even unpickled
            work = load(place, batch=batch, seed=seed, device=device, trust=trust, **options)
            if work.origin is not None and work.origin.sha256 == origin.sha256:
                return work
        raise changed(place)
    if trust or not names_function(name):
        return load(name, batch=batch, seed=seed, device=device, trust=trust, **options)
    _check_batch(name, batch)
    work = _workload_from(followed(name, source), name, seed, options)
    work.origin = _origin(name, batch, seed, options, work)
    target = device_of(device)
    return work if target == work.device else work.to(target)


def _origin(
    name: str,
    batch: int | None,
    seed: int,
    options: dict[str, Any],
    work: Workload,
    source: str = "",
) -> Origin | None:
    """How to load the workload again; None if an option is not JSON data. `source` is what a name
    of a package's network stands for.
    """
    if work.files:  # which say by themselves what the model is
        stated = work.preprocessing if "preprocessing" in options else None
        options = {key: value for key, value in options.items() if key not in PARTS}
        options |= {} if stated is None else {"preprocessing": stated.model_dump(mode="json")}
        if options.get(TEXT) is not None:  # may be a Path
            options = options | {TEXT: str(Path(options[TEXT]).absolute())}
    try:
        is_plain = json.loads(json.dumps(options)) == options
    except (TypeError, ValueError):
        return None
    if not is_plain:
        return None
    source = (source or name).removeprefix(FOLDER)
    path = str(Path(source).absolute()) if work.files else ""
    return Origin(
        name=name, batch=batch, seed=seed, options=options, path=path,
        sha256=content_hash(work.files),
    )  # fmt: skip


def models() -> tuple[str, ...]:
    """The names that `load` knows without a download."""
    return (*zoo.names(), *installed_names())


def _from_file(name: str, batch: int | None, seed: int, options: dict[str, Any]) -> Workload:
    check_options(name, options)
    own = {key: value for key, value in options.items() if key in PARTS}
    read = {key: value for key, value in options.items() if key not in (*PARTS, TEXT)}
    imported = read_model_file(name, batch=batch, seed=seed, **read)
    return _workload(imported, options.get(TEXT), **own)


def _workload(imported: Imported, text: str | Path | None = None, **parts: Any) -> Workload:
    known = {"name": imported.name, "preprocessing": imported.preprocessing}
    work = Workload(imported.model, imported.inputs, **(known | parts))
    work.notes, work.files = imported.notes, imported.files
    work.make_tokenizer = imported.make_tokenizer
    if text is not None:
        if not writes_text(work.model):
            raise WorkloadError(f"{work.name} generates no text; leave the option text out.")
        give_text(work, text)
    return work


def _from_zoo(name: str, batch: int, seed: int, options: dict[str, Any]) -> Workload:
    if unknown := options.keys() - {"trained"}:
        raise WorkloadError(
            f"{name!r} has no option '{min(unknown)}'; it has batch, seed, trained."
        )
    parts = zoo.build(name, batch=batch, seed=seed, **options)
    return Workload(**vars(parts), name=name)


def _check_batch(name: str, batch: int | None) -> None:
    """Refuse a batch for a function or class, which would not see it."""
    if batch is None:
        return
    parts = CodeName.of(name)
    code, shape = f"{parts.module}:{parts.attribute}", f"{batch}x3x32x32"
    raise WorkloadError(
        f"{code} chooses its batch itself; leave batch={batch} out (on the command line: --batch), "
        f"or add the shapes of the inputs of a model that has none, {code}@{shape} (on the command "
        f"line: --input {shape})."
    )


def _from_function(name: str, seed: int, options: dict[str, Any]) -> Workload:
    with _importable(CodeName.of(name).folder):
        with torch.random.fork_rng(devices=[]):  # a module may hold a model
            torch.manual_seed(seed)
            function = imported(name)
        return _workload_from(function, name, seed, options)


def _workload_from(
    function: Callable[..., Any], name: str, seed: int, options: dict[str, Any]
) -> Workload:
    """The workload of what a function or class makes, with the inputs that the name gives."""
    parts = CodeName.of(name)
    made = _call_function(function, name, seed, options)
    result = (made, None) if isinstance(made, nn.Module) else made
    if isinstance(result, Workload):
        if parts.shapes:
            raise WorkloadError(
                f"{parts.module}:{parts.attribute} returns a Workload, which has its inputs; leave "
                f"@{parts.shapes} (on the command line: --input) out."
            )
        return result
    if not (isinstance(result, tuple) and len(result) == 2):
        raise WorkloadError(
            f"{name} returned {type(result).__name__}; return a Workload, a pair of a model and "
            "its inputs, or a model."
        )
    model, inputs = result
    if parts.shapes:
        inputs = inputs_of_shapes(model, shapes_of(name), seed)
    try:
        return Workload(model, inputs, name=parts.attribute)
    except MissingInputsError as error:
        raise MissingInputsError(
            f"{name} makes a model whose inputs are not known: add their shapes, "
            f"{name}@1x3x32x32 (on the command line: --input 1x3x32x32), or return a pair of the "
            "model and its inputs."
        ) from error


def _call_function(
    function: Callable[..., Any], name: str, seed: int, options: dict[str, Any]
) -> Any:
    """The result of a user's function; an error is reported with its name and options."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            # a model that the module holds is given as it is
            return function if isinstance(function, nn.Module) else function(**options)
        except PaifuserError:
            raise
        except Exception as error:
            suffix = (
                f" with {', '.join(f'{key}={value!r}' for key, value in options.items())}"
                if options
                else ""
            )
            reason = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
            raise WorkloadError(
                f"{name!r} fails when called{suffix or ' without options'} ({reason}); correct it."
            ) from error


def _load_data(name: str, seed: int) -> tuple[Any, Any]:
    """The train and test batches from a function."""
    with _importable(CodeName.of(name).folder):
        data = _call_function(imported(name), name, seed, {})
    if isinstance(data, tuple) and len(data) == 2:
        return data
    raise WorkloadError(
        f"{name} returned {type(data).__name__}; as data, return a pair: batches to learn from, "
        "and to judge by."
    )


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _from_transformers(name: str, batch: int, seed: int, options: dict[str, Any]) -> Workload:
    path = name.removeprefix("hf:")
    if os.sep in path or path.startswith(".") or file_exists(Path(path) / "config.json"):
        if others := options.keys() - {TEXT}:
            raise WorkloadError(f"{name} has its own config; leave the option {min(others)!r} out.")
        imported = load_folder(path, batch=batch, seed=seed)
        return _workload(imported, options.get(TEXT))
    transformers = optional_module("transformers", extra="hf", needed_for=name)
    if TEXT in options:
        raise WorkloadError(
            f"There is no folder {path!r} with a config.json here, and a config alone has no "
            "tokenizer for text; give the folder's path: hf:FOLDER."
        )
    try:
        config = transformers.AutoConfig.for_model(name.removeprefix("hf:"), **options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = transformers.AutoModel.from_config(config).eval()
        inputs = plausible_inputs(model, batch, seed, name=name)
    except PaifuserError:
        raise
    except Exception as error:  # the config raises whatever the use of a wrong option raises
        raise UnknownModelError(
            f"transformers cannot make {name!r}: {first_line(error)}"
        ) from error
    return Workload(model, inputs, name=name)
