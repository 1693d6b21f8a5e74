"""Advice: the steps that would make a model or container faster; a layer's are in `reasons`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..errors import MeasureError
from ..records import (
    ENGINE_ROW,
    Basis,
    Candidate,
    Candidates,
    Explanation,
    LayerProfile,
    Profile,
    Reason,
    counted,
    readable_ms,
)
from ..records.text import three_figures
from ..workload import Options
from .compared import compared_reasons
from .expected import KINDS, Expected, Step, best_of, expected_of, is_calibrated
from .reasons import FINDERS, MIN_SHARE

FACTS = ("roof", "overhead", "slow path", "width", "conversion")  # before measured alternatives
LIMITS: dict[str | None, str] = {
    "compute": "arithmetic",
    "memory": "memory",
    "overhead": "call cost",
    None: "nothing known",
}
MOSTLY_MEASURED = 0.8
EAGER = "eager"
FOLDING = ("inductor", "onnxruntime", "openvino")  # engines that fold batch-norms themselves
DOUBT = "In the model as a whole it is expected to help less than others, or not at all."


@dataclass(frozen=True)
class Advice:
    """A step, what it saves in each layer by itself, and what is expected or measured of all."""

    step: Step
    topics: dict[str, None] = field(default_factory=dict)
    estimated: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    expected: Expected | None = None
    measured: Candidate | None = None
    is_offered: bool = True
    caution: str = ""

    @property
    def is_worthwhile(self) -> bool:
        """Whether it is offered and saves something."""
        return self.measured is not None or (self.is_offered and self.saves_ms > 0)

    @property
    def layers(self) -> dict[str, float]:
        """The ms in each layer: where the step was measured on it, also a loss, else estimated."""
        return self.estimated | self.alone

    @property
    def saves_ms(self) -> float:
        return self.expected.saves_ms if self.expected else sum(self.layers.values())

    @property
    def basis(self) -> Basis:
        """Measured if every saving was measured, mostly measured if most of it was."""
        if self.expected is None and set(self.layers) == set(self.alone):
            return "measured"
        measured, whole = (
            sum(abs(ms) for ms in each.values()) for each in (self.alone, self.layers)
        )
        is_mostly = self.expected is None and measured > MOSTLY_MEASURED * whole
        return "mostly measured" if is_mostly else "estimated"

    def reason(self, profile: Profile) -> Reason:
        """The advice as a record."""
        parts = [self.expected.sentence] if self.expected else []
        parts += [self._of_layers(profile)] if self.layers else []
        parts += [self.caution] if self.caution else []
        reason = Reason(
            topic=" and ".join(self.topics),
            sentence=" ".join(parts),
            step=self.step,
            saves_ms=self.saves_ms,
            error_ms=self.expected.error_ms if self.expected else None,
            basis=self.basis,
        )
        return reason if self.is_offered else reason.without_step

    def _of_layers(self, profile: Profile) -> str:
        saves = self.layers
        winners = sorted(
            (layer for layer in saves if saves[layer] > 0), key=lambda layer: -saves[layer]
        )
        names = ", ".join(
            f"'{layer or profile.workload}' {three_figures(saves[layer])}" for layer in winners[:3]
        )
        more = f" and {len(winners) - 3} more" if len(winners) > 3 else ""
        loss = -sum(ms for ms in saves.values() if ms < 0)
        is_loss = loss > MIN_SHARE * profile.total_ms
        less = f", less {three_figures(loss)} ms that it would cost others" if is_loss else ""
        topics = " and ".join(self.topics).capitalize()
        return f"{topics}: {counted(len(winners), 'layer')} ({names} ms{more}){less}."


def advise(profile: Profile, layer: str = "", candidates: Candidates | None = None) -> list[Advice]:
    """The steps that would help a container or the model, the most first: those that a search for
    latency has measured to be faster, else as they are expected. One that helps layers alone, and
    is not expected to help the whole, is described and not offered.
    """
    if candidates is not None and candidates.goal == "latency" and candidates.ranked:
        return [
            Advice(step, measured=row)
            for row in candidates.ranked
            if row.word == "faster" and (step := only_step(row)) is not None
        ]
    if len(profile) == 1:  # run as a whole, of which no part can be told apart
        return []
    summed = sorted(_summed(profile, layer), key=lambda each: -each.saves_ms)
    if profile.engine:  # joins and folds by itself: what it would save eager torch is no advice
        return [replace(each, is_offered=False) for each in summed]
    if not is_calibrated(profile):
        return summed
    by_step = {repr(each.step): each for each in summed}
    likely = [
        each
        for each in expected_of(profile, layer)
        if each.is_likely and not is_applied(each.kind.step, profile.applied)
    ]
    best = [
        replace(
            by_step.pop(repr(each.kind.step), Advice(each.kind.step, {each.kind.topic: None})),
            expected=each,
        )
        for each in best_of(likely)
    ]
    covered = [kind.step for kind in KINDS.values()]
    others = [
        replace(each, is_offered=False, caution=DOUBT)
        if each.step in covered and each.saves_ms > 0
        else each
        for each in by_step.values()
    ]
    return [*best, *others]


def only_step(row: Candidate) -> Step | None:
    """The step of a candidate that has one, besides folding where that step folds by itself."""
    steps = row.steps
    if len(steps) == 2 and "fold" in steps[0] and _folds(steps[1]):
        return steps[1]
    return steps[0] if len(steps) == 1 else None


def _folds(step: Step) -> bool:
    return "fuse" in step or step.get("backend", {}).get("name") in FOLDING


def measured_of(step: Step, candidates: Candidates | None) -> Candidate | None:
    """What a search measured of a step on the example inputs; None if it did not measure it."""
    rows = candidates.rows if candidates is not None and candidates.batch is None else ()
    return next((row for row in rows if row.speedup and only_step(row) == step), None)


def explain(profile: Profile, layer: str = "", *, against: Profile | None = None) -> Explanation:
    """Explain the time of a layer, a container or the model (the default), and what would help.

    With `against`, the baseline's profile, the change of a variant is explained too.
    """
    if not isinstance(profile, Profile):
        raise MeasureError(
            f"explain takes a profile, not {profile!r}; make one with lab.profile(work)."
        )
    if layer not in profile:
        raise MeasureError(_unknown(profile, layer, against))
    row = profile[layer]
    below = profile.children(layer)
    changed = compared_reasons(profile, row, against) if against is not None else []
    own = sorted(_reasons(profile, row), key=lambda reason: reason.topic not in FACTS)
    summed = [each.reason(profile) for each in advise(profile, layer)] if below else []
    return Explanation(
        workload=profile.workload,
        layer=layer,
        kind=row.kind,
        ms=row.total_ms if below else row.self_ms,
        share=row.share,
        reasons=(
            *changed,
            *(_where(profile, row) if below else []),
            *(summed or own),
            *_overlap(summed),
        ),
    )


def _unknown(profile: Profile, layer: str, against: Profile | None) -> str:
    if against is not None and layer in against and len(profile) == 1:
        return (
            f"{profile.workload} is run as a whole by {profile.root.kind}, in which '{layer}' "
            "cannot be distinguished; explain the whole model."
        )
    near = [row.layer for row in profile if layer and layer.split(".")[-1] in row.layer][:3]
    return f"No layer '{layer}' ran in {profile.workload}" + (
        f"; did you mean {', '.join(near)}?" if near else "."
    )


def _reasons(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """The layer's reasons, without steps that the model has; none for rows of an engine itself."""
    if row.joined_into is not None or row.layer == ENGINE_ROW:
        return
    for find in FINDERS:
        for reason in find(profile, row):
            yield (
                reason.without_step
                if reason.step and is_applied(reason.step, profile.applied)
                else reason
            )


