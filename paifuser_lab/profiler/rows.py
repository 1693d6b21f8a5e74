"""Join an observation to a profile: a row a layer, what binds it, ceilings that none exceeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from statistics import median
from typing import Any

import numpy
from torch import Tensor, backends

from ..machine import keep_faster, machine_label
from ..quantization import Int8Layer, QuantizedLayer
from ..records import ENGINE_ROW, Kernel, LayerProfile, OperatorProfile, Profile
from ..records.hardware import rate_field
from .clock import call_costs_ms, operator_cost_ms
from .cost import Cost
from .engine_rows import engine_rows
from .observation import (
    Observation,
    described,
    in_tree_order,
    rolled_up,
    roofline,
    sums_of,
    weights_by_layer,
)

MAX_WATCHING_RATIO = 3.0  # of the cost of watching a call here to that in an idle model
# of a layer's time: its operators were timed in other runs, so a smaller difference is no overhead
NOISE = 0.3
MIN_RATIO = 1.03  # to the ceiling
MAX_RATIO = 4.0  # above it, the operator does less than was counted
MIN_MS = 0.2  # of a layer; below it the clock's own cost dominates
MIN_RUNS = 5


def finished(observation: Observation) -> Profile:
    """The profile of an observation, with ceilings that none of its layers exceeds."""
    profile = profile_of(observation)
    rates = rates_beyond(observation, profile)
    if not rates:
        return profile
    keep_faster(observation.machine, observation.threads, rates)
    observation.machine = observation.machine.raised(observation.threads, rates)
    return profile_of(observation)


def profile_of(observation: Observation) -> Profile:
    call_ms, _ = call_costs_ms()
    watching_ms = observation.recording_ms if observation.recorder else _watching_ms(observation)
    layers = (
        engine_rows(observation) if observation.recorder else _all_rows(observation, watching_ms)
    )
    low, high = numpy.percentile(observation.plain_ms, [25, 75])
    pairs = zip(observation.watched_ms, observation.plain_ms, strict=False)
    profile = Profile(
        workload=observation.work.name,
        machine=machine_label(),
        device=str(observation.work.device),
        applied=observation.work.applied,
        engine=observation.engine.title if observation.engine else "",
        threads=observation.threads,
        ceiling=observation.ceiling,
        vector_width=observation.vector_width,
        latency_ms=median(observation.plain_ms),
        latency_spread_ms=(float(low), float(high)),
        rounds_ms=tuple(observation.plain_ms),
        slowdown_while_profiling=median(watched / alone - 1 for watched, alone in pairs),
        watching_us=watching_ms * 1e3,
        call_us=call_ms * 1e3,
        operator_us=operator_cost_ms() * 1e3,
        layers=layers,
        timeline=observation.timeline,
        is_interrupted=observation.is_interrupted,
    )
    if observation.quality is None:
        return profile
    rows_share = round(profile.rows_to_latency, 4)
    quality = observation.quality.model_copy(update={"rows_share": rows_share})
    return profile.model_copy(update={"quality": quality})


def _all_rows(observation: Observation, watching_ms: float) -> tuple[LayerProfile, ...]:
    """The rows of a model that eager torch runs; an engine that cannot be seen into is one row."""
    # on a device the clock runs there, and watching is free
    cost_ms = watching_ms if observation.work.device.type == "cpu" else 0.0
    corrected = [run.corrected(cost_ms) for run in observation.runs]
    names = dict.fromkeys(layer for run in corrected for layer in run)
    own = {layer: [run.get(layer, 0.0) for run in corrected] for layer in names}
    first, *rest = _rows(observation, own, _homes(observation, own))
    if observation.engine and observation.engine.opaque:  # nothing tells what binds it
        unknown = dict.fromkeys(("bound", "layers"), observation.engine.opaque)
        update = {"verdict": None, "overhead_ms": 0.0, "unknown_why": unknown}
        first = first.model_copy(update=update)
    return (first, *rest)


def _watching_ms(observation: Observation) -> float:
    """The cost of watching one call in this model, whose caches are colder than an idle model's.

    Taken from the same rounds, and at most a few times the cost in an idle model: an excess is an
    error of the rows and stays visible.
    """
    _, idle_ms = call_costs_ms()
    if observation.work.device.type != "cpu":
        return idle_ms
    excess = [
        run.total_ms - alone
        for run, alone in zip(observation.runs, observation.plain_ms, strict=False)
    ]
    calls = max(1, sum(observation.runs[0].calls.values()))
    return min(max(median(excess) / calls, 0.0), MAX_WATCHING_RATIO * idle_ms)


def _homes(observation: Observation, own: dict[str, list[float]]) -> dict[str, str]:
    """The row of each layer: its own, or that of the compiled part around it."""

    @cache
    def home(layer: str) -> str:
        return layer if layer in own or not layer else home(layer.rpartition(".")[0])

    return {layer: home(layer) for layer in (*own, *observation.operators.entered)}


def _rows(
    observation: Observation, own: dict[str, list[float]], home: dict[str, str]
) -> Iterable[LayerProfile]:
    entered = [layer for layer in observation.operators.entered if layer in own]
    names = in_tree_order([*entered, *own])
    selves = _own_figures(observation, names, own, home)
    sums = sums_of(selves, weights_by_layer(observation.layered))
    backward = _backward(observation, home)
    all_backward = rolled_up(backward or {})
    runs = rolled_up({name: numpy.array(times) for name, times in own.items()})
    for name in names:
        low, high = numpy.percentile(runs[name], [25, 75])
        yield LayerProfile(
            **selves[name],
            **sums[name],
            total_spread_ms=(float(low), float(high)),
            backward_self_ms=None if backward is None else backward.get(name, 0.0),
            backward_total_ms=None if backward is None else all_backward.get(name, 0.0),
        )


def _own_figures(
    observation: Observation, names: list[str], own: dict[str, list[float]], home: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """The description and own figures of each layer."""
    operators, inside = _operators(observation, home), least_inside(observation, home)
    modules = dict(observation.layered.named_modules(remove_duplicate=False))
    recorded = observation.operators
    calls = {layer: max(run.calls.get(layer, 0) for run in observation.runs) for layer in own}
    selves: dict[str, dict[str, Any]] = {}
    for name in names:
        times = own.get(name, [0.0])
        low, high = numpy.percentile(times, [25, 75])
        ran = operators.get(name, ())
        counts = {
            key: sum(getattr(op, key) for op in ran)
            for key in ("flops", "macs", "read_bytes", "written_bytes")
        }
        row = {
            **described(observation, name, modules[name]),
            "calls": calls.get(name, 0),
            "self_ms": float(numpy.median(times)),
            "self_spread_ms": (float(low), float(high)),
            "is_channels_last": name in recorded.channels_last,
            "peak_bytes": observation.held.get(name),
            "reads_from": _reads_from(name, recorded.reads_from, home),
            "kernels": tuple(
                Kernel(name=key, calls=count, ms=ms)
                for key, (count, ms) in observation.kernels.get(name, {}).items()
            ),
            "alternatives": observation.alternatives.get(name, ()),
            **counts,
        }
        # on a device an operator's time is that of its launch: the layer's time is not around it
        is_cpu = observation.work.device.type == "cpu"
        outside_ms = min(times) - inside.get(name, 0.0) if is_cpu else 0.0
        selves[name] = row | limits_of(observation, row, ran, outside_ms)
    return selves


def _operators(
    observation: Observation, home: dict[str, str]
) -> dict[str, tuple[OperatorProfile, ...]]:
    """Each row's own operators; layers inside a compiled part count to that part."""
    recorded = observation.operators
    operators: dict[str, dict[str, OperatorProfile]] = defaultdict(dict)
    for (layer, name), calls in recorded.calls.items():
        ms = median([run.get((layer, name), 0.0) for run in recorded.runs_ms] or [0.0])
        row, cost = home.get(layer, ""), recorded.costs.get((layer, name), Cost())
        before = operators[row].get(name)
        operator = OperatorProfile(name=name, calls=calls, ms=ms, **cost._asdict())
        operators[row][name] = operator if before is None else _sum(before, operator)
    return {row: tuple(by_name.values()) for row, by_name in operators.items()}


