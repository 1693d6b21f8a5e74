"""The precision that a training computes in: a format for each layer, and when it leaves fp32.

Weights keep their dtype: torch's autocast chooses each operator's, and a layer with a format of its
own runs under an autocast of its own. Built on torch.autocast.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import StepError
from .plan import TrainPlan

LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}
WINDOW = 20  # losses that are averaged
SETTLED = 0.02  # a mean loss that falls by less than this share has settled
TROUBLE = 1.5  # times the mean loss before the switch


@dataclass
class PrecisionSchedule:
    """Whether the next step computes in fp32 or lower; a fold over the losses so far, so that a
    resumed training decides the same.
    """

    plan: TrainPlan
    steps: int  # of the whole training
    is_lower: bool = False
    marks: list[tuple[int, str]] = field(default_factory=list)  # step, what was switched and why
    _losses: list[float] = field(default_factory=list)
    _reference: float = math.nan
    _switched: int | None = None
    _is_back: bool = False

    def __post_init__(self) -> None:
        until = self.plan.fp32_until
        if self.has_lower and not isinstance(until, str) and until <= 0:
            self.is_lower = True

    @property
    def has_lower(self) -> bool:
        """Whether the plan has a lower format at all."""
        return self.plan.lower != "fp32" or any(
            name != "fp32" for name in self.plan.formats.values()
        )

    def see(self, loss: float) -> None:
        """Take the next loss into account."""
        self._losses.append(loss)
        if not self.has_lower or self._is_back:
            return
        if not self.is_lower:
            if reason := self._is_due():
                self._switch(reason)
        elif self._switched is not None and self.plan.back_on_trouble and (
            reason := self._trouble()
        ):  # fmt: skip
            self.is_lower, self._is_back = False, True
            self.marks.append((len(self._losses), f"back to fp32: {reason}"))

    def _switch(self, reason: str) -> None:
        self.is_lower, self._switched = True, len(self._losses)
        self._reference = finite_mean(self._losses[-WINDOW:])
        self.marks.append((len(self._losses), f"{self._name} from here: {reason}"))

    @property
    def _name(self) -> str:
        return "formats by layer" if self.plan.formats else self.plan.lower

    def _is_due(self) -> str:
        """Why lower precision begins now; '' if it does not."""
        until, done = self.plan.fp32_until, len(self._losses)
        if until == "settled":
            if done < 2 * WINDOW or done % WINDOW:
                return ""
            last, before = (
                finite_mean(self._losses[-WINDOW:]),
                finite_mean(self._losses[-2 * WINDOW : -WINDOW]),
            )
            is_settled = before - last < SETTLED * abs(before)
            return f"the mean loss settled at {last:.4g}" if is_settled else ""
        share = float(until)
        at = share * self.steps if share < 1 else share
        return f"{done} steps were done in fp32" if done >= at else ""

    def _trouble(self) -> str:
        """Why fp32 comes back; '' if it does not."""
        if not math.isfinite(self._losses[-1]):
            return f"the loss became {self._losses[-1]}"
        after = len(self._losses) - (self._switched or 0)
        last = finite_mean(self._losses[-WINDOW:])
        rise = last - self._reference
        if after >= WINDOW and rise > (TROUBLE - 1) * abs(self._reference):
            return f"the mean loss rose from {self._reference:.4g} to {last:.4g}"
        return ""


def finite_mean(losses: Sequence[float]) -> float:
    """The mean of the losses that are finite; infinity where none is."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    return fmean(finite) if finite else math.inf


class LayerFormats:
    """Runs a model in a format, and layers of it in formats of their own.

    The layers keep their wrappers while `installed`, since activation checkpointing calls them
    again in the backward pass.
    """

    def __init__(self, model: nn.Module, formats: Mapping[str, str], device: torch.device) -> None:
        self.device, self.layers = device.type, resolved(model, formats)
        self.is_lower = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Give the layers their wrappers; they are taken off on exit."""
        with ExitStack() as stack:
            for layer, name in self.layers:
                stack.enter_context(replaced_forward(layer, self._wrapped(layer.forward, name)))
            yield

    @contextmanager
    def computing(self, default: str, *, is_lower: bool) -> Iterator[None]:
        """Compute in the default format, layers in theirs; all in fp32 unless `is_lower`."""
        self.is_lower = is_lower
        lower = LOWER.get(default) if is_lower else None
        with torch.autocast(self.device, dtype=lower, enabled=lower is not None):
            yield

    def _wrapped(self, forward: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A layer's forward under an autocast of its own. Its output is in fp32 where the format
        around it is another, since torch joins bf16 and fp16 with fp32 but not with each other.
        """
        lower = LOWER.get(name)

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self.is_lower:
                return forward(*args, **kwargs)
            is_lower_around = torch.is_autocast_enabled(self.device)
            around = torch.get_autocast_dtype(self.device) if is_lower_around else None
            if lower is None:
                args, kwargs = pytree.tree_map_only(Tensor, to_fp32, (args, kwargs))
            with torch.autocast(self.device, dtype=lower, enabled=lower is not None):
                output = forward(*args, **kwargs)
            return output if lower == around else pytree.tree_map_only(Tensor, to_fp32, output)

        return run


@contextmanager
def replaced_forward(layer: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a layer run another forward; its own is back on exit."""
    before = vars(layer).get("forward")
    vars(layer)["forward"] = forward
    try:
        yield
    finally:
        vars(layer).pop("forward")
        if before is not None:
            vars(layer)["forward"] = before


def resolved(model: nn.Module, formats: Mapping[str, str]) -> list[tuple[nn.Module, str]]:
    """The layers with their formats; patterns as in recipes, later ones win."""
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: dict[str, str] = {}
    for pattern, name in formats.items():
        matches = [layer for layer in modules if fnmatch.fnmatchcase(layer, pattern)]
        if not matches:
            raise StepError(
                f"formats: '{pattern}' matches no layer; there are {', '.join(list(modules)[:8])} …"
            )
        chosen |= dict.fromkeys(matches, name)
    return [(modules[layer], name) for layer, name in chosen.items()]


def to_fp32(tensor: Tensor) -> Tensor:
    """A tensor of 16 bits in fp32; others as they are."""
    return tensor.float() if tensor.dtype in LOWER.values() else tensor
