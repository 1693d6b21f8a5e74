"""Estimate what each format would cost each layer of a model, by one or several methods."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import MeasureError, keep_when_stopped, stop_if_asked
from ..machine.host import device_name
from ..model.formats import NAMES, format_of
from ..model.layers import channel_of
from ..model.weights import weights_hash
from ..records import Curvature, LayerSensitivity, Method, Sensitivity
from ..workload import Derived, Workload, outside_inference, workload_of
from ..workload.data import SampledBatches, sampled_batches
from .estimation import Estimation
from .methods import ESTIMATORS
from .select_layers import check_methods, nearest, select_layers
from .subject import Subject, twice_differentiable, with_gradients

FORMATS = ("bf16", "int8", "int4-weights")
SECONDS = 60.0
REFERENCE = "ablation"  # the method that measures
MIN_LAYERS = 3  # for a rank correlation


@outside_inference
def sensitivity(
    subject: Workload | Derived,
    *,
    formats: Sequence[str] = FORMATS,
    methods: Sequence[str] = ("quadratic",),
    layers: str | Iterable[str] | None = None,
    batches: int | Sequence[Any] | None = None,
    error: float = 0.2,
    seconds: float | None = SECONDS,
    resume: Sensitivity | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> Sensitivity:
    """Estimate how much each layer matters: the predicted cost of rounding it to each format and,
    with 'ablation', the measured cost.

    Each mean is refined until its relative standard error is `error`, the batches are used up, or
    the `seconds` are over (None sets no limit); the first estimate of each layer is always made.
    Of a loader, the first `batches` batches for the seed are read; of a list they are drawn; the
    ranges of int8 inputs come from up to 16 batches. An interrupt keeps the estimates so far;
    `resume` continues an earlier record and recomputes nothing that is precise enough.
    """
    work = with_gradients(workload_of(subject))
    check_arguments(formats, methods, error, seconds)
    data = sampled_batches(work, batches, seed)
    names, notes = methods_for(work, data, methods)
    if resume is not None:
        check_resumed(work, resume, seed)
    selection = select_layers(work, layers, channel_of, "a weight that can be rounded")
    estimated = Subject(
        work, dict(selection.layers), tuple(dict.fromkeys(formats)), data, seed, error
    )
    run = _Run(estimated, [], notes)
    with twice_differentiable(work.model):
        selection.drop_idle(estimated)
        run.sample(names, resume, seconds, should_stop)
    rows = tuple(
        run.row(name, selection.reasons.get(name), resume)
        for name in _names(work, selection.names, resume)
    )
    return run.record(names, rows, resume)


@dataclass
class _Run:
    """The estimations so far, and the notes on them."""

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
        """Run one estimator after another; each gets an equal share of the remaining time."""
        end = float("inf") if seconds is None else time.perf_counter() + seconds

        with keep_when_stopped(self._has_means) as ending:
            for done, name in enumerate(names):
                self.estimations.append(Estimation.of(ESTIMATORS[name](self.subject), resume))
                now = time.perf_counter()
                self.estimations[-1].sample(
                    now + max(end - now, 0.0) / (len(names) - done),
                    lambda: stop_if_asked(should_stop),
                )
            for estimation in self.estimations:  # in the time that the later ones left
                if estimation.open and time.perf_counter() < end:
                    estimation.sample(end, lambda: stop_if_asked(should_stop))
        self.is_interrupted = ending.is_stopped
        if time.perf_counter() > end and any(estimation.open for estimation in self.estimations):
            self.notes.append(
                f"the limit of {seconds:g} s was reached: sensitivity(work, resume=…) with this "
                "record goes on, seconds=None sets no limit"
            )

    def _has_means(self) -> bool:
        return any(
            mean.count
            for estimation in self.estimations
            for mean in estimation.running_means.values()
        )

    def row(self, name: str, note: str | None, resume: Sensitivity | None) -> LayerSensitivity:
        """A layer's estimates, of this run and of the earlier record."""
        module = self.subject.work.model.get_submodule(name)
        weight = module._parameters.get("weight")
        earlier = next((row for row in resume.rows if row.layer == name), None) if resume else None
        scores = {key: dict(value) for key, value in earlier.scores.items()} if earlier else {}
        curvature = earlier.curvature if earlier else None
        for estimation in self.estimations:
            estimates = {
                key: running_mean.estimate
                for key, running_mean in estimation.running_means.items()
                if running_mean.count and key.layer == name
            }
            for (_, number), estimate in estimation.estimator.scores(estimates).items():
                scores.setdefault(number, {})[estimation.estimator.name] = estimate
            curvature = _joined(curvature, estimation.estimator.curvatures(estimates).get(name))
        return LayerSensitivity(
            layer=name,
            kind=type(module).__name__,
            parameters=sum(weights.numel() for weights in module.parameters())
            if weight is None
            else weight.numel(),
            scores=scores,
            curvature=curvature,
            note=note or (earlier.note if earlier and not scores else None),
        )

    def record(
        self, names: Sequence[str], rows: tuple[LayerSensitivity, ...], resume: Sensitivity | None
    ) -> Sensitivity:
        """The record of all layers and methods."""
        work, data = self.subject.work, self.subject.batches
        formats = tuple(dict.fromkeys((*(resume.formats if resume else ()), *self.subject.formats)))
        methods = [estimation.method for estimation in self.estimations]
        method_names = {method.name for method in methods}
        methods = [
            method
            for method in (resume.methods if resume else ())
            if method.name not in method_names
        ] + methods
        # the first method that predicts; the measured one where none does
        default = next((name for name in names if name != REFERENCE), names[0])
        used = max((method.samples for method in methods), default=0)
        counts = [data[index].examples for index in range(min(used, len(data)))]
        most = ESTIMATORS[default].most_examples
        return Sensitivity(
            workload=work.name,
            machine=device_name(work.device),
            unit=ESTIMATORS[default].unit,
            formats=formats,
            method=default,
            examples=sum(min(count, most or count) for count in counts),
            rows=rows,
            methods=tuple(_with_agreement(method, rows, formats) for method in methods),
            notes=(
                *self.notes,
                *(note for estimation in self.estimations for note in _notes(estimation)),
                *(note for name in formats if (note := _uncertainty(rows, name))),
            ),
            is_interrupted=self.is_interrupted,
            seed=self.subject.seed,
            weights_hash=weights_hash(work.model),
        )