def _sum(first: OperatorProfile, second: OperatorProfile) -> OperatorProfile:
    added = {
        key: getattr(first, key) + getattr(second, key)
        for key in OperatorProfile.model_fields
        if key != "name"
    }
    return OperatorProfile(name=first.name, **added)


def _reads_from(
    name: str, flow: dict[str, dict[str, None]], home: dict[str, str]
) -> tuple[str, ...]:
    makers = dict.fromkeys(home.get(maker, "") for maker in flow.get(name, {}))
    return tuple(maker for maker in makers if maker != name)


def _backward(observation: Observation, home: dict[str, str]) -> dict[str, float] | None:
    """Median time of each row's gradients; None if they were not recorded."""
    if not observation.backward:
        return None
    spent: dict[str, float] = defaultdict(float)
    for layer in {layer for run in observation.backward for layer in run}:
        spent[home.get(layer, "")] += median(run.get(layer, 0.0) for run in observation.backward)
    return dict(spent)


def limits_of(
    observation: Observation,
    row: dict[str, Any],
    ran: tuple[OperatorProfile, ...],
    outside_ms: float,
) -> dict[str, Any]:
    """The layer's time at each limit of this machine, its operators, and the binding limit."""
    call_ms, _ = call_costs_ms()
    calling = sum(op.calls for op in ran) * operator_cost_ms() + row["calls"] * call_ms
    overhead = min(
        row["self_ms"], max(calling, outside_ms if outside_ms > NOISE * row["self_ms"] else 0.0)
    )
    moved = row["read_bytes"] + row["written_bytes"]
    limits = roofline(observation, row["dtype"], row["flops"], moved, overhead)
    if row["self_ms"] == 0 or not (ran or row["calls"]):
        limits["verdict"] = None
    return limits | {"operators": _scaled(ran, row["self_ms"])}


