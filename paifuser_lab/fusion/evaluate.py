"""Each site on its real inputs, fused and apart: whether outputs agree, and how long each takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import MeasureError, StoppedError, first_line
from ..measure import in_turn, output_error
from ..model.watch import FAILED, watching
from ..progress import Progress
from .backends import backends_for
from .blocks import FusedBlock, Rewriting, make_original, rewrite
from .fallback import composing
from .layers import FusedLayer, make_fused
from .product_call import composed, misfit, product_backends, run_product
from .products import Product
from .site_runs import (
    BlockValues,
    hooked_inputs,
    in_rotation,
    site_key,
    with_backend,
    with_own_weights,
)
from .sites import FusionSites, Site, View

TOLERANCE, TOLERANCE_OF_HALVES = 1e-4, 2e-2
HALVES = (torch.bfloat16, torch.float16)
SLOW = 1.0  # seconds of a call of the whole model, which is then not timed
SECONDS = 0.03  # for each way of a place, its twins together
MOST_COPIES, COLD_BYTES = (
    8,
    32 << 20,
)  # of a layer that is timed: with as many others its weight is no longer in a core's cache
APART, AS_ONE = "apart", "as one"
Times = dict[Any, dict[str, float]]  # ms apart and by each way, by what counts for it


@dataclass
class Evaluation:
    """What was found of a place."""

    apart_ms: float | None = None
    fused_ms: float | None = None
    backend: str = ""  # the quickest that is right
    error: float | None = None
    answer_bytes: int = 0
    reason: str = ""  # why it cannot be one after all


@dataclass
class Evaluator:
    """Runs a model once as it is, and beside that each place both ways; equal places are timed
    once.
    """

    model: nn.Module
    found: FusionSites
    tolerance: float
    shown: Progress
    times: Times = field(default_factory=dict)
    should_stop: Callable[[], bool] = lambda: False
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    is_evaluating: bool = False  # at judging: what runs meanwhile is not the model
    inputs: dict[str, Tensor] | None = (
        None  # of the layers of a block that is run once more, while it is
    )

    def run(self, call: Callable[[], Any]) -> dict[str, Evaluation]:
        """Watch a run; the verdict of each place that can be one."""
        given: list[Any] = []
        alone = {
            site.layer: site for site in self.found.sites if site.can_be and not site.is_in_block
        }
        joined = {site.layer for site in self.found.sites if site.joined}
        blocks = {site.block for site in self.found.sites if site.is_in_block}

        def enter(layer: str, args: Any, kwargs: Any) -> None:
            if self.inputs is not None and layer in joined:
                self.inputs[layer] = args[0].clone()
            wanted = (
                not self.is_evaluating
                and layer not in self.evaluations
                and (layer in alone or layer in blocks)
            )
            given.append(_cloned((args, kwargs)) if wanted else None)

        def leave(layer: str, answer: Any) -> None:
            what = given.pop()
            if what is None or answer is FAILED:
                return
            args, kwargs = what
            self.is_evaluating = True
            try:
                with composing(False):
                    if layer in blocks:
                        self._evaluate_block(self.found.views[layer], args, kwargs, answer)
                        blocks.discard(layer)
                    else:
                        self._evaluate(alone[layer], args[0], None)
            finally:
                self.is_evaluating = False

        with watching(self.model, enter, leave), composing():
            call()
        return self.evaluations

    def _evaluate_block(self, view: View, args: Any, kwargs: Any, answer: Any) -> None:
        """The places of a block one by one, and then the block with all of them."""
        block = self.model.get_submodule(view.block)
        sites = [site for site in self.found.sites if site.is_in_block and site.block == view.block]
        wanted = {site.joined.residual for site in sites if site.joined}
        wanted |= {name for site in sites if site.product for name in site.product.needed}
        values = BlockValues(block, view.graph, wanted)
        self.inputs = {}
        with composing():
            values.run(*_cloned(view.form.taken_from(*hooked_inputs(block, args, kwargs)) or []))
        inputs, self.inputs = self.inputs, None
        for site in sites:
            if site.product is not None:
                self._evaluate_product(site.layer, site.product, values.kept)
            elif site.joined is not None:
                self._evaluate(site, inputs[site.layer], values.kept.get(site.joined.residual))
        reason = self._gap(lambda: answer, lambda: block(*args, **kwargs))[1]
        for site in sites:
            evaluation = self.evaluations[site.layer]
            evaluation.reason = evaluation.reason or (
                f"the block around it then outputs otherwise: {reason}" if reason else ""
            )
        if any(self.evaluations[site.layer].reason for site in sites):
            self.rewrite(
                {site.layer for site in self.found.sites}
                - {one for one, seen in self.evaluations.items() if seen.reason}
            )

    def whole(
        self, call: Callable[[], Any], device: torch.device, fused: Mapping[str, str]
    ) -> tuple[float, float] | None:
        """The ms of a call of the model with its layers apart, and as they now are; None where
        nothing is as one, or a call is slow.
        """
        key = "whole", tuple(fused.items())
        if fused and key not in self.times:
            parts: list[Any] = [
                (one, type(one), one.class_apart)
                for one in self.model.modules()
                if isinstance(one, FusedLayer | FusedBlock)
            ]

            def run(*, is_apart: bool) -> None:
                if self.should_stop():
                    raise StoppedError(
                        "was stopped while the whole model was timed; the places are not timed "
                        "again."
                    )
                for one, kind, apart in parts:
                    one.__class__ = apart if is_apart else kind
                call()

            try:
                began = time.perf_counter()
                run(is_apart=True)
                is_slow = time.perf_counter() - began > SLOW
                self.times[key] = (
                    {}
                    if is_slow
                    else timed(
                        {APART: partial(run, is_apart=True), AS_ONE: partial(run, is_apart=False)},
                        device,
                    )
                )
            finally:
                for one, kind, _ in parts:
                    one.__class__ = kind
        taken = self.times.get(key)
        return (taken[APART], taken[AS_ONE]) if taken else None

    def rewrite(self, fused: Collection[str]) -> dict[str, Rewriting]:
        """Let the blocks run with these places fused, and no others."""
        for block in self.found.views:
            make_original(self.model.get_submodule(block))
        made = self.found.rewritings(fused)
        for block, how in made.items():
            rewrite(self.model.get_submodule(block), how)
        return made

    def _evaluate_product(self, name: str, product: Product, values: dict[str, Tensor]) -> None:
        """A product that a block calls as a function, on its input."""
        self._stop_if_asked()
        given = product.values(values)
        evaluation = self.evaluations[name] = Evaluation()
        evaluation.reason = misfit(*given, kind=product.kind)
        if evaluation.reason:
            return
        how: Any = {"kind": product.kind, "activation": product.activation}
        apart = partial(composed, *given, **how)
        evaluation.answer_bytes = apart().nbytes
        x, _, bias, added = given
        backends = product_backends(
            x, has_bias=bias is not None or added is not None, activation=product.activation
        )
        calls = {
            backend: partial(run_product, *given, **how, backend=backend) for backend in backends
        }
        gaps = {backend: self._gap(apart, call, x.dtype) for backend, call in calls.items()}
        right = {backend: call for backend, call in calls.items() if not gaps[backend][1]}
        if right:
            shapes = tuple(
                (tuple(one.shape), one.stride()) if isinstance(one, Tensor) else one
                for one in given
            )
            key = (
                "product",
                *how.values(),
                shapes,
                str(x.dtype),
                str(x.device),
                torch.get_num_threads(),
            )
            if not right.keys() <= self.times.get(key, {}).keys():
                self.times[key] = timed({APART: apart, **right}, x.device)
            taken = self.times[key]
            evaluation.backend = self.found.backends[name] = min(right, key=taken.__getitem__)
            evaluation.apart_ms, evaluation.fused_ms = taken[APART], taken[evaluation.backend]
        evaluation.error, evaluation.reason = gaps[evaluation.backend or next(iter(gaps))]
        self.shown.advance(doing=name)

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise StoppedError(
                "was stopped while places were timed; those that were are not timed again."
            )

    def _evaluate(self, site: Site, x: Tensor, residual: Tensor | None) -> None:
        """A place on its input."""
        self._stop_if_asked()
        layer = self.model.get_submodule(site.layer)
        assert isinstance(layer, FusedLayer)

        def apart() -> Tensor:
            return layer.composed(x, residual, site.activation)

        evaluation = self.evaluations[site.layer] = Evaluation()
        if site.has_residual and (residual is None or residual.shape != apart().shape):
            evaluation.reason = "the other operand of the sum has another shape"
            return
        evaluation.answer_bytes = apart().nbytes
        given = x, residual, site.activation
        twins = {
            backend: with_backend(layer, backend)
            for backend in backends_for(
                layer, has_residual=site.has_residual, activation=site.activation
            )
        }
        gaps = {
            backend: self._gap(apart, partial(twin.forward, *given))
            for backend, twin in twins.items()
        }
        right = [backend for backend in twins if not gaps[backend][1]]
        if right:
            key = site_key(layer, x, residual, site.activation)
            if not {*right} <= self.times.get(key, {}).keys():
                crowd = [with_own_weights(layer) for _ in range(self._copies(layer))]
                calls = {
                    backend: in_rotation(
                        [with_backend(one, backend).forward for one in crowd], given
                    )
                    for backend in right
                }
                self.times[key] = timed(
                    {APART: in_rotation([one.composed for one in crowd], given), **calls}, x.device
                )
            taken = self.times[key]
            evaluation.backend = min(right, key=taken.__getitem__)
            evaluation.apart_ms, evaluation.fused_ms = taken[APART], taken[evaluation.backend]
        evaluation.error, evaluation.reason = gaps[evaluation.backend or next(iter(gaps))]
        make_fused(layer, evaluation.backend)
        self.shown.advance(doing=site.layer)

    def _copies(self, layer: FusedLayer) -> int:
        """How many layers take turns in being timed, so that a weight is as far from the processor
        as it is in the model.
        """
        whole = sum(one.nbytes for one in self.model.parameters())
        return max(1, min(MOST_COPIES, min(whole, COLD_BYTES) // max(1, layer.weight.nbytes)))

    def _gap(
        self, wanted: Callable[[], Any], got: Callable[[], Any], dtype: torch.dtype | None = None
    ) -> tuple[float | None, str]:
        """How far two outputs are apart, and what is wrong with that; more is allowed in 16
        bits.
        """
        allowed = max(self.tolerance, TOLERANCE_OF_HALVES) if dtype in HALVES else self.tolerance
        try:
            error = output_error(wanted(), got())[0]
        except MeasureError as problem:
            return None, str(problem).rstrip(".")
        except RuntimeError as problem:  # an operator does not take it
            return None, f"what would run in its stead fails ({first_line(problem)[:120]})"
        return error, "" if error <= allowed else f"its output differs by {error:.1e}"


def timed(calls: Mapping[str, Callable[[], Any]], device: torch.device) -> dict[str, float]:
    """The ms of each, taken in turn."""
    return in_turn(calls, device, SECONDS * len(calls))


def _cloned(values: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.clone(), values)
