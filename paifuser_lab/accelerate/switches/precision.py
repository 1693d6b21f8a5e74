"""Matrix products and convolutions in bf16 or fp16: autocast around each training call; in fp16 the
gradients are scaled inside the model, so that the loop sees them unscaled.

A gradient is multiplied where it enters the model, at its outputs, and divided where it leaves, at
its weights. A loss that reaches the weights on another way would get wrong gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from ...errors import AccelerationError
from ...machine.ceilings import product_speedup
from ...model.watch import is_in_backward
from .base import Call, Parts, Refusal, Switch, is_reachable, kept_tensors, weights_of

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AUTO = "auto"  # bf16, unless this processor emulates it
FIRST_SCALE, GROWTH_STEPS, LEAST_SCALE = 2.0**16, 2000, 1.0
WHOLE_WALKS = 4  # backward passes, since the calls were wrapped, whose whole graph is looked at
REENTRANT = "CheckpointFunctionBackward"  # which runs a backward pass of its own on plain weights


class Precision(Switch):
    """Training calls under autocast; outputs leave in fp32, so that the loss is as before."""

    name = "precision"
    is_exact = False
    is_combined = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        asked = str(options.get("precision") or AUTO)
        self.is_asked, self.format = asked != AUTO, "bf16" if asked == AUTO else asked
        if self.format not in DTYPES:
            raise AccelerationError(
                f"precision={self.format!r} is not a format to train in; give 'bf16' or 'fp16', "
                "'auto', which is bf16 where products are no slower in it, or None, which leaves "
                "the loop in its own (fp32)."
            )
        self.scale, self.good_steps, self.skipped = FIRST_SCALE, 0, 0
        self._passes, self._refusal = 0, ""
        self._is_finite = WeakKeyDictionary[Optimizer, bool]()  # since their last steps

    @property
    def label(self) -> str:
        return self.format

    def obstacle(self, parts: Parts) -> str:
        if parts.has_own_autocast:
            return "the loop has its own autocast"
        if parts.is_compiled:
            return "the loop compiles its model, which autocast would compile anew"
        if parts.has_closure:
            return (
                "step() has a closure, which computes loss and gradients when it is too late to "
                "skip the step"
            )
        if self.format == "fp16" and "model_quantization" in self.options.get("switches", ()):
            return "rounded weights and scaled gradients are not combined"
        if not parts.models:
            return "no module of the loop holds the weights, and autocast is around its calls"
        dtypes = {
            weight.dtype
            for model in parts.models
            for weight in model.parameters()
            if weight.is_floating_point()
        }
        if dtypes != {torch.float32}:
            names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            return f"the weights are {names}, not float32"
        return "" if self.is_asked or parts.device.type != "cpu" else self._emulation()

    def _emulation(self) -> str:
        """Why it cannot win on this processor; empty if it can."""
        speedup = product_speedup(DTYPES[self.format])
        if speedup >= 1:
            return ""
        return (
            f"this processor multiplies matrices {1 / speedup:.1f} times slower in {self.format} "
            f"than in fp32; precision='{self.format}' tries it all the same"
        )

    def wrap(self, model: nn.Module, call: Call) -> Call:
        dtype = DTYPES[self.format]
        inner = self._unscaling(model, call) if self.format == "fp16" else call
        device = next(model.parameters()).device.type
        self._passes, self._refusal, is_new = 0, "", True

        def under_autocast(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal is_new
            if torch.is_autocast_enabled(device):  # the loop's own, since a while
                return call(args, kwargs)
            if self._refusal and not is_in_backward():  # where a call is only computed again
                raise Refusal(self.label, self._refusal)
            with torch.autocast(device, dtype=dtype):
                output = inner(args, kwargs)
            if not is_reachable(output):
                raise Refusal(self.label, "the output is a class whose tensors cannot be reached")
            for name, value in kept_tensors(model) if is_new else ():
                if value.requires_grad and value.dtype == dtype:
                    raise Refusal(self.label, f"the model keeps {name}, which is no output in fp32")
            is_new = False
            return pytree.tree_map_only(Tensor, self._leave, output)

        return under_autocast

    def turn_on(self, parts: Parts) -> None:
        # not when it is turned off, since optimizers may yet step with what it has checked
        self._is_finite.clear()

    def begin_backward(self, losses: Sequence[Tensor]) -> None:
        """Where a loss would get wrong gradients, scale none, and refuse the next call."""
        if self.format != "fp16":
            return
        self._passes += 1
        if is_misscaled(losses, is_whole=self._passes <= WHOLE_WALKS):
            unscale(losses)
            self._refusal = (
                "gradients take another way than from the outputs to the weights, "
                "between which they are scaled"
            )

    def end_backward(self, parts: Parts) -> None:
        """Look for overflow before the loop clips the gradients, which may hide it."""
        if self.format == "fp16":
            for optimizer in parts.optimizers:
                self._is_finite[optimizer] = has_finite_gradients(optimizer)

    def before_step(self, optimizer: Optimizer) -> bool:
        if self.format != "fp16":
            return True
        is_finite = self._is_finite.pop(optimizer, None)
        if is_finite is None:  # gradients that no backward pass of the loop has made
            is_finite = has_finite_gradients(optimizer)
        if is_finite:
            self.good_steps += 1
            if self.good_steps % GROWTH_STEPS == 0:
                self.scale *= 2
            return True
        self.scale, self.good_steps = max(self.scale / 2, LEAST_SCALE), 0
        self.skipped += 1
        return False

    def why(self) -> str:
        if self.format != "fp16":
            return ""
        return f"gradients scaled by {self.scale:.0f}, {self.skipped} steps skipped on overflow"

    def _unscaling(self, model: nn.Module, call: Call) -> Call:
        """The call; gradients of its weights, and of inputs from another model, are unscaled."""

        def with_scaled_weights(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            args, kwargs = pytree.tree_map_only(Tensor, self._enter, (args, kwargs))
            weights = {
                name: scaled(weight, 1 / self.scale) if weight.requires_grad else weight
                for name, weight in model.named_parameters()
            }
            return torch.func.functional_call(model, weights, args, kwargs)

        return with_scaled_weights

    def _enter(self, value: Tensor) -> Tensor:
        return scaled(value, 1 / self.scale) if value.requires_grad else value

    def _leave(self, value: Tensor) -> Tensor:
        if value.dtype == DTYPES[self.format]:
            value = value.float()
        is_scaled = self.format == "fp16" and value.requires_grad
        return scaled(value, self.scale) if is_scaled else value


def has_finite_gradients(optimizer: Optimizer) -> bool:
    """Whether no gradient of its weights has overflowed."""
    gradients = [
        weight.grad
        for weight in weights_of(optimizer)
        if weight.grad is not None and not weight.grad.is_sparse
    ]
    norms = torch._foreach_norm(gradients) if gradients else []
    return not norms or bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())


class Scaled(torch.autograd.Function):
    """Passes a value on, and its gradient times a factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scaled(value: Tensor, factor: float) -> Tensor:
    """The value itself; its gradient is multiplied by a factor."""
    output: Tensor = Scaled.apply(value, factor)  # type: ignore[no-untyped-call]
    return output


