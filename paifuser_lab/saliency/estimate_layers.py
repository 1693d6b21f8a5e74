"""Judge each layer of a model in each format: what it would cost, by one or several ways of
judging.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import MeasureError
from ..machine.host import host_facts
from ..model.weights import weights_hash
from ..records import Curvature, LayerSensitivity, Sensitivity
from ..stopping import keep_when_stopped, stop_if_asked
from ..workload import Derived, Workload, outside_inference, workload_of
from ..workload.data import sampled_batches
from .agreement import REFERENCE, chance, with_agreement
from .estimation import Estimation
from .methods import ESTIMATORS
from .perturb import twice_differentiable, with_gradients
from .request import check_asked, check_resumed, methods_for
from .select_layers import NEVER_RUNS, candidates, chosen, usable_layers, why_not
from .subject import Subject

FORMATS = ("bf16", "int8", "int4-weights")


@outside_inference
def sensitivity(
    subject: Workload | Derived,
    *,
    formats: Sequence[str] = FORMATS,
    methods: Sequence[str] = ("quadratic",),
    layers: str | Iterable[str] | None = None,
    batches: int | Sequence[Any] | None = None,
    error: float = 0.2,
    seconds: float | None = None,
    resume: Sensitivity | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> Sensitivity:
    """See how much each layer matters: what rounding it to each format is predicted to cost, and,
    with 'ablation', measured.

    Each mean is refined until its relative standard error is `error`, the batches are used up, or
    the `seconds` are over. Of a loader that many `batches` are read, the first that it gives for
    the seed; of a list they are drawn, and ranges of int8 inputs come from up to 16 batches. An
    interrupt keeps what there is; `resume` goes on with an earlier record and computes again
    nothing that is good.
    """
    work = with_gradients(workload_of(subject))
    check_asked(formats, methods, error, seconds)
    data = sampled_batches(work, batches, seed)
    names, notes = methods_for(work, data, methods)
    if resume is not None:
        check_resumed(work, resume, seed)
    found = chosen(candidates(work), layers)
    looked = Subject(work, usable_layers(found), tuple(dict.fromkeys(formats)), data, seed, error)
    reasons = {name: why for name, module in found.items() if (why := why_not(module))}
    _check_any(looked, reasons)
    run = _Run(looked, [], notes)
    with twice_differentiable(work.model):
        calls = looked.watch()
        reasons |= {name: NEVER_RUNS for name, count in calls.items() if not count}
        looked.layers = {name: layer for name, layer in looked.layers.items() if calls[name]}
        _check_any(looked, reasons)
        run.sample(names, resume, seconds, should_stop)
    rows = tuple(run.row(name, reasons.get(name), resume) for name in _names(work, found, resume))
    return run.record(names, rows, resume)


@dataclass
class _Run:
    """The hearings so far, and what is to be said about them."""

    subject: Subject
    estimations: list[Estimation]
    notes: list[str]
    is_interrupted: bool = False

    def sample(
        self,
        names: Sequence[str],
        resume: Sensitivity | None,
        seconds: float | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        """Run one estimator after another; each has its share of the time that is left."""
        end = float("inf") if seconds is None else time.perf_counter() + seconds

        with keep_when_stopped(self._has_means) as ending:
            for done, name in enumerate(names):
                self.estimations.append(Estimation.of(ESTIMATORS[name](self.subject), resume))
                now = time.perf_counter()
                self.estimations[-1].sample(
                    now + max(end - now, 0.0) / (len(names) - done),
                    lambda: stop_if_asked(should_stop),
                )
        self.is_interrupted = ending.is_stopped

    def _has_means(self) -> bool:
        return any(
            mean.count
            for estimation in self.estimations
            for mean in estimation.running_means.values()
        )

    def row(self, name: str, note: str | None, resume: Sensitivity | None) -> LayerSensitivity:
        """What was said of one layer, now and earlier."""
        module = self.subject.work.model.get_submodule(name)
        weight = module._parameters.get("weight")
        earlier = next((row for row in resume.rows if row.layer == name), None) if resume else None
        scores = {key: dict(value) for key, value in earlier.scores.items()} if earlier else {}
        curvature = earlier.curvature if earlier else None
        for estimation in self.estimations:
            found = {
                key: running_mean.estimate
                for key, running_mean in estimation.running_means.items()
                if running_mean.count and key.layer == name
            }
            for (_, number), estimate in estimation.estimator.scores(found).items():
                scores.setdefault(number, {})[estimation.estimator.name] = estimate
            curvature = _joined(curvature, estimation.estimator.curvatures(found).get(name))
        return LayerSensitivity(
            layer=name,
            kind=type(module).__name__,
            parameters=sum(one.numel() for one in module.parameters())
            if weight is None
            else weight.numel(),
            scores=scores,
            curvature=curvature,
            note=note or (earlier.note if earlier and not scores else None),
        )

    def record(
        self, names: Sequence[str], rows: tuple[LayerSensitivity, ...], resume: Sensitivity | None
    ) -> Sensitivity:
        """Everything as one record."""
        work, data = self.subject.work, self.subject.batches
        formats = tuple(dict.fromkeys((*(resume.formats if resume else ()), *self.subject.formats)))
        heard = [estimation.method for estimation in self.estimations]
        names_heard = {method.name for method in heard}
        heard = [
            method
            for method in (resume.methods if resume else ())
            if method.name not in names_heard
        ] + heard
        default = _default(names)
        used = max((method.samples for method in heard), default=0)
        return Sensitivity(
            workload=work.name,
            machine=torch.cuda.get_device_name(work.device)
            if work.device.type == "cuda"
            else host_facts().name,
            unit=ESTIMATORS[default].unit,
            formats=formats,
            method=default,
            examples=sum(data[index].examples for index in range(min(used, len(data)))),
            rows=rows,
            methods=tuple(with_agreement(method, rows, formats) for method in heard),
            notes=(
                *self.notes,
                *(note for one in self.estimations for note in _notes(one)),
                *chance(rows, formats),
            ),
            is_interrupted=self.is_interrupted,
            seed=self.subject.seed,
            weights_hash=weights_hash(work.model),
        )


def _check_any(looked: Subject, reasons: Mapping[str, str]) -> None:
    if not looked.layers:
        name, why = next(iter(reasons.items()))
        raise MeasureError(
            f"no layer of {looked.work.name} that was asked for can be judged; '{name}': {why}."
        )


def _names(work: Workload, found: Iterable[str], resume: Sensitivity | None) -> list[str]:
    """Layers looked at, now or earlier, in the model's order."""
    known = {*found, *(row.layer for row in resume.rows)} if resume else set(found)
    return [name for name, _ in work.model.named_modules() if name in known]


def _joined(one: Curvature | None, other: Curvature | None) -> Curvature | None:
    if one is None or other is None:
        return other or one
    new = {name: getattr(other, name) for name in Curvature.model_fields if getattr(other, name)}
    return one.model_copy(update=new)


def _default(names: Sequence[str]) -> str:
    """The first that predicts; what was measured where nothing does."""
    return next((name for name in names if name != REFERENCE), names[0])


def _notes(estimation: Estimation) -> list[str]:
    """The estimator's notes, and how many of its means are less certain than asked."""
    if estimation.estimator.most_samples == 1 or not estimation.unsure:
        return estimation.estimator.notes
    count, asked = len(estimation.running_means), estimation.subject.error
    return [
        *estimation.estimator.notes,
        f"{estimation.estimator.name}: {estimation.unsure} of {count} means are less certain than "
        f"±{asked:.0%}",
    ]
