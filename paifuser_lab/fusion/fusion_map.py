"""Which sites of a model run fused: found, tried, chosen, recorded; and the same from a record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ..errors import StepError
from ..machine.host import host_facts
from ..model.fold import fold, plan_fold
from ..model.graph import observe
from ..progress import progress
from ..records import Fusion, FusionMap
from ..records.fusion_map import Standing
from ..workload import Derived, Workload, running, workload_of
from .activation import NONE
from .blocks import FusedBlock, Rewriting, make_original, products_in, rewrite
from .call_trace import trace_calls
from .evaluate import HALVES, TOLERANCE, TOLERANCE_OF_HALVES, Evaluation, Evaluator, Times
from .layers import FusedLayer, kind_of, make_apart, make_fused
from .products import site_name
from .site_search import find_sites
from .sites import Site

Picked = Callable[[list[str]], set[str]]  # some of the places


@dataclass(frozen=True)
class Choice:
    """Which places are to be one, by the names of their layers: those of `wanted`, but for `off`;
    of `on`, even where that is slower.
    """

    wanted: Picked = set
    off: Picked = lambda sites: set()
    on: Picked = lambda sites: set()


@dataclass
class Fused:
    """What was made of a model."""

    fusions: FusionMap
    folded: list[tuple[str, str]] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)  # the way of each
    blocks: dict[str, Rewriting] = field(default_factory=dict)

    @property
    def remembered(self) -> dict[str, Any]:
        """What is needed to do it again without choosing."""
        return {
            "map": self.fusions.model_dump(mode="json"),
            "folded": [list(pair) for pair in self.folded],
            "layers": self.layers,
            "blocks": {block: how.data for block, how in self.blocks.items()},
        }


def fusions(
    subject: Workload | Derived, *, should_stop: Callable[[], bool] = lambda: False
) -> FusionMap:
    """What could run as one in a model: tried on its example inputs, timed, and nothing changed."""
    work = workload_of(subject)
    own = work.copied()
    return fuse(own.model.eval(), work, Choice(), should_stop).fusions


def fuse(
    model: nn.Module,
    work: Workload,
    choice: Choice,
    should_stop: Callable[[], bool] = lambda: False,
) -> Fused:
    """Let places of a model run as one where that is right and quicker; batch-norm goes into its
    layer first.

    What runs as one already stays so, unless it is switched off.
    """
    kept = take_apart(model)
    inputs = work.inputs.clone()
    call = lambda: inputs.clone()(model)
    with running(model):
        folded = list(plan_fold(model, observe(model, call)).pairs)
        fold(model, folded)
        found = find_sites(model, trace_calls(model, call))
        layers = [site.layer for site in found.sites if site.can_be]
        wanted, off, on = choice.wanted(layers), choice.off(layers), choice.on(layers) | kept
        own = [site.layer for site in found.sites if site.can_be and site.product is None]
        for layer in own:
            make_fused(model.get_submodule(layer))
        with progress("fusing", len(layers)) as shown:
            evaluator = Evaluator(
                model, found, _tolerance(model), shown, _times_of(work), should_stop
            )
            evaluator.rewrite(layers)
            evaluations = evaluator.run(call)
    norms = dict(folded)
    notes = [
        _record_of(site, evaluations.get(site.layer), norms, wanted, off, on)
        for site in found.sites
    ]
    fused = {one.place: one.runs for one in notes if one.standing == "fused"}
    for layer in set(own) - set(fused):
        make_apart(model.get_submodule(layer))
    blocks = evaluator.rewrite(fused)
    with running(model):
        apart_ms, fused_ms = evaluator.whole(call, work.device, fused) or (None, None)
    found_map = FusionMap(
        workload=work.name,
        machine=_machine(work),
        fusions=tuple(notes),
        notes=tuple(found.notes),
        apart_ms=apart_ms,
        fused_ms=fused_ms,
    )
    return Fused(
        found_map,
        folded,
        {layer: backend for layer, backend in fused.items() if layer in own},
        blocks,
    )


def take_apart(model: nn.Module) -> set[str]:
    """Let nothing of a model run as one any more; the names of the places that did."""
    parts = [
        (name, one)
        for name, one in model.named_modules()
        if isinstance(one, FusedLayer | FusedBlock)
    ]
    products = {site_name(name, one) for name, part in parts for one in products_in(part)}
    for _, one in parts:
        (make_apart if isinstance(one, FusedLayer) else make_original)(one)
    return products | {name for name, one in parts if kind_of(one)}


def fuse_again(model: nn.Module, remembered: dict[str, Any]) -> None:
    """Let the same places run as one, and no others; nothing is measured."""
    take_apart(model)
    names = {name for name, _ in model.named_modules()}
    known = [
        *(name for pair in remembered["folded"] for name in pair),
        *remembered["layers"],
        *remembered["blocks"],
    ]
    if missing := [name for name in known if name not in names]:
        raise StepError(
            f"there is no layer '{missing[0]}', which ran as one with others in the model that was "
            "saved"
        )
    fold(model, remembered["folded"])
    for layer, backend in remembered["layers"].items():
        make_fused(model.get_submodule(layer), backend)
    for block, how in remembered["blocks"].items():
        rewrite(model.get_submodule(block), Rewriting.of_data(how))


def _record_of(
    site: Site, evaluation: Evaluation | None, norms: dict[str, str],
    wanted: Collection[str], off: Collection[str], on: Collection[str],
) -> Fusion:  # fmt: skip
    """A place as the map has it."""
    standing, reason = _standing(site, evaluation, wanted, off, on)
    parts = [
        site.kind,
        *(["batch-norm"] if site.layer in norms else []),
        *(["residual"] if site.has_residual else []),
    ]
    parts += [] if site.activation == NONE else [site.activation]
    seen = evaluation or Evaluation()
    has_added = site.product is not None and site.product.added is not None
    parts[1:1] = ["sum"] if has_added else []
    passes = site.has_residual + has_added + (site.activation != NONE)
    own = tuple(one for one in (norms.get(site.layer),) if one)
    return Fusion(
        layers=(site.layer, *own, *(one for one in site.modules if one not in own)),
        pattern=" + ".join(parts),
        runs=seen.backend if standing == "fused" else "",
        standing=standing,
        reason=reason,
        saved_bytes=2 * passes * seen.answer_bytes if passes and seen.answer_bytes else None,
        apart_ms=seen.apart_ms,
        fused_ms=seen.fused_ms,
        error=seen.error,
    )


def _standing(
    site: Site,
    evaluation: Evaluation | None,
    wanted: Collection[str],
    off: Collection[str],
    on: Collection[str],
) -> tuple[Standing, str]:
    if not site.can_be:
        return "apart", site.reason
    if evaluation is None:
        return "apart", "it is called in a way in which it could not be tried"
    if evaluation.reason:
        return "apart", evaluation.reason
    if site.layer in off:
        return "off", site.reason
    if site.layer not in wanted and site.layer not in on:
        return "off", "it was not among the layers that were asked for"
    is_slower = (
        evaluation.apart_ms is not None
        and evaluation.fused_ms is not None
        and evaluation.fused_ms > evaluation.apart_ms
    )
    return ("slower" if is_slower and site.layer not in on else "fused"), site.reason


_kept: WeakKeyDictionary[Workload, Times] = WeakKeyDictionary()


def _times_of(work: Workload) -> Times:
    """What was timed is not timed again when a place is switched, so that the map stays the
    same.
    """
    return _kept.setdefault(work, {})


def _tolerance(model: nn.Module) -> float:
    return (
        TOLERANCE_OF_HALVES if any(one.dtype in HALVES for one in model.parameters()) else TOLERANCE
    )


def _machine(work: Workload) -> str:
    return (
        torch.cuda.get_device_name(work.device) if work.device.type == "cuda" else host_facts().name
    )
