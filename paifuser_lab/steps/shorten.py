"""Removes whole residual blocks; the output is as if the weights of those blocks were zero."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from math import floor
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator
from torch import nn

from ..errors import StepError
from ..model.watch import describe
from ..model.weights import parameter_count
from ..pruning.blocks import Blocks, find_blocks, least_harm, leave_out, obstacle
from ..pruning.refit import Repair, products, refit_model, repairs_for
from ..records import counted, readable_share
from ..workload import Inputs
from ..workload.data import samples_of
from .step import Draft, Step, layers_matching

Ratio = Annotated[float, Field(gt=0, lt=1)]
MOST_EXAMPLES = 64


class Shorten(Step):
    """Make the network shorter by removing residual blocks: those that are named, or those that
    change the output least.

    A block can be removed if it returns its input when its weights are zero. The shorter model is
    compared with the model with those blocks zeroed; if it differs, an error is raised and nothing
    is changed. Then the layers behind them are refit to reproduce the previous output, if there is
    data for that; `repair: []` skips this.
    """

    kind: ClassVar[str] = "shorten"
    main_option: ClassVar[str] = "ratio"
    layers: list[str] = Field(default=[], description="patterns of blocks to leave out")
    ratio: Ratio | None = Field(
        default=None,
        description="the share to leave out of the blocks that can be, those of least harm",
    )
    protect: list[str] = Field(
        default=[], description="patterns of blocks that stay, whatever the ratio"
    )
    repair: list[Repair] | None = Field(
        default=None,
        description="the refits after it, least-squares or batch-norm; both where there is train "
        "data",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Shorten:
        if self.ratio is None and not self.layers:
            raise ValueError("give a ratio or layers")
        return self

    @property
    def label(self) -> str:
        return "shorten " + ", ".join(
            [*([readable_share(self.ratio)] if self.ratio else []), *self.layers]
        )

    def joined(self, newer: Self) -> Self | None:
        """One step with the newer ratio, and all the layers that either names, each once."""
        return self.updated(newer, layers=list(dict.fromkeys([*self.layers, *newer.layers])))

    def apply(self, draft: Draft) -> None:
        """Find the blocks, choose, check against zeros, remove and refit."""
        blocks = find_blocks(draft.module, draft.work.inputs)
        named, stay = self._named(draft.module, blocks)
        chosen = [*named, *self._least(draft, blocks, named)]
        _check(draft.module, draft.work.inputs, blocks, chosen)
        before = parameter_count(draft.module)
        draft.remembered = {"blocks": {layer: blocks.free[layer] for layer in chosen}}
        repairs = repairs_for(self.repair, draft.work)
        whole = copy.deepcopy(draft.module) if repairs else draft.module
        leave_out(draft.module, blocks, chosen)
        of = counted(len(blocks.innermost), "block")
        draft.notes.append(
            f"left out {_listed(chosen)}; {parameter_count(draft.module):,} of {before:,} weights "
            "are left"
        )
        draft.notes.append(f"{of} could go: {_listed(blocks.innermost)}")
        draft.notes += [f"'{layer}' stays: {blocks.reason(layer)}" for layer in stay]
        written = {layer: blocks.written[layer] for layer in chosen if layer in blocks.written}
        draft.notes += [
            f"'{layer}' was given a {kind}, which nothing writes to in its place"
            for layer, kind in written.items()
        ]
        if repairs:
            draft.notes += refit_model(
                draft.work, whole, draft.module, products(draft.module), repairs
            )

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Remove the same blocks."""
        names = {name for name, _ in draft.module.named_modules()}
        if missing := [layer for layer in remembered["blocks"] if layer not in names]:
            raise StepError(
                f"there is no block '{missing[0]}', which was left out of the model that was saved"
            )
        leave_out(draft.module, Blocks(free=remembered["blocks"]), list(remembered["blocks"]))

    def _named(self, model: nn.Module, blocks: Blocks) -> tuple[list[str], list[str]]:
        """The outermost removable blocks that the patterns match, and the matches that stay."""
        chosen: dict[str, None] = {}
        stay: dict[str, None] = {}
        protected = self._protected(model)
        for pattern in self.layers:
            picked = layers_matching(model, [pattern], what="shorten")
            outer = [
                layer
                for layer in picked
                if not any(layer.startswith(f"{other}.") for other in picked)
            ]
            free = [layer for layer in _outermost(picked, blocks) if not _holds(layer, protected)]
            if not free or (pattern in picked and pattern not in free):
                layer = pattern if pattern in picked else outer[0]
                reason = "it is protected" if layer in blocks.free else blocks.reason(layer)
                raise StepError(f"{describe(model, layer)} cannot be left out: {reason}.")
            chosen |= dict.fromkeys(free)
            stay |= {
                layer: None
                for layer in outer
                if layer in blocks.refused and not _holds(layer, set(free))
            }
        return _outermost(list(chosen), blocks), list(stay)

    def _least(self, draft: Draft, blocks: Blocks, named: list[str]) -> list[str]:
        """As many blocks as the ratio requires besides those that are named."""
        if self.ratio is None:
            return []
        inputs, protected = draft.work.inputs, self._protected(draft.module)
        rest = [
            layer
            for layer in blocks.innermost
            if not _holds(layer, protected) and not _is_inside(layer, named)
        ]
        if obstacle(draft.module, inputs, blocks, [*named, *rest]):
            alone = {layer: obstacle(draft.module, inputs, blocks, [layer]) for layer in rest}
            blocks.refused |= {layer: reason for layer, reason in alone.items() if reason}
            rest = [layer for layer, reason in alone.items() if reason is None]
        removed = sum(_is_inside(layer, named) for layer in blocks.innermost)
        count = floor(self.ratio * len(blocks.innermost) + 0.5) - removed
        if not named and (not rest or count < 1):
            raise StepError(_nothing(draft.module, blocks, rest, protected))
        samples = samples_of(draft.work, MOST_EXAMPLES)
        errors = least_harm(
            draft.module,
            samples.inputs,
            blocks,
            rest,
            named,
            min(count, len(rest)),
            draft.should_stop,
        )
        draft.notes += [
            f"without '{layer}' as well the answer is {error:.2g} away"
            for layer, error in errors.items()
        ]
        return list(errors)

    def _protected(self, model: nn.Module) -> set[str]:
        return set(layers_matching(model, self.protect, what="shorten"))


