"""The time of the original model in each float format that can be around its layers: the baseline
of the layers' times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import StepError
from ...machine import thread_choices, threads
from ...measure import in_turn
from ...model.weights import weights_bytes
from ...recipe import Recipe
from ...variant import apply
from ...workload import Workload, running
from .program import Cost

# more threads are taken where they make the model this much faster; a layer timed alone slows down
# with fewer threads than the model does
MIN_SPEEDUP = 1.5


@dataclass(frozen=True)
class ModelTimes:
    """The cost of the whole model by number of threads and format."""

    costs: Mapping[int, Mapping[str, Cost]]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of threads to plan with: the fewest that are nearly as fast as any, then
        fewer still.
        """
        quickest = min(costs["fp32"].latency_ms for costs in self.costs.values())
        best = min(
            count
            for count, costs in self.costs.items()
            if costs["fp32"].latency_ms <= MIN_SPEEDUP * quickest
        )
        return tuple(sorted((count for count in self.costs if count <= best), reverse=True))


def model_times(work: Workload, arounds: tuple[str, ...], seconds: float) -> ModelTimes:
    """Time the model in each format, in turn; a format that the whole model cannot be in is left
    out.
    """
    models, notes = {"fp32": work.model}, list[str]()
    for around in arounds:
        try:
            if around != "fp32":
                models[around] = apply(work, Recipe([{"precision": {"default": around}}])).module
        except StepError as error:
            notes.append(f"{around} between the layers was left out: {error}")
    inputs = work.inputs.clone()
    calls: dict[str, Callable[[], Any]] = {
        name: partial(inputs, model) for name, model in models.items()
    }
    counts = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    costs: dict[int, dict[str, Cost]] = {}
    with running(work.model):
        for count in counts:
            with threads(count):
                ms = in_turn(calls, work.device, seconds / len(counts))
            costs[count] = {
                name: Cost(0.0, ms[name], weights_bytes(model)) for name, model in models.items()
            }
    return ModelTimes(costs, tuple(notes))