def least_inside(observation: Observation, home: dict[str, str]) -> dict[str, float]:
    """The time of each layer's operators in their fastest run: load is no overhead."""
    runs: list[dict[str, float]] = []
    for run_ms in observation.operators.runs_ms:
        spent: dict[str, float] = defaultdict(float)
        for (layer, _), ms in run_ms.items():
            spent[home.get(layer, "")] += ms
        runs.append(spent)
    return {
        layer: min(run.get(layer, 0.0) for run in runs)
        for layer in {layer for run in runs for layer in run}
    }


def _scaled(ran: tuple[OperatorProfile, ...], self_ms: float) -> tuple[OperatorProfile, ...]:
    """Scale the operators' times, taken in other runs, to at most the time of their layer."""
    together = sum(op.ms for op in ran)
    if together <= self_ms:
        return ran
    return tuple(op.model_copy(update={"ms": op.ms * self_ms / together}) for op in ran)


def rates_beyond(observation: Observation, profile: Profile) -> dict[str, float]:
    """The highest CPU rate of layers in each format that beats the ceiling of these threads."""
    ceiling = observation.ceiling
    if (
        profile.device != "cpu"
        or ceiling.threads != observation.threads
        or len(observation.plain_ms) < MIN_RUNS
    ):
        return {}
    best: dict[str, float] = {}
    for row in profile:
        if row.layer == ENGINE_ROW:
            continue
        name, known = rate_field(row.dtype), ceiling.rate(row.dtype)
        if (
            known
            and row.gflops
            and MIN_RATIO * known < row.gflops <= MAX_RATIO * known
            and _is_comparable(observation, row)
        ):
            best[name] = max(best.get(name, 0.0), row.gflops)
    return best


def _is_comparable(observation: Observation, row: LayerProfile) -> bool:
    """Whether the layer multiplies in the format of its row, and runs long enough to be timed."""
    module = observation.layered.get_submodule(row.layer)
    if row.self_ms < MIN_MS or not row.macs:
        return False
    if isinstance(module, QuantizedLayer):
        return isinstance(module, Int8Layer)
    weight = getattr(module, "weight", None)
    is_same = isinstance(weight, Tensor) and str(weight.dtype) == f"torch.{row.dtype}"
    return is_same and (row.dtype != "float32" or _is_true_fp32())


def _is_true_fp32() -> bool:
    """Whether products and convolutions in fp32 use neither bf16 nor TF32."""
    parts = (getattr(backends.mkldnn, name, None) for name in ("matmul", "conv"))
    return all(getattr(part, "fp32_precision", "ieee") in ("none", "ieee") for part in parts)