def is_misscaled(losses: Iterable[Tensor], *, is_whole: bool) -> bool:
    """Whether a gradient of these losses would reach a leaf with another scale than its own. Unless
    the whole graph is walked, it is followed from the losses to the models' outputs only.
    """
    for node, factor in _walk(losses, is_whole=is_whole):
        is_end = node.name() == REENTRANT or node.name().endswith("AccumulateGrad")
        if factor < 1 or (is_end and factor != 1):
            return True
    return False


def unscale(losses: Iterable[Tensor]) -> None:
    """Let the backward pass of these losses scale nothing."""
    for node, _ in _walk(losses, is_whole=True):
        if _is_scaled(node):
            node.factor = 1.0


def _walk(losses: Iterable[Tensor], *, is_whole: bool) -> Iterator[tuple[Any, float]]:
    """The nodes of a graph with the factor that gradients come to them with, once for each."""
    waiting: list[tuple[Any, float]] = [(loss.grad_fn, 1.0) for loss in losses]
    seen = set(waiting)
    while waiting:
        node, factor = waiting.pop()
        if node is None:
            continue
        yield node, factor
        if _is_scaled(node):
            factor *= node.factor
        if factor > 1 and not is_whole:
            continue
        following = {(other, factor) for other, _ in node.next_functions} - seen
        seen |= following
        waiting += following


def _is_scaled(node: Any) -> bool:
    return getattr(node, "_forward_cls", None) is Scaled
