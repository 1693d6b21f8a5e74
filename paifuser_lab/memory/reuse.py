"""Let activations and sums write over their input where nobody reads it afterwards.

Two proofs have to agree. The recorded run: the input is all of a buffer that the run itself made,
nothing touches it afterwards, and it neither is an output nor outlives the call. The graphs of the
blocks: the activation is the only reader of that value whatever the input. Layers with hooks,
shared layers, and layers that did not run by themselves (compiled, fused, or inside an operator of
torch) are left alone. A call that needs gradients, or trains, runs as if nothing were in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..errors import StepError
from ..fusion.blocks import sum_in_place
from ..measure import peak_bytes
from ..model.layers import is_altered
from ..model.tensors import tensors_in
from ..model.weights import answer_hash
from ..workload import Workload, running
from .lifetimes import Recording, record
from .sole_readers import ACTIVATIONS, BlockSums, SoleReaders, SumsPlan, obstacle_in_run, plan_sums


@dataclass(frozen=True)
class ReusePlan:
    """The activations and sums that can run in place, and why the others cannot."""

    layers: tuple[str, ...]
    kept: dict[str, str]
    sums: SumsPlan


@dataclass(frozen=True)
class Holding:
    """What a call holds: buffers at once; the allocator's peak, with workspace inside operators."""

    buffers_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Reused:
    """What was done, and what a call held before and holds after."""

    plan: ReusePlan
    before: Holding
    after: Holding


def reuse(model: nn.Module, work: Workload) -> Reused:
    """Run activations and sums in place, measured; check that the output is the same to the bit."""
    expected = _output_hash(model, work)
    if _output_hash(model, work) != expected:
        raise StepError(
            "its output differs from call to call, so that nothing in place can be checked; make "
            "it deterministic in eval mode."
        )
    recording, before = _measured(model, work)
    with running(model):
        plan = plan_reuse(model, recording)
    run_in_place(model, plan.layers, plan.sums.blocks)
    if _output_hash(model, work) != expected:
        raise StepError(
            "its output is not the same to the bit with activations and sums in place; leave the "
            "step out, and report it."
        )
    is_changed = plan.layers or plan.sums.blocks
    return Reused(plan, before, _measured(model, work)[1] if is_changed else before)


def plan_reuse(model: nn.Module, recording: Recording) -> ReusePlan:
    """Decide for each activation and sum whether it can run in place."""
    readers = SoleReaders(model, recording)
    times = Counter(call.layer for call in recording.calls)
    names = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    layers: list[str] = []
    kept: dict[str, str] = {}
    for layer, module in model.named_modules():
        if type(module) not in ACTIVATIONS or module.inplace:
            continue
        if reason := (
            _obstacle_at(module, times[layer], names[id(module)])
            or _obstacle_in_run(recording, readers, layer)
            or readers.obstacle(layer)
        ):
            kept[layer] = reason
        else:
            layers.append(layer)
    return ReusePlan(tuple(layers), kept, plan_sums(recording, readers))


def run_in_place(
    model: nn.Module, layers: Iterable[str], sums: Mapping[str, BlockSums] | None = None
) -> None:
    """Let these activations and sums write over an input in calls that need no gradients."""
    for block, found in (sums or {}).items():
        sum_in_place(model.get_submodule(block), found.form, found.sums)
    if not (layers := tuple(layers)):
        return
    hooks = model._forward_pre_hooks.values()
    hook = next((hook for hook in hooks if isinstance(hook, InPlace)), None)
    if hook is None:
        hook = InPlace()
        model.register_forward_pre_hook(hook, with_kwargs=True)
    hook.layers = tuple(dict.fromkeys((*hook.layers, *layers)))
    hook.switch(model, is_on=True)


@dataclass
class InPlace:
    """Before each call: activations are in place if it needs no gradients and does not train.

    The switch is part of the model: no two threads call it with and without gradients at once.
    """

    layers: tuple[str, ...] = ()
    is_on: bool = field(default=False)

    def __call__(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return
        is_on = not model.training and not (
            torch.is_grad_enabled() and _has_gradient(model, args, kwargs)
        )
        if is_on is not self.is_on:
            self.switch(model, is_on=is_on)

    def switch(self, model: nn.Module, *, is_on: bool) -> None:
        """Let all of them be in place, or none."""
        self.is_on = is_on
        for layer in self.layers:
            activation: Any = model.get_submodule(layer)
            activation.inplace = is_on


def _has_gradient(model: nn.Module, args: Any, kwargs: Any) -> bool:
    tensors = (*model.parameters(), *tensors_in((args, kwargs)))
    return any(tensor.requires_grad for tensor in tensors)


def _obstacle_at(module: nn.Module, times: int, names: int) -> str:
    """What about the layer itself is in the way; '' if nothing is."""
    if names > 1:
        return "it is shared"
    if is_altered(module) or "forward" in vars(module):
        return "it has hooks or another forward"
    if times != 1:
        return "it is called more than once" if times else "it did not run by itself on the inputs"
    return ""


def _obstacle_in_run(recording: Recording, readers: SoleReaders, layer: str) -> str:
    """What in the recorded run is in the way; '' if nothing is."""
    call = readers.calls[layer]
    if call.given is None:
        return "it is called with more than a tensor"
    return obstacle_in_run(recording, call.given, call.end)


def _output_hash(model: nn.Module, work: Workload) -> str:
    with running(model):
        return answer_hash(work.inputs.clone()(model))


def _measured(model: nn.Module, work: Workload) -> tuple[Recording, Holding]:
    inputs, again = work.inputs.clone(), work.inputs.clone()
    with running(model):
        recording = record(model, lambda: inputs(model))
        peak = peak_bytes(lambda: again(model), work.device)
    return recording, Holding(recording.referenced_bytes, peak)
