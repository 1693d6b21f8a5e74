"""Join what was seen of a workload to a profile: a row a layer, totals by path, and the roof over
each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from statistics import median
from typing import Any

import numpy
from torch import Tensor, nn

from ..model.weights import parameter_count
from ..quantization import Int8Layer
from ..records import Kernel, LayerProfile, OperatorProfile, Profile
from .clock import call_costs_ms, operator_cost_ms
from .cost import Cost
from .limits import least_inside, limits_of, vector_width
from .observation import Observation

MOST_TIMES_IDLE = 3.0


def profile_of(observation: Observation) -> Profile:
    """The profile of an observation."""
    call_ms, _ = call_costs_ms()
    watching_ms = _watching_ms(observation)
    own = _own_ms(observation, watching_ms)
    home = _homes(observation, own)
    layers = tuple(_rows(observation, own, home))
    plain = observation.plain_ms or [sum(float(numpy.median(one)) for one in own.values())]
    low, high = numpy.percentile(plain, [25, 75])
    pairs = zip(observation.watched_ms, observation.plain_ms, strict=False)
    return Profile(
        workload=observation.work.name,
        machine=observation.machine.label,
        device=str(observation.work.device),
        applied=observation.work.applied,
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


def _watching_ms(observation: Observation) -> float:
    """What watching one call costs in this very model, where caches are colder than in a model that
    does nothing.

    Taken from the same rounds, and held within a few times what it costs there: what goes beyond
    that is an error of the rows, and is to be seen.
    """
    _, idle_ms = call_costs_ms()
    if not observation.plain_ms or observation.work.device.type != "cpu":
        return idle_ms
    excess = [
        run.total_ms - alone
        for run, alone in zip(observation.runs, observation.plain_ms, strict=False)
    ]
    calls = max(1, sum(observation.runs[0].calls.values()))
    return min(max(median(excess) / calls, 0.0), MOST_TIMES_IDLE * idle_ms)


def _own_ms(observation: Observation, watching_ms: float) -> dict[str, list[float]]:
    """Each layer's own time in each run; on a device the clock runs there, and watching costs it
    nothing.
    """
    taken_out = watching_ms if observation.work.device.type == "cpu" else 0.0
    corrected = [run.corrected(taken_out) for run in observation.runs]
    names = dict.fromkeys(layer for run in [{"": 0.0}, *corrected] for layer in run)
    return {layer: [run.get(layer, 0.0) for run in corrected] or [0.0] for layer in names}


def _homes(observation: Observation, own: dict[str, list[float]]) -> dict[str, str]:
    """The row of each layer: its own, or that of the compiled part around it, into which no clock
    can see.
    """

    @cache
    def home(layer: str) -> str:
        return layer if layer in own or not layer else home(layer.rpartition(".")[0])

    return {layer: home(layer) for layer in (*own, *observation.operators.entered)}


def _rows(
    observation: Observation, own: dict[str, list[float]], home: dict[str, str]
) -> Iterable[LayerProfile]:
    names = _in_order(observation, own)
    selves = _selves(observation, names, own, home)
    weights = {
        name: count for name, count in _weights_by_layer(observation.work.model).items() if count
    }
    backward = _backward(observation, home)
    runs = _rolled_up({name: numpy.array(times) for name, times in own.items()})
    total = {
        key: _rolled_up({name: one[key] for name, one in selves.items()})
        for key in ("self_ms", "flops", "macs", "bytes")
    }
    all_weights, all_backward = _rolled_up(weights), _rolled_up(backward or {})
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


def _in_order(observation: Observation, own: dict[str, list[float]]) -> list[str]:
    """The layers as they first ran, each after the containers around it, whether or not those ran
    themselves.
    """
    entered = [layer for layer in observation.operators.entered if layer in own]
    names: dict[str, None] = {"": None}
    for layer in (*entered, *own):
        parts = layer.split(".")
        for count in range(1, len(parts) + 1):
            names[".".join(parts[:count])] = None
    return sorted(names, key=_by_first(list(names)))


def _by_first(names: list[str]) -> Any:
    """Tree order: a layer is followed by what is under it, and siblings stand as they first ran."""
    place = {name: index for index, name in enumerate(names)}

    def key(name: str) -> tuple[int, ...]:
        parts = name.split(".") if name else []
        return tuple(place[".".join(parts[:count])] for count in range(1, len(parts) + 1))

    return key


def _selves(
    observation: Observation, names: list[str], own: dict[str, list[float]], home: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """What each layer is and did itself."""
    operators, inside = _operators(observation, home), least_inside(observation, home)
    modules = dict(observation.work.model.named_modules(remove_duplicate=False))
    seen = observation.operators
    calls = (
        {layer: max(run.calls.get(layer, 0) for run in observation.runs) for layer in own}
        if observation.runs
        else {}
    )
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        times = own.get(name, [0.0])
        low, high = numpy.percentile(times, [25, 75])
        ran = operators.get(name, ())
        counts = {
            key: sum(getattr(one, key) for one in ran)
            for key in ("flops", "macs", "read_bytes", "written_bytes")
        }
        row = {
            "layer": name,
            "kind": type(modules[name]).__name__,
            "detail": _detail(modules[name]),
            "calls": calls.get(name, 0),
            "self_ms": float(numpy.median(times)),
            "self_spread_ms": (float(low), float(high)),
            "output_shapes": seen.answers.get(name, ()),
            "dtype": "int8" if isinstance(modules[name], Int8Layer) else seen.dtypes.get(name, ""),
            "weight_shape": _weight_shape(modules[name]),
            "is_channels_last": name in seen.channels_last,
            "peak_bytes": observation.held.get(name),
            "reads_from": _reads_from(name, seen.reads_from, home),
            "kernels": tuple(
                Kernel(name=key, calls=count, ms=ms)
                for key, (count, ms) in observation.kernels.get(name, {}).items()
            ),
            "alternatives": observation.alternatives.get(name, ()),
            "bytes": counts["read_bytes"] + counts["written_bytes"],
            **counts,
        }
        found[name] = row | limits_of(observation, row, ran, min(times) - inside.get(name, 0.0))
    return found


def _operators(
    observation: Observation, home: dict[str, str]
) -> dict[str, tuple[OperatorProfile, ...]]:
    """Each row's own operators; those of layers inside a compiled part are that part's."""
    seen = observation.operators
    found: dict[str, dict[str, OperatorProfile]] = defaultdict(dict)
    for (layer, name), calls in seen.calls.items():
        ms = median([run.get((layer, name), 0.0) for run in seen.runs_ms] or [0.0])
        row, cost = home.get(layer, ""), seen.costs.get((layer, name), Cost())
        before = found[row].get(name)
        one = OperatorProfile(name=name, calls=calls, ms=ms, **cost._asdict())
        found[row][name] = one if before is None else _sum(before, one)
    return {row: tuple(ones.values()) for row, ones in found.items()}


def _sum(one: OperatorProfile, other: OperatorProfile) -> OperatorProfile:
    added = {
        key: getattr(one, key) + getattr(other, key)
        for key in OperatorProfile.model_fields
        if key != "name"
    }
    return OperatorProfile(name=one.name, **added)


def _reads_from(
    name: str, flow: dict[str, dict[str, None]], home: dict[str, str]
) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            home.get(maker, "") for maker in flow.get(name, {}) if home.get(maker, "") != name
        )
    )


def _backward(observation: Observation, home: dict[str, str]) -> dict[str, float] | None:
    """Median time of each row's gradients; None where none were asked for."""
    if not observation.backward:
        return None
    found: dict[str, float] = defaultdict(float)
    for layer in {layer for run in observation.backward for layer in run}:
        found[home.get(layer, "")] += median(run.get(layer, 0.0) for run in observation.backward)
    return dict(found)


def _rolled_up(values: dict[str, Any]) -> dict[str, Any]:
    """Each layer's value added to every container above it."""
    total: dict[str, Any] = defaultdict(int)
    for layer, value in values.items():
        total[""] = total[""] + value
        parts = layer.split(".") if layer else []
        for count in range(1, len(parts) + 1):
            above = ".".join(parts[:count])
            total[above] = total[above] + value
    return total


def _weights_by_layer(model: nn.Module) -> dict[str, int]:
    """How many weights are each layer's own; one that is shared counts where it comes first."""
    counted: set[int] = set()
    return {
        name: parameter_count(module, own=True, counted=counted)
        for name, module in model.named_modules()
    }


def _weight_shape(module: nn.Module) -> tuple[int, ...]:
    weight = getattr(module, "weight", None)
    return tuple(weight.shape) if isinstance(weight, Tensor) else ()


def _detail(module: nn.Module) -> str:
    """The options of a layer without parts, as its class tells them."""
    return "" if any(module.children()) else module.extra_repr()
