"""Each place on the inputs that it really gets: as one and apart, which output the same and take
how long.
"""

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
from ..model.watch import FAILED, watching
from ..progress import Progress
from .backends import ways_of
from .blocks import FusedBlock, Rewriting, make_original, rewrite
from .fallback import composing
from .layers import FusedLayer, make_fused
from .product_call import composed, misfit, run_product, ways_for
from .products import Product
from .sites import Found, Place, View

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
class Verdict:
    """What was found of a place."""

    apart_ms: float | None = None
    fused_ms: float | None = None
    way: str = ""  # the quickest that is right
    error: float | None = None
    answer_bytes: int = 0
    reason: str = ""  # why it cannot be one after all


@dataclass
class Judge:
    """Runs a model once as it is, and beside that each place both ways; equal places are timed
    once.
    """

    model: nn.Module
    found: Found
    tolerance: float
    shown: Progress
    times: Times = field(default_factory=dict)
    should_stop: Callable[[], bool] = lambda: False
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    is_busy: bool = False  # at judging: what runs meanwhile is not the model
    inputs: dict[str, Tensor] | None = (
        None  # of the layers of a block that is run once more, while it is
    )

    def run(self, call: Callable[[], Any]) -> dict[str, Verdict]:
        """Watch a run; the verdict of each place that can be one."""
        given: list[Any] = []
        alone = {
            place.layer: place
            for place in self.found.places
            if place.can_be and not place.is_in_block
        }
        joined = {place.layer for place in self.found.places if place.joined}
        blocks = {place.block for place in self.found.places if place.is_in_block}

        def enter(layer: str, args: Any, kwargs: Any) -> None:
            if self.inputs is not None and layer in joined:
                self.inputs[layer] = args[0].clone()
            wanted = (
                not self.is_busy
                and layer not in self.verdicts
                and (layer in alone or layer in blocks)
            )
            given.append(_cloned((args, kwargs)) if wanted else None)

        def leave(layer: str, answer: Any) -> None:
            what = given.pop()
            if what is None or answer is FAILED:
                return
            args, kwargs = what
            self.is_busy = True
            try:
                with composing(False):
                    if layer in blocks:
                        self._judge_block(self.found.views[layer], args, kwargs, answer)
                        blocks.discard(layer)
                    else:
                        self._judge(alone[layer], args[0], None)
            finally:
                self.is_busy = False

        with watching(self.model, enter, leave), composing():
            call()
        return self.verdicts

    def _judge_block(self, view: View, args: Any, kwargs: Any, answer: Any) -> None:
        """The places of a block one by one, and then the block with all of them."""
        block = self.model.get_submodule(view.block)
        places = [
            place for place in self.found.places if place.is_in_block and place.block == view.block
        ]
        wanted = {place.joined.residual for place in places if place.joined}
        wanted |= {name for place in places if place.product for name in place.product.needed}
        values = _Values(block, view.graph, wanted)
        self.inputs = {}
        with composing():
            values.run(*_cloned(view.form.taken_from(*_as_hooked(block, args, kwargs)) or []))
        inputs, self.inputs = self.inputs, None
        for place in places:
            if place.product is not None:
                self._judge_product(place.layer, place.product, values.kept)
            elif place.joined is not None:
                self._judge(place, inputs[place.layer], values.kept.get(place.joined.residual))
        reason = self._gap(lambda: answer, lambda: block(*args, **kwargs))[1]
        for place in places:
            verdict = self.verdicts[place.layer]
            verdict.reason = verdict.reason or (
                f"the block around it then outputs otherwise: {reason}" if reason else ""
            )
        if any(self.verdicts[place.layer].reason for place in places):
            self.rewrite(
                {place.layer for place in self.found.places}
                - {one for one, seen in self.verdicts.items() if seen.reason}
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

    def _judge_product(self, name: str, product: Product, values: dict[str, Tensor]) -> None:
        """A product that a block calls as a function, on its input."""
        self._stop_if_asked()
        given = product.values(values)
        verdict = self.verdicts[name] = Verdict()
        verdict.reason = misfit(*given, kind=product.kind)
        if verdict.reason:
            return
        how: Any = {"kind": product.kind, "activation": product.activation}
        apart = partial(composed, *given, **how)
        verdict.answer_bytes = apart().nbytes
        x, _, bias, added = given
        ways = ways_for(
            x, has_bias=bias is not None or added is not None, activation=product.activation
        )
        calls = {way: partial(run_product, *given, **how, way=way) for way in ways}
        gaps = {way: self._gap(apart, call, x.dtype) for way, call in calls.items()}
        right = {way: call for way, call in calls.items() if not gaps[way][1]}
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
            verdict.way = self.found.ways[name] = min(right, key=taken.__getitem__)
            verdict.apart_ms, verdict.fused_ms = taken[APART], taken[verdict.way]
        verdict.error, verdict.reason = gaps[verdict.way or next(iter(gaps))]
        self.shown.advance(doing=name)

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise StoppedError(
                "was stopped while places were timed; those that were are not timed again."
            )

    def _judge(self, place: Place, x: Tensor, residual: Tensor | None) -> None:
        """A place on its input."""
        self._stop_if_asked()
        layer = self.model.get_submodule(place.layer)
        assert isinstance(layer, FusedLayer)

        def apart() -> Tensor:
            return layer.composed(x, residual, place.activation)

        verdict = self.verdicts[place.layer] = Verdict()
        if place.has_residual and (residual is None or residual.shape != apart().shape):
            verdict.reason = "the other operand of the sum has another shape"
            return
        verdict.answer_bytes = apart().nbytes
        given = x, residual, place.activation
        twins = {
            way: _twin(layer, way)
            for way in ways_of(layer, has_residual=place.has_residual, activation=place.activation)
        }
        gaps = {way: self._gap(apart, partial(twin.forward, *given)) for way, twin in twins.items()}
        right = [way for way in twins if not gaps[way][1]]
        if right:
            key = _key(layer, x, residual, place.activation)
            if not {*right} <= self.times.get(key, {}).keys():
                crowd = [_with_own_weights(layer) for _ in range(self._crowd(layer))]
                calls = {
                    way: _in_rotation([_twin(one, way).forward for one in crowd], given)
                    for way in right
                }
                self.times[key] = timed(
                    {APART: _in_rotation([one.composed for one in crowd], given), **calls}, x.device
                )
            taken = self.times[key]
            verdict.way = min(right, key=taken.__getitem__)
            verdict.apart_ms, verdict.fused_ms = taken[APART], taken[verdict.way]
        verdict.error, verdict.reason = gaps[verdict.way or next(iter(gaps))]
        make_fused(layer, verdict.way)
        self.shown.advance(doing=place.layer)

    def _crowd(self, layer: FusedLayer) -> int:
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


def _in_rotation(
    calls: Sequence[Callable[..., Tensor]], given: tuple[Any, ...]
) -> Callable[[], Tensor]:
    """Each time the next of them; all were called once."""
    with torch.no_grad():
        for call in calls:
            call(*given)
    turn = cycle(calls)
    return lambda: next(turn)(*given)


def timed(calls: Mapping[str, Callable[[], Any]], device: torch.device) -> dict[str, float]:
    """The ms of each, taken in turn."""
    return in_turn(calls, device, SECONDS * len(calls))


def _with_own_weights(layer: FusedLayer) -> FusedLayer:
    """A layer of equal weights that lie elsewhere."""
    made = copy(layer)
    made._parameters = {
        name: None if one is None else nn.Parameter(one.detach().clone())
        for name, one in layer._parameters.items()
    }
    return made


def _twin(layer: FusedLayer, way: str) -> FusedLayer:
    """A layer of the same weights that runs in one way."""
    made = copy(layer)
    make_fused(made, way)
    return made


def _as_hooked(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What a block's own forward is given once its hooks have seen it, such as those that change
    its format.
    """
    for name, hook in block._forward_pre_hooks.items():
        if name in block._forward_pre_hooks_with_kwargs:
            args, kwargs = hook(block, args, kwargs) or (args, kwargs)
        elif (given := hook(block, args)) is not None:
            args = given if isinstance(given, tuple) else (given,)
    return args, kwargs


class _Values(fx.Interpreter):
    """Runs a block's graph and keeps what some of its nodes make."""

    def __init__(self, block: nn.Module, graph: fx.Graph, wanted: Collection[str]) -> None:
        super().__init__(block, graph=graph)
        self.wanted = wanted
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Copied, since what comes after may write into it."""
        made = super().run_node(n)
        if n.name in self.wanted and isinstance(made, Tensor):
            self.kept[n.name] = made.clone()
        return made


def _cloned(values: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.clone(), values)


def _key(layer: FusedLayer, x: Tensor, residual: Tensor | None, activation: str) -> Any:
    """What the time of a place depends on."""
    geometry = (
        (layer.padding, layer.stride, layer.dilation, layer.groups)
        if isinstance(layer, nn.Conv2d)
        else ()
    )
    order = layer.weight.stride(), x.stride(), None if residual is None else residual.stride()
    sizes = tuple(layer.weight.shape), layer.bias is None, tuple(x.shape)
    place = str(x.dtype), str(x.device), torch.get_num_threads()
    return type(layer).__name__, activation, geometry, order, sizes, place
