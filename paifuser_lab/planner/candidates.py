"""What may make a model faster or smaller here: each candidate is a few steps with their reason.

`plan_candidates` lists what `plan` times against each other; `changes_for` what a search shows one
by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from ..machine import thread_choices
from ..memory.pools import pool_gain
from ..memory.sole_readers import ACTIVATIONS
from ..model.fold import plan_fold
from ..model.graph import observe
from ..profiler.expected import KINDS
from ..records import Hardware, Limit, counted
from ..workload import Workload, running
from .ranking import EXACT

MIN_SPEEDUP = 1.3  # a format is tried when the hardware computes this much faster in it
MIN_INT8_ERROR = 0.01  # int8 is not tried where the allowed error is smaller
WIDE_OPEN = Limit(metric_drop=1.0, output_error=1e9)  # `plan` and a search have limits of their own

Choice = dict[str, dict[str, Any]]


def folding_of(work: Workload) -> list[Choice]:
    """Fold batch-norms wherever there are any: folding is exact and costs nothing at run time."""
    with running(work.model):
        pairs = plan_fold(
            work.model, observe(work.model, lambda: work.inputs.clone()(work.model))
        ).pairs
    if not pairs:
        return []
    return [
        {
            "fold": {
                "why": (
                    f"{len(pairs)} batch-norm layers follow a convolution or linear layer; folded, "
                    "each costs nothing"
                )
            }
        }
    ]


def plan_candidates(
    work: Workload, machine: Hardware, max_error: float, engines: tuple[str, ...]
) -> list[list[Choice]]:
    """Each engine with each sensible number of threads, in each format that pays off."""
    formats = [
        None,
        *(
            name
            for name in (half_format(machine, max_error), int8_format(machine, max_error))
            if name
        ),
    ]
    layouts: list[list[Choice]] = [[], [{"layout": {}}]] if has_images(work) else [[]]
    counts = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    gain = pool_gain(work)
    pools: list[Choice] = [{"pool": {"why": gain.sentence}}] if gain and gain.pays else []
    candidates: list[list[Choice]] = []
    for count in counts:
        for name in formats:
            numbers: list[Choice] = [{"precision": {"default": name}}] if name else []
            backends = _backends(
                work,
                count,
                in_half=name in ("bf16", "fp16"),
                in_bf16="bf16" in formats and name != "bf16",
            )
            eager = [[*numbers, *layout] for layout in layouts]
            eager += [[*eager[-1], {"fuse": {}}]] if name is None else []
            eager += [[*pools, *steps] for steps in eager[-1:] if pools]
            candidates += [
                [*steps, _backend("eager", count)] for steps in eager if "eager" in engines
            ]
            candidates += [
                [*numbers, backend] for backend in backends if backend["backend"]["name"] in engines
            ]
    return candidates


def _backends(work: Workload, count: int, *, in_half: bool, in_bf16: bool) -> list[Choice]:
    """The engines other than eager; ONNX Runtime has no 16-bit convolutions on a CPU, and spinning
    threads matter from two threads on.
    """
    is_cpu = work.device.type == "cpu"
    sleeping, spinning = _backend("onnxruntime", count), _backend("onnxruntime", count, spin=True)
    exported = [
        *([sleeping] if not in_half else []),
        *([spinning] if not in_half and count > 1 else []),
        _backend("openvino", count),
        *([_backend("openvino", count, bf16=True)] if in_bf16 else []),
    ]
    return [*(exported if is_cpu else []), _backend("inductor", count, freeze=is_cpu)]


def _backend(name: str, count: int, **options: bool) -> Choice:
    return {
        "backend": {"name": name, "threads": count}
        | {option: True for option, is_on in options.items() if is_on}
    }


def half_format(machine: Hardware, max_error: float) -> str | None:
    """The 16-bit format that is much faster here than fp32, if there is one and it is allowed."""
    target = machine.target
    if max_error <= EXACT:
        return None
    for name, rate in (("bf16", target.bf16_gflops), ("fp16", target.fp16_gflops)):
        if rate is not None and rate > MIN_SPEEDUP * target.fp32_gflops:
            return name
    return None


def int8_format(machine: Hardware, max_error: float) -> str | None:
    """int8 where the hardware computes much faster in it, and the allowed error permits it."""
    rate = machine.target.int8_gops
    is_faster = rate is not None and rate > MIN_SPEEDUP * machine.target.fp32_gflops
    is_allowed = is_faster and not machine.accelerators and max_error >= MIN_INT8_ERROR
    return "int8" if is_allowed else None


def has_images(work: Workload) -> bool:
    return any(tensor.ndim == 4 for tensor in work.inputs.tensors) and any(
        isinstance(module, nn.Conv2d) for module in work.model.modules()
    )


@dataclass(frozen=True)
class Change:
    """A candidate of a search: its steps, what they are for, and what they may cost."""

    label: str
    steps: tuple[Choice, ...]
    why: str
    trains: bool = False
    is_smaller: bool = False
    """Whether it is meant to make the model smaller rather than faster."""

    @property
    def is_slow(self) -> bool:
        """Whether it takes long to build: it trains, or compiles with a C++ compiler."""
        return self.trains or any(
            step.get("backend", {}).get("name") == "inductor" for step in self.steps
        )


def changes_for(
    work: Workload, machine: Hardware, *, may_train: bool, engines: tuple[str, ...]
) -> list[Change]:
    """Everything that a search tries: engines, layouts, precision, pruning, threads."""
    folding = tuple(folding_of(work))
    folded = _plain(folding)
    changes = [
        *_engine_changes(work, machine, folded, engines),
        *_layout_changes(work, folding, folded),
        *_memory_changes(work),
        *_precision_changes(work, machine, folded, engines),
        *_pruned_changes(folded, may_train=may_train),
        *_thread_changes(work),
    ]
    return list({repr(change.steps): change for change in changes}.values())


def _plain(steps: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """The steps without their reasons."""
    return tuple(
        {kind: {name: value for name, value in options.items() if name != "why"}}
        for step in steps
        for kind, options in step.items()
    )


# by the kind of step, whose effect advice predicts
ENGINES = {
    "openvino": ("Run on OpenVINO", "the whole graph as one call, layers joined where it can"),
    "openvino in bf16": (
        "Run on OpenVINO, in bf16",
        "one call, and this processor computes faster in bf16",
    ),
    "onnxruntime": ("Run on ONNX Runtime", "the whole graph as one call, layers joined"),
    "inductor": ("Compile with Inductor", "joins what lies between the large operators; compiles"),
}


def _engine_changes(
    work: Workload, machine: Hardware, folded: tuple[Choice, ...], engines: tuple[str, ...]
) -> list[Change]:
    is_cpu = work.device.type == "cpu"
    half = half_format(machine, 1.0)
    left_out = {"openvino in bf16"} if half != "bf16" else set()
    changes = []
    for name, (label, why) in ENGINES.items():
        engine = KINDS[name].engine
        if engine not in engines or name in left_out or not (is_cpu or engine == "inductor"):
            continue
        step = KINDS[name].step if is_cpu else {"backend": {"name": engine}}
        changes.append(Change(label, (*folded, step), why))
    return changes


def _layout_changes(
    work: Workload, folding: tuple[Choice, ...], folded: tuple[Choice, ...]
) -> list[Change]:
    changes = []
    if has_images(work):
        changes.append(
            Change("Channels last", (KINDS["layout"].step,), "convolutions read neighbouring bytes")
        )
        changes.append(
            Change(
                "Channels last, layers joined",
                (*folded, KINDS["layout"].step, KINDS["fuse"].step),
                "activations are computed where the convolution writes",
            )
        )
    else:
        why = "activations are computed where the layer before writes"
        changes.append(Change("Join layers", (*folded, KINDS["fuse"].step), why))
    if folding:
        changes.append(Change("Fold batch-norm", folded, folding[0]["fold"]["why"]))
    return changes


def _memory_changes(work: Workload) -> list[Change]:
    changes = []
    gain = pool_gain(work)
    if gain is not None and gain.pays:
        changes.append(Change("Keep freed memory", ({"pool": {}},), gain.sentence))
    if any(type(layer) in ACTIVATIONS and not layer.inplace for layer in work.model.modules()):
        why = "activations write over their input where nobody else reads it"
        changes.append(Change("Use memory again", ({"reuse": {}},), why, is_smaller=True))
    return changes


def _precision_changes(
    work: Workload, machine: Hardware, folded: tuple[Choice, ...], engines: tuple[str, ...]
) -> list[Change]:
    changes = []
    target = machine.target
    for name, rate in (("bf16", target.bf16_gflops), ("fp16", target.fp16_gflops)):
        if rate is None and name == "fp16":
            continue
        ratio = f"{rate / target.fp32_gflops:.1f} × the rate of fp32 here" if rate else ""
        why = ", ".join(part for part in ("half the bytes", ratio) if part)
        changes.append(_in_format(name, folded, why))
    if target.int8_gops and not machine.accelerators:
        ratio = f"{target.int8_gops / target.fp32_gflops:.1f} × the rate of fp32 here"
        int8 = (*folded, KINDS["int8"].step)
        why = f"a quarter of the bytes, {ratio}"
        changes += [
            Change(f"{label} in int8", (*int8, {"backend": {"name": engine}}), why, is_smaller=True)
            for engine, label in (("openvino", "OpenVINO"), ("onnxruntime", "ONNX Runtime"))
            if engine in engines and work.device.type == "cpu"
        ]
        changes.append(_in_format("int8", folded, why))
    why = "weights take a quarter of the bytes; products stay in fp32"
    changes.append(_in_format("int8-weights", folded, why))
    return changes


def _in_format(name: str, folded: tuple[Choice, ...], why: str) -> Change:
    steps = (*folded, {"precision": {"default": name}})
    return Change(f"{name} everywhere", steps, why, is_smaller=True)


def _pruned_changes(folded: tuple[Choice, ...], *, may_train: bool) -> list[Change]:
    changes = []
    for kind in (KINDS["prune 25 %"], KINDS["prune 50 %"]):
        label = f"Keep {1 - kind.step['prune']['ratio']:.0%} of the channels"
        steps = (*folded, kind.step)
        changes.append(Change(label, steps, "fewer channels: fewer products", is_smaller=True))
        if may_train:
            trained = (*steps, {"distill": {"epochs": 1}})
            why = "fewer channels; trained by the original's outputs to make up for them"
            changes.append(Change(f"{label}, trained", trained, why, trains=True, is_smaller=True))
    return changes


def _thread_changes(work: Workload) -> list[Change]:
    if work.device.type != "cpu" or len(thread_choices()) == 1:
        return []
    return [
        Change(
            f"Run with {counted(count, 'thread')}",
            ({"backend": {"name": "eager", "threads": count}},),
            "the number of threads that the model runs with",
        )
        for count in thread_choices()
    ]