def is_applied(step: Options, applied: Iterable[Options]) -> bool:
    """Whether the model has a step with these options, any engine, or any pruning already."""
    kind, options = next(iter(step.items()))
    done = [earlier[kind] for earlier in applied if kind in earlier]
    if kind == "backend":
        return any(earlier.get("name", EAGER) != EAGER for earlier in done)
    return any(kind == "prune" or options.items() <= earlier.items() for earlier in done)


def _where(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """A container's costliest layers, and the limits that bind its layers."""
    inside = [layer for _, layer in profile.walk(row.layer)]
    ranked = sorted(inside, key=lambda layer: -layer.self_ms)[:3]
    first = [layer for layer in ranked if layer.self_ms > 0] or ranked[:1]
    names = ", ".join(
        f"'{layer.layer or profile.workload}' {readable_ms(layer.self_ms)} ms" for layer in first
    )
    bound: dict[str | None, float] = defaultdict(float)
    for layer in inside:
        bound[layer.verdict] += layer.self_ms
    shares = ", ".join(
        f"{ms / (row.total_ms or 1.0):.0%} {LIMITS[name]}"
        for name, ms in sorted(bound.items(), key=lambda pair: -pair[1])
        if ms > 0 or len(bound) == 1
    )
    yield Reason(topic="where", sentence=f"Most is spent in {names}; limited by: {shares}.")


def _summed(profile: Profile, layer: str) -> Iterable[Advice]:
    """Each step that would help layers inside, with what it saves in each."""
    steps: dict[str, Advice] = {}
    rows = [row for _, row in profile.walk(layer)]
    for row in rows:
        for reason in _reasons(profile, row):
            if reason.step and reason.saves_ms is not None:
                advice = steps.setdefault(repr(reason.step), Advice(reason.step))
                advice.topics.setdefault(reason.topic)
                known = advice.estimated.get(row.layer, 0.0)
                advice.estimated[row.layer] = max(known, reason.saves_ms)
    for row in rows:
        for tried in row.alternatives:
            if repr(tried.step) in steps:
                share = 1 - tried.there_ms / tried.here_ms
                steps[repr(tried.step)].alone[row.layer] = row.self_ms * share
    return steps.values()


def _overlap(steps: list[Reason]) -> Iterator[Reason]:
    if sum(reason.saves_ms is not None and reason.saves_ms > 0 for reason in steps) > 1:
        yield Reason(
            topic="overlap",
            sentence="Different steps may save the same milliseconds: their savings do not add up.",
        )
