"""Repeats the steps of a saved model on the original's code, loads its weights, and checks that its
output is unchanged.
"""

from __future__ import annotations

from torch import nn

from ...errors import FileError, PaifuserError, first_line
from ...model.weights import load_weights
from ...quantization import QuantizedLayer, reduce_ranges
from ...records import SavedStep
from ...steps import Draft, Step
from ...workload import Workload
from .read import SavedFolder
from .sketch import difference, sketch_of

# The allowed change of the output; other versions of torch and processors sum in another order.
ALLOWED = 1e-2
ALLOWED_IN_FEW_BITS = 0.1
MOST_BITS = 4  # bytes per number; smaller formats have few bits


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
        load_weights(draft.module, folder.weights)
    except FileError as error:
        raise FileError(
            f"{folder.path} does not fit {work.name}: {error} {_changed(work)}"
        ) from error
    is_meant = any(step.options.get("reduced_range") is False for step in folder.recipe)
    notes = [] if is_meant else reduce_ranges(draft.module)
    for step, saved in steps:
        if step.is_last:
            _rebuild(folder, draft, step, saved)
    draft.call_in_pool()
    _check_output(folder, draft)
    return draft, notes


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
    if gap is not None and not gap <= _allowed(draft.module):
        raise FileError(
            f"{folder.path} loads, but its output for the example inputs differs by {gap:.1e} "
            f"from that when it was saved (with torch {folder.torch}). {_changed(draft.work)}"
        )


def _allowed(module: nn.Module) -> float:
    is_rounded = any(isinstance(layer, QuantizedLayer) for layer in module.modules())
    has_few_bits = any(
        weight.is_floating_point() and weight.itemsize < MOST_BITS for weight in module.parameters()
    )
    return ALLOWED_IN_FEW_BITS if is_rounded or has_few_bits else ALLOWED
