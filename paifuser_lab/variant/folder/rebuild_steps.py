"""Do the steps of a saved model again on the original's code, load its weights, and see that it
answers as it did.
"""

from __future__ import annotations

from torch import nn

from ...errors import FileError, PaifuserError, first_line
from ...model.weights import load_weights
from ...quantization import QuantizedLayer
from ...records import SavedStep
from ...steps import Draft, Step
from ...workload import Workload
from .read import SavedFolder
from .sketch import difference, sketch_of

# of the answer, where other versions of torch and other processors add up in another order
ALLOWED = 1e-2
ALLOWED_IN_FEW_BITS = 0.1
MOST_BITS = 4  # bytes of a number that is not few bits


def rebuild(found: SavedFolder, work: Workload, module: nn.Module) -> Draft:
    """Give a module of the original's code the structure and the weights that were saved; what
    comes last, such as an engine, after them.
    """
    draft = Draft(work, module)
    steps = list(zip(found.recipe, found.saved.steps, strict=True))
    for step, saved in steps:
        if not step.is_last:
            _rebuild(found, draft, step, saved)
    try:
        load_weights(draft.module, found.weights)
    except FileError as error:
        raise FileError(
            f"{found.path} does not fit {work.name}: {error} {_changed(work)}"
        ) from error
    for step, saved in steps:
        if step.is_last:
            _rebuild(found, draft, step, saved)
    _check_answer(found, draft)
    return draft


def _rebuild(found: SavedFolder, draft: Draft, step: Step, saved: SavedStep) -> None:
    try:
        step.rebuild(draft, saved.remembered)
    except PaifuserError as error:
        raise FileError(
            f"{found.path}, step '{step.label}': {str(error).rstrip('.')}. {_changed(draft.work)}"
        ) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
        raise FileError(
            f"{found.path}, step '{step.label}' cannot be done again: {reason}. "
            f"{_changed(draft.work)}"
        ) from error


def _changed(work: Workload) -> str:
    return f"Load it with the code and the options that {work.name} had when it was saved."


def _check_answer(found: SavedFolder, draft: Draft) -> None:
    """Equal weights in changed code would answer otherwise, and nobody would know."""
    if found.saved.sketch is None:
        return
    apart = difference(found.saved.sketch, sketch_of(draft.work, draft.model))
    if apart is not None and not apart <= _allowed(draft.module):
        raise FileError(
            f"{found.path} loads, and its answer to the example inputs differs by {apart:.1e} from "
            "that when it was saved (with "
            f"torch {found.torch}). {_changed(draft.work)}"
        )


def _allowed(module: nn.Module) -> float:
    is_rounded = any(isinstance(layer, QuantizedLayer) for layer in module.modules())
    has_few_bits = any(
        weight.is_floating_point() and weight.itemsize < MOST_BITS for weight in module.parameters()
    )
    return ALLOWED_IN_FEW_BITS if is_rounded or has_few_bits else ALLOWED
