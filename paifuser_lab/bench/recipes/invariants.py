"""What every recipe must leave true, whatever it does: the promises of the loop, checked on one
recipe at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ...errors import PaifuserError
from ...model.weights import answer_hash, weights_hash
from ...recipe import Recipe
from ...records import Record
from ...variant import Variant, apply
from ...workload import Workload, running

Verdict = Literal["holds", "refused", "violated"]


class RecipeRow(Record):
    """What became of one recipe: every promise held, it was refused with a message, or a promise
    was violated.
    """

    model: str
    seed: int
    recipe: str  # of the steps that this model takes
    verdict: Verdict
    refused: tuple[str, ...] = ()  # the messages of the steps that it does not take
    note: str = ""


@dataclass(frozen=True)
class Saved:
    """A folder that a fresh process must load to the same model, and what that model answers
    here.
    """

    row: RecipeRow
    folder: Path
    weights: str
    answer: str


def answer_of(work: Workload, model: nn.Module) -> str:
    """A hash of the model's answer on the example inputs, to the bit."""
    with running(model), torch.no_grad():
        return answer_hash(work.inputs.clone()(model))


def check(work: Workload, drawn: Recipe, seed: int, folder: Path) -> RecipeRow | Saved:
    """Apply a recipe and hold the promises that one process can see; a variant that stands them is
    saved into `folder`.
    """
    before, recipe = _fingerprint(work), drawn[:0]
    refused: list[str] = []

    def row(verdict: Verdict, note: str = "") -> RecipeRow:
        text = recipe.to_text()
        return RecipeRow(
            model=work.name,
            seed=seed,
            recipe=text,
            verdict=verdict,
            refused=tuple(refused),
            note=note,
        )

    work.variants.clear()
    variant = apply(work, recipe)
    for step in drawn:
        longer = recipe + step
        try:
            variant = apply(work, longer)
        except PaifuserError as problem:
            refused.append(str(problem))
            continue
        except Exception as problem:  # whatever else comes out is what a person would see
            recipe = longer
            return row(
                "violated", f"{type(problem).__name__} instead of a message: {problem}"[:300]
            )
        recipe = longer
    if broken := _broken(work, recipe, variant, before):
        return row("violated", broken)
    if not recipe:
        return row("refused")
    try:
        variant.save(folder)
    except PaifuserError as problem:
        return row("violated", f"it cannot be saved: {problem}")
    answer = answer_of(work, variant.model)
    return Saved(row("holds"), folder, weights_hash(variant.module), answer)


def _broken(work: Workload, recipe: Recipe, variant: Variant, before: tuple[Any, ...]) -> str:
    """The first promise that does not hold; empty where all do."""
    if _fingerprint(work) != before:
        return "the user's own model was changed"
    undone = apply(work, recipe[:0])
    if answer_of(work, undone.model) != answer_of(work, work.model):
        return "undone, it does not answer as the original, to the bit"
    if len(recipe) > 1:
        shorter = apply(work, recipe[:-1])
        hashed, answer = weights_hash(shorter.module), answer_of(work, shorter.model)
        work.variants.clear()
        fresh = apply(work, recipe[:-1])
        if (weights_hash(fresh.module), answer_of(work, fresh.model)) != (
            hashed,
            answer,
        ) and not timed(recipe[:-1]):
            return "a step undone is not the model as it was before the step"
    work.variants.clear()
    if weights_hash(apply(work, recipe).module) != weights_hash(variant.module):
        return "applied twice, it gives two hashes"
    if _fingerprint(work) != before:
        return "the user's own model was changed by undoing or applying again"
    return ""


def timed(recipe: Recipe) -> bool:
    """Whether the clock decides a part of what runs, so that two runs may differ in the last bits
    of an answer.
    """
    return any(step.kind in ("fuse", "attention") for step in recipe)


def _fingerprint(work: Workload) -> tuple[Any, ...]:
    """All that a recipe must leave alone: weights, structure, modes, hooks and the random state."""
    modes = tuple(module.training for module in work.model.modules())
    hooks = tuple(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in work.model.modules()
    )
    identities = tuple(id(weight) for weight in work.model.parameters())
    own = tuple("forward" in vars(module) for module in work.model.modules())
    return (
        weights_hash(work.model),
        str(work.model),
        modes,
        hooks,
        identities,
        own,
        answer_of(work, work.model),
    )