def _check(model: nn.Module, inputs: Inputs, blocks: Blocks, chosen: list[str]) -> None:
    """Check that the shortened model's output equals that of the model with zeroed blocks."""
    together = obstacle(model, inputs, blocks, chosen)
    if together is None:
        return
    for layer in chosen:
        if problem := obstacle(model, inputs, blocks, [layer]):
            raise StepError(f"{describe(model, layer)} cannot be left out: {problem}.")
    raise StepError(f"{_listed(chosen)} cannot be left out together: {together}.")


def _outermost(layers: list[str], blocks: Blocks) -> list[str]:
    """The removable blocks among these layers that lie in no other one."""
    free = [layer for layer in layers if layer in blocks.free]
    return [
        layer
        for layer in free
        if not _is_inside(layer, [other for other in free if other != layer])
    ]


def _is_inside(layer: str, blocks: Iterable[str]) -> bool:
    return any(layer == block or layer.startswith(f"{block}.") for block in blocks)


def _holds(block: str, layers: set[str]) -> bool:
    """Whether one of these layers is the block, a part of it, or contains it."""
    return _is_inside(block, layers) or any(layer.startswith(f"{block}.") for layer in layers)


def _listed(layers: Iterable[str]) -> str:
    return ", ".join(f"'{layer}'" for layer in layers)


def _nothing(model: nn.Module, blocks: Blocks, rest: list[str], protected: set[str]) -> str:
    """Why a ratio removes no block."""
    if rest:
        return (
            f"it has {counted(len(blocks.innermost), 'block')} that can go, of which that share is "
            "none; ask for more"
        )
    if blocks.innermost:
        layer = blocks.innermost[0]
        return (
            f"no block of it can be left out; '{layer}': "
            f"{'it is protected' if _holds(layer, protected) else blocks.reason(layer)}."
        )
    largest = max(
        blocks.refused, key=lambda layer: parameter_count(model.get_submodule(layer)), default=""
    )
    return f"no block of it can be left out; {describe(model, largest)}: {blocks.reason(largest)}."
