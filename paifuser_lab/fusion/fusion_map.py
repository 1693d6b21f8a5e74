"""Finds, checks, times and chooses the sites of a model to fuse; fuses them again from a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from ..errors import ShouldStop, StepError
from ..machine.host import device_name
from ..model.fold import fold, plan_fold
from ..model.formats import HALVES
from ..model.graph import observe
from ..progress import progress
from ..records import Fusion, FusionMap
from ..records.fusion_map import Standing
from ..workload import Derived, Workload, running, workload_of
from .activation import NONE
from .blocks import (
    FusedBlock,
    Rewriting,
    products_in,
    rewrite,
    sum_in_place,
    sums_in,
    unfuse_block,
)
from .call_trace import trace_calls
from .evaluate import TOLERANCE, TOLERANCE_OF_HALVES, Evaluation, Evaluator, Times
from .layers import FusedLayer, kind_of, make_fused, unfuse_layer
from .products import site_name
from .site_search import Site, find_sites


@dataclass(frozen=True)
class Switches:
    """The names of the sites that are selected, switched off, and fused even if that is slower."""

    selected: set[str]
    off: set[str]
    on: set[str]


@dataclass
class Fused:
    """What was fused in a model."""

    fusions: FusionMap
    folded: list[tuple[str, str]] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)  # the backend of each
    blocks: dict[str, Rewriting] = field(default_factory=dict)

    @property
    def remembered(self) -> dict[str, Any]:
        """What is needed to fuse the same sites again without choosing."""
        return {
            "map": self.fusions.model_dump(mode="json"),
            "folded": [list(pair) for pair in self.folded],
            "layers": self.layers,
            "blocks": {block: how.data for block, how in self.blocks.items()},
        }


def fusions(subject: Workload | Derived, *, should_stop: ShouldStop | None = None) -> FusionMap:
    """The sites of a model, tried on its example inputs and timed; nothing is changed."""
    work = workload_of(subject)
    own = work.copied()
    every = lambda sites: Switches(set(sites), set(), set())
    return fuse(own.model.eval(), work, every, should_stop or (lambda: False)).fusions


def fuse(
    model: nn.Module,
    work: Workload,
    choose: Callable[[list[str]], Switches],
    should_stop: Callable[[], bool] = lambda: False,
) -> Fused:
    """Fuse the sites of a model where that is correct and faster; batch-norm is folded first.

    Sites that are fused already stay so, unless they are switched off.
    """
    in_place = sums_in(model)
    already_fused = unfuse(model)
    inputs = work.inputs.clone()
    call = lambda: inputs.clone()(model)
    with running(model):
        folded = list(plan_fold(model, observe(model, call)).pairs)
        fold(model, folded)
        sites = find_sites(model, trace_calls(model, call))
        layers = [site.layer for site in sites.sites if site.can_be]
        chosen = choose(layers)
        on = chosen.on | already_fused
        switches = Switches(chosen.selected | on, chosen.off, on)
        own = [site.layer for site in sites.sites if site.can_be and site.product is None]
        for layer in own:
            make_fused(model.get_submodule(layer))
        is_half = any(parameter.dtype in HALVES for parameter in model.parameters())
        tolerance = TOLERANCE_OF_HALVES if is_half else TOLERANCE
        with progress("fusing", len(layers)) as shown:
            evaluator = Evaluator(
                model, sites, tolerance, shown, _times.setdefault(work, {}), should_stop
            )
            evaluator.rewrite(layers)
            evaluations = evaluator.run(call)
    norms = dict(folded)
    notes = [_record_of(site, evaluations.get(site.layer), norms, switches) for site in sites.sites]
    fused = {fusion.place: fusion.runs for fusion in notes if fusion.standing == "fused"}
    for layer in set(own) - set(fused):
        unfuse_layer(model.get_submodule(layer))
    blocks = evaluator.rewrite(fused)
    _sum_in_place(model, in_place)
    with running(model):
        apart_ms, fused_ms = evaluator.whole(call, work.device, fused) or (None, None)
    fusion_map = FusionMap(
        workload=work.name,
        machine=device_name(work.device),
        fusions=tuple(notes),
        notes=tuple(sites.notes),
        apart_ms=apart_ms,
        fused_ms=fused_ms,
    )
    return Fused(
        fusion_map,
        folded,
        {layer: backend for layer, backend in fused.items() if layer in own},
        blocks,
    )


def unfuse(model: nn.Module) -> set[str]:
    """Unfuse everything in a model; the names of the sites that were fused."""
    parts = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, FusedLayer | FusedBlock)
    ]
    products = {site_name(name, product) for name, part in parts for product in products_in(part)}
    for _, module in parts:
        (unfuse_layer if isinstance(module, FusedLayer) else unfuse_block)(module)
    return products | {name for name, module in parts if kind_of(module)}


def fuse_again(model: nn.Module, remembered: dict[str, Any]) -> None:
    """Fuse the recorded sites, and no others; nothing is measured."""
    in_place = sums_in(model)
    unfuse(model)
    names = {name for name, _ in model.named_modules()}
    known = [
        *(name for pair in remembered["folded"] for name in pair),
        *remembered["layers"],
        *remembered["blocks"],
    ]
    if missing := [name for name in known if name not in names]:
        raise StepError(
            f"there is no layer '{missing[0]}', which was fused in the model that was saved"
        )
    fold(model, remembered["folded"])
    for layer, backend in remembered["layers"].items():
        make_fused(model.get_submodule(layer), backend)
    for block, rewriting in remembered["blocks"].items():
        rewrite(model.get_submodule(block), Rewriting.of_data(rewriting))
    _sum_in_place(model, in_place)


def _sum_in_place(model: nn.Module, in_place: dict[str, Rewriting]) -> None:
    """Let the sums that were in place before write over an operand again."""
    for block, known in in_place.items():
        sum_in_place(model.get_submodule(block), known.form, known.sums)


def _record_of(
    site: Site, evaluation: Evaluation | None, norms: dict[str, str], switches: Switches
) -> Fusion:
    """The record of a site."""
    standing, reason = _standing(site, evaluation, switches)
    seen = evaluation or Evaluation()
    has_added = site.product is not None and site.product.added is not None
    parts = (
        site.kind,
        "sum" if has_added else "",
        "batch-norm" if site.layer in norms else "",
        "residual" if site.has_residual else "",
        site.activation if site.activation != NONE else "",
    )
    passes = site.has_residual + has_added + (site.activation != NONE)
    own = tuple(layer for layer in (norms.get(site.layer),) if layer)
    return Fusion(
        layers=(site.layer, *own, *(layer for layer in site.modules if layer not in own)),
        pattern=" + ".join(filter(None, parts)),
        runs=seen.backend if standing == "fused" else "",
        standing=standing,
        reason=reason,
        saved_bytes=2 * passes * seen.output_bytes if passes and seen.output_bytes else None,
        apart_ms=seen.apart_ms,
        fused_ms=seen.fused_ms,
        error=seen.error,
    )


def _standing(
    site: Site, evaluation: Evaluation | None, switches: Switches
) -> tuple[Standing, str]:
    if not site.can_be:
        return "apart", site.reason
    if evaluation is None:
        return "apart", "it could not be run alone on the example inputs"
    if evaluation.reason:
        return "apart", evaluation.reason
    if site.layer in switches.off:
        return "off", site.reason
    if site.layer not in switches.selected:
        return "off", "it is not among the selected layers"
    is_slower = (
        evaluation.apart_ms is not None
        and evaluation.fused_ms is not None
        and evaluation.fused_ms > evaluation.apart_ms
    )
    return ("slower" if is_slower and site.layer not in switches.on else "fused"), site.reason


# by workload: the times of its sites, so that the map stays the same when a site is switched
_times: WeakKeyDictionary[Workload, Times] = WeakKeyDictionary()