def _names(work: Workload, requested: Iterable[str], resume: Sensitivity | None) -> list[str]:
    """The layers estimated, now or in the earlier record, in the model's order."""
    known = {*requested, *(row.layer for row in resume.rows)} if resume else set(requested)
    return [name for name, _ in work.model.named_modules() if name in known]


def _joined(earlier: Curvature | None, new: Curvature | None) -> Curvature | None:
    if earlier is None or new is None:
        return new or earlier
    updates = {name: getattr(new, name) for name in Curvature.model_fields if getattr(new, name)}
    return earlier.model_copy(update=updates)


def _notes(estimation: Estimation) -> list[str]:
    """The estimator's notes, and how many of its means are less certain than requested."""
    if estimation.estimator.most_samples == 1 or not estimation.unsure:
        return estimation.estimator.notes
    count, requested = len(estimation.running_means), estimation.subject.error
    return [
        *estimation.estimator.notes,
        f"{estimation.estimator.name}: {estimation.unsure} of {count} means are less certain than "
        f"±{requested:.0%}",
    ]


def _with_agreement(
    method: Method, rows: tuple[LayerSensitivity, ...], formats: Iterable[str]
) -> Method:
    """The method's record with its agreement in each format that both methods estimated."""
    if method.name == REFERENCE:
        return method
    agreement = {
        name: value
        for name in formats
        if (value := _agreement(method.name, rows, name)) is not None
    }
    return method.model_copy(update={"agreement": agreement})


def _agreement(method: str, rows: tuple[LayerSensitivity, ...], name: str) -> float | None:
    scores = [row.scores.get(name, {}) for row in rows]
    pairs = [
        (by_method[method].value, by_method[REFERENCE].value)
        for by_method in scores
        if method in by_method and REFERENCE in by_method
    ]
    return rank_correlation(pairs) if len(pairs) >= MIN_LAYERS else None


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation; None where either side does not vary, or has a NaN."""
    from scipy.stats import spearmanr

    if any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    rank = float(spearmanr(*zip(*pairs, strict=True)).statistic)
    return rank if math.isfinite(rank) else None


def _uncertainty(rows: tuple[LayerSensitivity, ...], name: str) -> str | None:
    """A note on a format in which most layers' measured rises are less than twice their standard
    error; None for others.
    """
    estimates = [
        row.scores[name][REFERENCE] for row in rows if REFERENCE in row.scores.get(name, {})
    ]
    certain = [
        estimate
        for estimate in estimates
        if estimate.error is None or abs(estimate.value) >= 2 * estimate.error
    ]
    if 2 * len(certain) >= len(estimates):
        return None
    return (
        f"{name}: what was measured is more than twice its error in {len(certain)} of "
        f"{len(estimates)} layers only; "
        "the order of the others holds for these batches and may differ on others"
    )


def check_arguments(
    formats: Sequence[str], methods: Sequence[str], error: float, seconds: float | None
) -> None:
    """Raise for unknown formats and methods, and for limits that cannot be met."""
    if isinstance(formats, str) or isinstance(methods, str):
        raise MeasureError(
            "formats and methods are lists; write formats=('int8',) and methods=('quadratic',)."
        )
    if not formats or not methods:
        raise MeasureError("there is nothing to estimate; name at least one format and one method.")
    for name in formats:
        try:
            format_of(name)
        except ValueError as problem:
            raise MeasureError(
                f"{problem}, and int2-weights … int8-weights to estimate{nearest(name, NAMES)}."
            ) from problem
    check_methods(methods, ESTIMATORS, seconds)
    if not error > 0:
        raise MeasureError(
            f"a relative standard error of {error} is never reached; set one above 0, such as 0.2."
        )


def methods_for(
    work: Workload, data: SampledBatches, methods: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The methods that this workload allows, and notes on those it does not."""
    requested = list(dict.fromkeys(methods))
    missing = "loss" if work.loss is None else "data" if data.what == "example inputs" else None
    refused = [name for name in requested if ESTIMATORS[name].needs_loss] if missing else []
    allowed = [name for name in requested if name not in refused]
    notes = [f"estimated on the {data.what}"] if data.what == "test data" else []
    if refused:
        allowed = allowed or ["output"]
        instead = f"estimated by {' and '.join(allowed)} on the {data.what} instead"
        verb = "needs" if len(refused) == 1 else "need"
        notes.append(
            f"{work.name} has no {missing}, which {' and '.join(refused)} {verb}: {instead}"
        )
    return allowed, notes


def check_resumed(work: Workload, resume: Sensitivity, seed: int) -> None:
    """Raise where the earlier record is of another workload, other weights or another seed."""
    if resume.workload != work.name:
        raise MeasureError(
            f"the earlier record is of {resume.workload}, not of {work.name}; leave resume out."
        )
    if resume.weights_hash not in (None, weights_hash(work.model)):
        raise MeasureError(
            f"the weights of {work.name} are not those of the earlier record; leave resume out."
        )
    if resume.seed != seed:
        raise MeasureError(
            f"the earlier record drew its batches with seed={resume.seed}; continue with that seed."
        )
