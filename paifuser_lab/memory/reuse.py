"""Let activations write over their input where nobody reads it afterwards.

Two proofs have to agree. The recorded run: the input is all of a buffer that the run itself made,
nothing touches it afterwards, and it neither is an output nor outlives the call. The graphs of the
blocks: the activation is the only reader of that value whatever the input. Layers with hooks,
shared layers, and layers that did not run by themselves (compiled, fused, or inside an operator of
torch) are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ForwardError, StepError
from ..measure import peak_bytes
from ..model.layers import is_altered
from ..model.weights import answer_hash
from ..workload import Workload, running
from .lifetimes import Recording, record
from .sole_readers import ACTIVATIONS, SoleReaders

REFUSED = (
    "This model's activations run in place (step 'reuse'), so it computes no gradients; call it in "
    "eval mode within torch.no_grad() or torch.inference_mode(), and train it without that step."
)


@dataclass(frozen=True)
class ReusePlan:
    """The activations that can run in place, and why the others cannot."""

    layers: tuple[str, ...]
    kept: dict[str, str]


@dataclass(frozen=True)
class Holding:
    """What a call holds, measured: its buffers at once, and the peak of torch's allocator, in which
    the workspace inside operators counts too.
    """

    buffers_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Reused:
    """What was done, and what a call held before and holds after."""

    plan: ReusePlan
    before: Holding
    after: Holding


def reuse(model: nn.Module, work: Workload) -> Reused:
    """Run activations of a model in place, measured, and check that its output is the same to the
    bit.
    """
    expected = _output_hash(model, work)
    if _output_hash(model, work) != expected:
        raise StepError(
            "its output differs from call to call, so that nothing in place can be checked; make "
            "it deterministic in eval mode."
        )
    recording, before = _measured(model, work)
    with running(model):
        plan = plan_reuse(model, recording)
    run_in_place(model, plan.layers)
    if _output_hash(model, work) != expected:
        raise StepError(
            "its output is not the same to the bit with its activations in place; leave the step "
            "out, and report it."
        )
    return Reused(plan, before, _measured(model, work)[1] if plan.layers else before)


def plan_reuse(model: nn.Module, recording: Recording) -> ReusePlan:
    """Decide for each activation whether it can run in place."""
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
    return ReusePlan(tuple(layers), kept)


def run_in_place(model: nn.Module, layers: Iterable[str]) -> None:
    """Let these activations write over their input; a call that needs gradients is refused."""
    layers = tuple(layers)
    for layer in layers:
        activation: Any = model.get_submodule(layer)
        activation.inplace = True
    if layers and refuse_gradients not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(refuse_gradients, with_kwargs=True)


def refuse_gradients(model: nn.Module, args: Any, kwargs: Any) -> None:
    """Raise where a call trains the model or would need gradients; exporters and compilers, which
    trace it, may go on.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return
    if model.training or (torch.is_grad_enabled() and _has_gradient(model, args, kwargs)):
        raise ForwardError(REFUSED, layer="")


def _has_gradient(model: nn.Module, args: Any, kwargs: Any) -> bool:
    given = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
    return any(tensor.requires_grad for tensor in (*model.parameters(), *given))


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
    if call.given.buffer is None:
        return "its input is an input of the model or a weight"
    if not call.given.is_whole:
        return "its input is a part of other values"
    buffer = recording.buffers[call.given.buffer]
    if buffer.is_output:
        return "its input is an output of the model"
    if buffer.released is None:
        return "its input is kept after the call"
    if buffer.end >= call.end:
        return "its input is read later"
    return ""


def _output_hash(model: nn.Module, work: Workload) -> str:
    with running(model):
        return answer_hash(work.inputs.clone()(model))


def _measured(model: nn.Module, work: Workload) -> tuple[Recording, Holding]:
    inputs, again = work.inputs.clone(), work.inputs.clone()
    with running(model):
        recording = record(model, lambda: inputs(model))
        peak = peak_bytes(lambda: again(model), work.device)
    return recording, Holding(recording.referenced_bytes, peak)
