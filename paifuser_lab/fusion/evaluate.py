"""Runs each site on its real inputs, fused and unfused: compares the outputs and times both."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ..errors import MeasureError, StoppedError, first_line
from ..measure import in_turn, output_error
from ..model.formats import HALVES
from ..model.watch import FAILED, watching
from ..model.weights import answer_hash
from ..progress import Progress
from ..quantization.layers.layer import input_of
from .backends import backends_for
from .blocks import FusedBlock, Rewriting, rewrite, unfuse_block
from .fallback import composing
from .layers import FusedLayer, make_fused
from .product_call import composed, misfit, product_backends, run_product
from .products import Product
from .site_search import FusionSites, Site, View

TOLERANCE, TOLERANCE_OF_HALVES = 1e-4, 2e-2
SLOW = 1.0  # seconds of a call of the whole model above which it is not timed
SECONDS = 0.03  # of timing for each backend of a site
# Copies of a timed layer: with that many bytes of weights, a weight is no longer in a core's cache.
MOST_COPIES, COLD_BYTES = 8, 32 << 20
APART, AS_ONE = "apart", "as one"
Times = dict[Any, dict[str, float]]  # ms unfused and with each backend, by what the time depends on


@dataclass
class Evaluation:
    """The errors and times that were measured at a site."""

    apart_ms: float | None = None
    fused_ms: float | None = None
    backend: str = ""  # the fastest of those that are correct
    error: float | None = None
    output_bytes: int = 0
    reason: str = ""  # why it cannot be fused


@dataclass
class Evaluator:
    """Runs a model once, unfused, and at each site both ways; equal sites are timed once."""

    model: nn.Module
    sites: FusionSites
    tolerance: float
    shown: Progress
    times: Times = field(default_factory=dict)
    should_stop: Callable[[], bool] = lambda: False
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    is_evaluating: bool = False  # while a site is evaluated: calls then are not the model's own
    inputs: dict[str, Tensor] | None = None  # of the layers of a block, while it is run once more
    answer: str = ""  # the hash of the output of the model, unfused

    def run(self, call: Callable[[], Any]) -> dict[str, Evaluation]:
        """The evaluation of each site that can be fused, in one call of the model."""
        calls: list[Any] = []
        alone = {
            site.layer: site for site in self.sites.sites if site.can_be and not site.is_in_block
        }
        joined = {site.layer for site in self.sites.sites if site.joined}
        blocks = {site.block for site in self.sites.sites if site.is_in_block}

        def enter(layer: str, args: Any, kwargs: Any) -> None:
            if self.inputs is not None and layer in joined:
                self.inputs[layer] = input_of(args, kwargs).clone()
            is_site = (
                not self.is_evaluating
                and layer not in self.evaluations
                and (layer in alone or layer in blocks)
            )
            calls.append(_cloned((args, kwargs)) if is_site else None)

        def leave(layer: str, output: Any) -> None:
            call_inputs = calls.pop()
            if call_inputs is None or output is FAILED:
                return
            args, kwargs = call_inputs
            self.is_evaluating = True
            try:
                with composing(False):
                    if layer in blocks:
                        self._evaluate_block(self.sites.views[layer], args, kwargs, output)
                        blocks.discard(layer)
                    else:
                        self._evaluate(alone[layer], input_of(args, kwargs), None)
            finally:
                self.is_evaluating = False

        with watching(self.model, enter, leave), composing():
            self.answer = answer_hash(call())
        return self.evaluations

    def _evaluate_block(self, view: View, args: Any, kwargs: Any, output: Any) -> None:
        """Evaluate the sites of a block one by one, and then the block with all of them."""
        block = self.model.get_submodule(view.block)
        sites = [site for site in self.sites.sites if site.is_in_block and site.block == view.block]
        names = {site.joined.residual for site in sites if site.joined}
        names |= {name for site in sites if site.product for name in site.product.needed}
        values = BlockValues(block, view.graph, names)
        self.inputs = {}
        with composing():
            values.run(*_cloned(view.form.taken_from(*hooked_inputs(block, args, kwargs)) or []))
        inputs, self.inputs = self.inputs, None
        for site in sites:
            if site.product is not None:
                self._evaluate_product(site.layer, site.product, values.kept)
            elif site.joined is not None:
                self._evaluate(site, inputs[site.layer], values.kept.get(site.joined.residual))
        reason = self._gap(lambda: output, lambda: block(*args, **kwargs))[1]
        for site in sites:
            evaluation = self.evaluations[site.layer]
            evaluation.reason = evaluation.reason or (
                f"with its block rewritten, {reason}" if reason else ""
            )
        if any(self.evaluations[site.layer].reason for site in sites):
            self.rewrite(
                {site.layer for site in self.sites.sites}
                - {layer for layer, evaluation in self.evaluations.items() if evaluation.reason}
            )

    def whole(
        self, call: Callable[[], Any], device: torch.device, fused: Mapping[str, str]
    ) -> tuple[float, float] | None:
        """The ms of the model unfused and as it is; None if nothing is fused or it is slow."""
        key = (
            "whole",
            tuple(fused.items()),
            self.answer,
            tuple((tuple(one.shape), one.stride()) for one in self.model.parameters()),
            torch.get_num_threads(),
        )
        if fused and key not in self.times:
            parts: list[Any] = [
                (module, type(module), module.class_apart)
                for module in self.model.modules()
                if isinstance(module, FusedLayer | FusedBlock)
            ]

            def run(*, is_apart: bool) -> None:
                if self.should_stop():
                    raise StoppedError(
                        "was stopped while the whole model was timed; the sites are not timed "
                        "again."
                    )
                for module, kind, unfused in parts:
                    module.__class__ = unfused if is_apart else kind
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
                for module, kind, _ in parts:
                    module.__class__ = kind
        taken = self.times.get(key)
        return (taken[APART], taken[AS_ONE]) if taken else None

    def rewrite(self, fused: Collection[str]) -> dict[str, Rewriting]:
        """Rewrite the blocks so that these sites are fused, and no others."""
        for block in self.sites.views:
            unfuse_block(self.model.get_submodule(block))
        rewritings = self.sites.rewritings(fused)
        for block, rewriting in rewritings.items():
            rewrite(self.model.get_submodule(block), rewriting)
        return rewritings

    def _evaluate_product(self, name: str, product: Product, values: dict[str, Tensor]) -> None:
        """Evaluate a product that a block calls as a function, on its inputs."""
        self._stop_if_asked()
        operands = product.values(values)
        evaluation = self.evaluations[name] = Evaluation()
        evaluation.reason = misfit(*operands, kind=product.kind)
        if evaluation.reason:
            return
        options: Any = {"kind": product.kind, "activation": product.activation}
        apart = partial(composed, *operands, **options)
        evaluation.output_bytes = apart().nbytes
        x, _, bias, added = operands
        backends = product_backends(
            x, has_bias=bias is not None or added is not None, activation=product.activation
        )
        calls = {
            backend: partial(run_product, *operands, **options, backend=backend)
            for backend in backends
        }
        gaps = {backend: self._gap(apart, call, x.dtype) for backend, call in calls.items()}
        right = {backend: call for backend, call in calls.items() if not gaps[backend][1]}
        if right:
            shapes = tuple(
                (tuple(operand.shape), operand.stride()) if isinstance(operand, Tensor) else operand
                for operand in operands
            )
            key = (
                "product",
                *options.values(),
                shapes,
                str(x.dtype),
                str(x.device),
                torch.get_num_threads(),
            )
            if not right.keys() <= self.times.get(key, {}).keys():
                self.times[key] = timed({APART: apart, **right}, x.device)
            taken = self.times[key]
            evaluation.backend = self.sites.backends[name] = min(right, key=taken.__getitem__)
            evaluation.apart_ms, evaluation.fused_ms = taken[APART], taken[evaluation.backend]
        evaluation.error, evaluation.reason = gaps[evaluation.backend or next(iter(gaps))]
        self.shown.advance(doing=name)

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise StoppedError(
                "was stopped while sites were timed; those already timed are not timed again."
            )

    def _evaluate(self, site: Site, x: Tensor, residual: Tensor | None) -> None:
        """Evaluate a layer's site on its input."""
        self._stop_if_asked()
        layer = self.model.get_submodule(site.layer)
        assert isinstance(layer, FusedLayer)

        def apart() -> Tensor:
            return layer.composed(x, residual, site.activation)

        evaluation = self.evaluations[site.layer] = Evaluation()
        if site.has_residual and (residual is None or residual.shape != apart().shape):
            evaluation.reason = "the other operand of the sum has another shape"
            return
        evaluation.output_bytes = apart().nbytes
        inputs = x, residual, site.activation
        twins = {
            backend: with_backend(layer, backend)
            for backend in backends_for(
                layer, has_residual=site.has_residual, activation=site.activation
            )
        }
        gaps = {
            backend: self._gap(apart, partial(twin.forward, *inputs))
            for backend, twin in twins.items()
        }
        right = [backend for backend in twins if not gaps[backend][1]]
        if right:
            key = site_key(layer, x, residual, site.activation)
            if not {*right} <= self.times.get(key, {}).keys():
                crowd = [with_own_weights(layer) for _ in range(self._copies(layer))]
                calls = {
                    backend: in_rotation(
                        [with_backend(copy, backend).forward for copy in crowd], inputs
                    )
                    for backend in right
                }
                self.times[key] = timed(
                    {APART: in_rotation([copy.composed for copy in crowd], inputs), **calls},
                    x.device,
                )
            taken = self.times[key]
            evaluation.backend = min(right, key=taken.__getitem__)
            evaluation.apart_ms, evaluation.fused_ms = taken[APART], taken[evaluation.backend]
        evaluation.error, evaluation.reason = gaps[evaluation.backend or next(iter(gaps))]
        make_fused(layer, evaluation.backend)
        self.shown.advance(doing=site.layer)

    def _copies(self, layer: FusedLayer) -> int:
        """How many copies are timed in turn, so that weights are as far away as in the model."""
        whole = sum(parameter.nbytes for parameter in self.model.parameters())
        return max(1, min(MOST_COPIES, min(whole, COLD_BYTES) // max(1, layer.weight.nbytes)))

    def _gap(
        self,
        reference: Callable[[], Any],
        call: Callable[[], Any],
        dtype: torch.dtype | None = None,
    ) -> tuple[float | None, str]:
        """The error between two outputs, and what is wrong with it or ''; 16 bits may err more."""
        allowed = max(self.tolerance, TOLERANCE_OF_HALVES) if dtype in HALVES else self.tolerance
        try:
            error = output_error(reference(), call())[0]
        except MeasureError as problem:
            return None, str(problem).rstrip(".")
        except RuntimeError as problem:  # an operator does not support the inputs
            return None, f"its fused operator fails ({first_line(problem)[:120]})"
        return error, "" if error <= allowed else f"its output differs by {error:.1e}"


def timed(calls: Mapping[str, Callable[[], Any]], device: torch.device) -> dict[str, float]:
    """The ms of each call, timed in turn."""
    return in_turn(calls, device, SECONDS * len(calls))


def _cloned(values: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.clone(), values)


def hooked_inputs(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The inputs of a block's own forward, after its pre-hooks, which may change their dtype."""
    for name, hook in block._forward_pre_hooks.items():
        if name in block._forward_pre_hooks_with_kwargs:
            args, kwargs = hook(block, args, kwargs) or (args, kwargs)
        elif (changed := hook(block, args)) is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


class BlockValues(fx.Interpreter):
    """Runs a block's graph and keeps the values of some of its nodes."""

    def __init__(self, block: nn.Module, graph: fx.Graph, wanted: Collection[str]) -> None:
        super().__init__(block, graph=graph)
        self.wanted = wanted
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; its value is copied, since a later node may write into it."""
        value = super().run_node(n)
        if n.name in self.wanted and isinstance(value, Tensor):
            self.kept[n.name] = value.clone()
        return value


def in_rotation(
    calls: Sequence[Callable[..., Tensor]], inputs: tuple[Any, ...]
) -> Callable[[], Tensor]:
    """A function that calls the next of `calls` each time; all are called once before."""
    with torch.no_grad():
        for call in calls:
            call(*inputs)
    turn = cycle(calls)
    return lambda: next(turn)(*inputs)


def with_own_weights(layer: FusedLayer) -> FusedLayer:
    """A copy of a layer whose equal weights have memory of their own."""
    layer_copy = copy(layer)
    layer_copy._parameters = {
        name: None if parameter is None else nn.Parameter(parameter.detach().clone())
        for name, parameter in layer._parameters.items()
    }
    return layer_copy


def with_backend(layer: FusedLayer, backend: str) -> FusedLayer:
    """A copy of a layer with the same weights that runs on one backend."""
    layer_copy = copy(layer)
    make_fused(layer_copy, backend)
    return layer_copy


def site_key(layer: FusedLayer, x: Tensor, residual: Tensor | None, activation: str) -> Any:
    """What the time of a site depends on."""
    geometry = (
        (layer.padding, layer.stride, layer.dilation, layer.groups)
        if isinstance(layer, nn.Conv2d)
        else ()
    )
    order = layer.weight.stride(), x.stride(), None if residual is None else residual.stride()
    sizes = tuple(layer.weight.shape), layer.bias is None, tuple(x.shape)
    context = str(x.dtype), str(x.device), torch.get_num_threads()
    return type(layer).__name__, activation, geometry, order, sizes, context
