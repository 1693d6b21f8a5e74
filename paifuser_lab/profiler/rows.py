"""Join an observation to a profile: one row per layer, totals by path, and the roof of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from statistics import median
from typing import Any

import numpy

from ..quantization import Int8Layer
from ..records import Kernel, LayerProfile, OperatorProfile, Profile
from .clock import call_costs_ms, operator_cost_ms
from .cost import Cost
from .engine_rows import engine_rows, opaque_row
from .limits import least_inside, limits_of, vector_width
from .observation import Observation
from .tree import detail_of, in_tree_order, rolled_up, weight_shape, weights_by_layer

MAX_WATCHING_RATIO = 3.0  # of the cost of watching a call here to that in an idle model


def profile_of(observation: Observation) -> Profile:
    """The profile of an observation."""
    call_ms, _ = call_costs_ms()
    watching_ms = observation.recording_ms if observation.recorder else _watching_ms(observation)
    layers = (
        engine_rows(observation) if observation.recorder else _all_rows(observation, watching_ms)
    )
    plain = observation.plain_ms or [sum(row.self_ms for row in layers)]
    low, high = numpy.percentile(plain, [25, 75])
    pairs = zip(observation.watched_ms, observation.plain_ms, strict=False)
    profile = Profile(
        workload=observation.work.name,
        machine=observation.machine.label,
        device=str(observation.work.device),
        applied=observation.work.applied,
        engine=observation.engine.title if observation.engine else "",
        threads=observation.threads,
        ceiling=observation.ceiling,
        vector_width=vector_width(observation),
        latency_ms=median(plain),
        latency_spread_ms=(float(low), float(high)),
        rounds_ms=tuple(observation.plain_ms),
        slowdown_while_profiling=median([watched / alone - 1 for watched, alone in pairs] or [0.0]),
        watching_us=watching_ms * 1e3,
        call_us=call_ms * 1e3,
        operator_us=operator_cost_ms() * 1e3,
        layers=layers,
        is_interrupted=observation.is_interrupted,
        failure=str(observation.failure) if observation.failure else None,
        failed_layer=observation.failure.layer if observation.failure else None,
    )
    if observation.quality is None:
        return profile
    rows_share = round(profile.rows_to_latency, 4)
    quality = observation.quality.model_copy(update={"rows_share": rows_share})
    return profile.model_copy(update={"quality": quality})


def _all_rows(observation: Observation, watching_ms: float) -> tuple[LayerProfile, ...]:
    """The rows of a model that eager torch runs; an engine that cannot be seen into is one row."""
    own = _own_ms(observation, watching_ms)
    first, *rest = _rows(observation, own, _homes(observation, own))
    opaque = observation.engine.opaque if observation.engine else ""
    return (opaque_row(first, opaque) if opaque else first, *rest)


def _watching_ms(observation: Observation) -> float:
    """The cost of watching one call in this model, whose caches are colder than an idle model's.

    Taken from the same rounds, and at most a few times the cost in an idle model: an excess is an
    error of the rows and stays visible.
    """
    _, idle_ms = call_costs_ms()
    if not observation.plain_ms or observation.work.device.type != "cpu":
        return idle_ms
    excess = [
        run.total_ms - alone
        for run, alone in zip(observation.runs, observation.plain_ms, strict=False)
    ]
    calls = max(1, sum(observation.runs[0].calls.values()))
    return min(max(median(excess) / calls, 0.0), MAX_WATCHING_RATIO * idle_ms)


def _own_ms(observation: Observation, watching_ms: float) -> dict[str, list[float]]:
    """Each layer's own time in each run; on a device the clock runs there, and watching is free."""
    cost_ms = watching_ms if observation.work.device.type == "cpu" else 0.0
    corrected = [run.corrected(cost_ms) for run in observation.runs]
    names = dict.fromkeys(layer for run in [{"": 0.0}, *corrected] for layer in run)
    return {layer: [run.get(layer, 0.0) for run in corrected] or [0.0] for layer in names}


def _homes(observation: Observation, own: dict[str, list[float]]) -> dict[str, str]:
    """The row of each layer: its own, or that of the compiled part around it, which cannot be timed
    inside.
    """

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
    weights = {
        name: count for name, count in weights_by_layer(observation.layered).items() if count
    }
    backward = _backward(observation, home)
    runs = rolled_up({name: numpy.array(times) for name, times in own.items()})
    total = {
        key: rolled_up({name: row[key] for name, row in selves.items()})
        for key in ("self_ms", "flops", "macs", "bytes")
    }
    all_weights, all_backward = rolled_up(weights), rolled_up(backward or {})
    whole = total["self_ms"][""] or 1.0
    for name in names:
        low, high = numpy.percentile(runs[name], [25, 75])
        yield LayerProfile(
            **{key: value for key, value in selves[name].items() if key != "bytes"},
            total_ms=total["self_ms"][name],
            total_spread_ms=(float(low), float(high)),
            share=total["self_ms"][name] / whole,
            total_flops=total["flops"][name],
            total_macs=total["macs"][name],
            total_bytes=total["bytes"][name],
            parameters=weights.get(name, 0),
            total_parameters=all_weights.get(name, 0),
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
    calls = (
        {layer: max(run.calls.get(layer, 0) for run in observation.runs) for layer in own}
        if observation.runs
        else {}
    )
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
            "layer": name,
            "kind": type(modules[name]).__name__,
            "detail": detail_of(modules[name]),
            "calls": calls.get(name, 0),
            "self_ms": float(numpy.median(times)),
            "self_spread_ms": (float(low), float(high)),
            "output_shapes": recorded.output_shapes.get(name, ()),
            "dtype": "int8"
            if isinstance(modules[name], Int8Layer)
            else recorded.dtypes.get(name, ""),
            "weight_shape": weight_shape(modules[name]),
            "is_channels_last": name in recorded.channels_last,
            "peak_bytes": observation.held.get(name),
            "reads_from": _reads_from(name, recorded.reads_from, home),
            "kernels": tuple(
                Kernel(name=key, calls=count, ms=ms)
                for key, (count, ms) in observation.kernels.get(name, {}).items()
            ),
            "alternatives": observation.alternatives.get(name, ()),
            "bytes": counts["read_bytes"] + counts["written_bytes"],
            **counts,
        }
        selves[name] = row | limits_of(observation, row, ran, min(times) - inside.get(name, 0.0))
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
    return tuple(
        dict.fromkeys(
            home.get(maker, "") for maker in flow.get(name, {}) if home.get(maker, "") != name
        )
    )


def _backward(observation: Observation, home: dict[str, str]) -> dict[str, float] | None:
    """Median time of each row's gradients; None if they were not recorded."""
    if not observation.backward:
        return None
    spent: dict[str, float] = defaultdict(float)
    for layer in {layer for run in observation.backward for layer in run}:
        spent[home.get(layer, "")] += median(run.get(layer, 0.0) for run in observation.backward)
    return dict(spent)
