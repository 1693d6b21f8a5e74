"""The predicted shares of the original's cost beside the achieved ones."""

from __future__ import annotations

from torch import nn

from ...measure import Candidate, ratio_of_rounds, rounds_in_turn
from ...records import counted
from ...workload import Workload, running
from ..groups import Structure, couple
from ..groups.costs import parameters, spent_flops
from .target import ChosenWidths, original_flops
from .whole_model import call_of

QUICK_MS = 300.0  # a run that takes longer is not repeated for a note
ROUNDS, SECONDS = 12, 4.0


def target_notes(
    work: Workload,
    model: nn.Module,
    structure: Structure,
    removed: set[int],
    chosen: ChosenWidths,
    *,
    count: int,
) -> list[str]:
    """A note for each of parameters, FLOPs and latency that is known; `model` has been cut,
    `structure` is from before the cut.
    """
    target, predicted = chosen.target, parameters(model, structure)
    for index, units in enumerate(structure.units):
        predicted.take(index, len(set(units) - removed))
    of_parameters, of_flops = _weight_count(work.model), original_flops(work)
    spent = spent_flops(structure, structure.kept(removed)), spent_flops(couple(model, work.inputs))
    shares = {"parameters": (predicted.total / of_parameters, _weight_count(model) / of_parameters)}
    if of_flops:
        shares["FLOPs"] = spent[0] / of_flops, spent[1] / of_flops
    notes = [
        f"{name}: {before:.1%} of the original's predicted, {after:.1%} left"
        for name, (before, after) in shares.items()
    ]
    if target.goal == "latency":
        notes += [*chosen.notes, _latency(work, model, chosen, count)]
    return [f"at most {target.share:.1%} of the original's {target.goal} was asked for", *notes]


def _latency(work: Workload, model: nn.Module, chosen: ChosenWidths, count: int) -> str:
    note = f"latency: {chosen.share:.1%} of the original's predicted"
    if chosen.original > QUICK_MS:
        return f"{note}; a run takes {chosen.original:,.0f} ms and was not repeated to see"
    with running(work.model), running(model):
        candidates = [
            Candidate(name, call_of(work, module), count, work.device)
            for name, module in (("was", work.model), ("is", model))
        ]
        for samples in rounds_in_turn(candidates, rounds=ROUNDS, seconds=SECONDS):
            last = samples
    speedup, (low, high) = ratio_of_rounds(last["was"], last["is"])
    return (
        f"{note}, {1 / speedup:.1%} ({1 / high:.1%} to {1 / low:.1%}) measured in turn, "
        f"{counted(count, 'thread')}"
    )


def _weight_count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())
