"""Judge each output channel of each layer, by one way of judging, over as many batches as asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch

from ...errors import MeasureError
from ...machine.host import host_facts
from ...model.graph import observe
from ...model.weights import weights_hash
from ...progress import progress
from ...pruning.groups.scores import as_importance, default_importance, shown_and_cut
from ...records import Importance, LayerImportance
from ...workload import Derived, Workload, outside_inference, workload_of
from ...workload.data import SampledBatches, example_inputs, sampled_batches
from ..perturb import twice_differentiable, with_gradients
from ..select_layers import chosen, why_not
from ..subject import Batch, Layer, Subject
from .activation import Activation
from .batch_norm import BatchNormScale
from .channel_means import Means
from .estimator import ChannelJudge
from .fisher import ChannelFisher
from .magnitude import Magnitude
from .output_channels import channel_count, channel_layers, output_dimension
from .random_scores import Chance
from .taylor import Taylor
from .taylor2 import Taylor2

_ALL: tuple[type[ChannelJudge], ...] = (
    Taylor,
    Taylor2,
    Magnitude,
    BatchNormScale,
    ChannelFisher,
    Activation,
    Chance,
)
CHANNEL_JUDGES: dict[str, type[ChannelJudge]] = {judge.name: judge for judge in _ALL}
BATCHES = 16
NEVER_RUNS = "it never ran on the batch that was looked at first"
ANSWER = "its channels are the model's answer: none of them can go"
NO_NUMBERS = "its values are not all numbers: a gradient or a weight is infinite or NaN"


@outside_inference
def importance(
    subject: Workload | Derived,
    method: str = "taylor",
    *,
    layers: str | Iterable[str] | None = None,
    batches: int | Sequence[Any] | None = None,
    seconds: float | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> Importance:
    """See how much each output channel matters: by taylor, taylor2, fisher, activation, magnitude,
    batch-norm or random.

    Means over batches (16, unless you say how many or give them) with their standard errors; an
    interrupt, or the end of the `seconds`, keeps what there is. Without data or loss, a way that
    needs them gives place to magnitude, and the record says so.
    """
    work = with_gradients(workload_of(subject))
    _check_asked(method, seconds)
    data = sampled_batches(work, BATCHES if batches is None else batches, seed)
    name, notes = _possible(work, data, method)
    data = data if CHANNEL_JUDGES[name].needs != "nothing" else example_inputs(work)
    found = chosen(channel_layers(work), layers, what="output channels")
    usable = {
        name: Layer(name, module, output_dimension(module) or 0)
        for name, module in found.items()
        if not why_not(module)
    }
    looked = Subject(work, usable, (), data, seed)
    search = _Search(CHANNEL_JUDGES[name](looked), {name: Means() for name in usable}, notes)
    search.reasons = {name: why for name, module in found.items() if (why := why_not(module))}
    with twice_differentiable(work.model):
        search.leave_out_what_never_runs()
        search.find_answers()
        search.run(seconds, should_stop or (lambda: False))
    return search.record(list(found))


@dataclass
class _Search:
    """What was found so far, and what is to be said about it."""

    judge: ChannelJudge
    means: dict[str, Means]
    notes: list[str]
    reasons: dict[str, str] = field(default_factory=dict)
    answers: set[str] = field(default_factory=set)
    examples: int = 0
    seconds: float = 0.0
    is_interrupted: bool = False

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return self.judge.subject

    def leave_out_what_never_runs(self) -> None:
        """A layer without a call has no slope and no output; its channels would all seem to matter
        nothing.
        """
        self._check_any()
        calls = self.subject.watch()
        self.reasons |= {name: NEVER_RUNS for name, count in calls.items() if not count}
        self.subject.layers = {
            name: layer for name, layer in self.subject.layers.items() if calls[name]
        }
        self._check_any()

    def find_answers(self) -> None:
        """Which layers give what the model gives."""
        work = self.subject.work
        graph = observe(work.model, lambda: self.subject.answer(Batch(work.inputs, number=0)))
        self.answers = {
            one.layer for one in graph.operations if not graph.outputs.isdisjoint(one.makes)
        }

    def run(self, seconds: float | None, should_stop: Callable[[], bool]) -> None:
        """Batch after batch; one at least, unless it is interrupted before its end."""
        began = time.perf_counter()
        most = len(self.subject.batches) if self.judge.needs != "nothing" else 1
        try:
            with progress(self.judge.name, most) as shown:
                for index in range(most):
                    self._take(self.subject.batches[index])
                    shown.advance()
                    if should_stop():
                        raise KeyboardInterrupt
                    if seconds is not None and time.perf_counter() - began > seconds:
                        break
        except KeyboardInterrupt:
            if not any(one.count for one in self.means.values()):
                raise
            self.is_interrupted = True
        finally:
            self.seconds = time.perf_counter() - began

    def record(self, names: list[str]) -> Importance:
        """Everything as one record; a layer without values says why."""
        work = self.subject.work
        return Importance(
            workload=work.name,
            machine=torch.cuda.get_device_name(work.device)
            if work.device.type == "cuda"
            else host_facts().name,
            method=self.judge.name,
            unit=self.judge.unit,
            examples=self.examples,
            rows=tuple(self._row(name) for name in names),
            notes=tuple(self.notes),
            is_interrupted=self.is_interrupted,
            seconds=self.seconds,
            seed=self.subject.seed,
            weights_hash=weights_hash(work.model),
            cut_by=shown_and_cut(
                self.judge.name, as_importance(self.judge.name) or default_importance(work)
            ),
        )

    def _take(self, batch: Batch) -> None:
        for name, values in self.judge.values(batch).items():
            self.means[name].add(values)
        self.examples += batch.examples if self.judge.needs != "nothing" else 0

    def _row(self, name: str) -> LayerImportance:
        module = self.subject.work.model.get_submodule(name)
        kind, means = type(module).__name__, self.means.get(name)
        reason = (
            self.reasons.get(name)
            or self.judge.notes.get(name)
            or (ANSWER if name in self.answers else None)
        )
        if means is None or not means.count or not means.is_finite:
            why = NO_NUMBERS if means is not None and means.count else reason
            width = _width(name, module)
            return LayerImportance(
                layer=name, kind=kind, channels=width, is_answer=name in self.answers, note=why
            )
        return LayerImportance(
            layer=name,
            kind=kind,
            channels=len(means.mean),
            values=means.values,
            errors=means.errors,
            is_answer=name in self.answers,
            note=reason,
        )

    def _check_any(self) -> None:
        if not self.subject.layers:
            name, why = next(iter(self.reasons.items()))
            raise MeasureError(
                f"no layer of {self.subject.work.name} that was asked for can be judged; '{name}': "
                f"{why}."
            )


def _width(name: str, module: torch.nn.Module) -> int:
    """How many output channels there are where the weight is there to be counted."""
    if module._parameters.get("weight") is None:
        return int(getattr(module, "out_channels", 0) or getattr(module, "out_features", 0))
    return channel_count(Layer(name, module, output_dimension(module) or 0))


def _check_asked(method: str, seconds: float | None) -> None:
    if method not in CHANNEL_JUDGES:
        near = get_close_matches(str(method), CHANNEL_JUDGES, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise MeasureError(f"{method!r} is no method; there are {', '.join(CHANNEL_JUDGES)}{hint}.")
    if seconds is not None and not seconds > 0:
        raise MeasureError(f"{seconds} seconds leave no time to judge; give more than 0.")


def _possible(work: Workload, data: SampledBatches, method: str) -> tuple[str, list[str]]:
    """The method, or magnitude where the workload lacks what it needs; and what there is to say
    about that.
    """
    needs = CHANNEL_JUDGES[method].needs
    missing = "data" if needs != "nothing" and data.what == "example inputs" else None
    missing = "loss" if needs == "loss" and work.loss is None else missing
    if missing:
        return Magnitude.name, [
            f"{work.name} has no {missing}, which {method} would take: judged by magnitude instead"
        ]
    return method, [
        "judged on the test data"
    ] if needs != "nothing" and data.what == "test data" else []
