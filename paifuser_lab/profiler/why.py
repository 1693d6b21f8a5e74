"""Why a layer is not faster: reasons from its profile, with steps that would help and their saving.

The reasons of a single layer are in `reasons`; a container is explained by the sum over its layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import MeasureError
from ..records import ENGINE_ROW, Basis, Explanation, LayerProfile, Profile, Reason, counted
from ..workload import Options
from .compared import compared_reasons
from .expected import KINDS, Expected, best_of, expected_of, is_calibrated
from .reasons import FINDERS, MIN_SHARE

FACTS = (
    "roof",
    "overhead",
    "slow path",
    "width",
    "conversion",
)  # listed before measured alternatives
LIMITS = {"compute": "arithmetic", "memory": "memory", "overhead": "call cost"}
MOSTLY_MEASURED = 0.8
EAGER = "eager"


def explain(profile: Profile, layer: str = "", *, against: Profile | None = None) -> Explanation:
    """Explain the time of a layer, a container, or the whole model (the default), and what would
    help.

    `against` is the baseline's profile if `profile` is a variant's: the change is then explained
    too.
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
    summed = _offered(profile, layer) if below else []
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
    """The layer's reasons; a step that the model already has is left out. A row of what an engine
    runs elsewhere, or itself, has none.
    """
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
    """Whether the model already has a step with these options; an engine is any backend, and what
    was pruned once is not pruned again.
    """
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
        f"'{layer.layer or profile.workload}' {layer.self_ms:.3g} ms" for layer in first
    )
    bound: dict[str, float] = defaultdict(float)
    for layer in inside:
        bound[layer.verdict or "overhead"] += layer.self_ms
    shares = ", ".join(
        f"{ms / (row.total_ms or 1.0):.0%} {LIMITS[name]}"
        for name, ms in sorted(bound.items(), key=lambda pair: -pair[1])
        if ms > 0 or len(bound) == 1
    )
    yield Reason(topic="where", sentence=f"Most is spent in {names}; limited by: {shares}.")


def _offered(profile: Profile, layer: str) -> list[Reason]:
    """What steps are expected to save of a container, the most first, each with the layers that
    speak for it. A step that is not expected to help is described and not advised.
    """
    summed = _summed(profile, layer)
    if profile.engine:  # joins and folds by itself: what it would save eager torch is no advice
        return [reason.without_step for reason in summed]
    if not is_calibrated(profile):
        return summed
    likely = [
        each
        for each in expected_of(profile, layer)
        if each.is_likely and not is_applied(each.kind.step, profile.applied)
    ]
    best = best_of(likely)
    offered = [_expected_reason(each, summed) for each in best]
    others = [reason for reason in summed if reason.step not in [each.kind.step for each in best]]
    return [*offered, *(_in_doubt(reason) for reason in others)]


def _expected_reason(each: Expected, summed: list[Reason]) -> Reason:
    """The reason with the expected saving, and the layers of the same step."""
    same = next((reason for reason in summed if reason.step == each.kind.step), None)
    return Reason(
        topic=same.topic if same else each.kind.topic,
        sentence=" ".join([each.sentence, *([same.sentence] if same else [])]),
        step=each.kind.step,
        saves_ms=each.saves_ms,
        error_ms=each.error_ms,
        basis="estimated",
    )


def _in_doubt(reason: Reason) -> Reason:
    """A step that helps layers alone and is not among the best of the whole: no advice."""
    is_covered = any(reason.step == kind.step for kind in KINDS.values())
    if not is_covered or (reason.saves_ms or 0.0) <= 0:
        return reason
    doubt = "In the model as a whole it is expected to help less than others, or not at all."
    return reason.without_step.model_copy(update={"sentence": f"{reason.sentence} {doubt}"})


def _summed(profile: Profile, layer: str) -> list[Reason]:
    """The total saving of each step that would help layers inside, the best first.

    Where a step was measured on a layer, the measurement counts, also a loss; elsewhere the
    estimate.
    """
    steps: dict[str, _Saving] = {}
    for _, row in profile.walk(layer):
        for reason in _reasons(profile, row):
            if reason.step and reason.saves_ms is not None:
                saving = steps.setdefault(repr(reason.step), _Saving(reason.step))
                saving.topics.setdefault(reason.topic)
                saving.estimated[row.layer] = max(
                    saving.estimated.get(row.layer, 0.0), reason.saves_ms
                )
    for _, row in profile.walk(layer):
        for tried in row.alternatives:
            if repr(tried.step) in steps:
                steps[repr(tried.step)].measured[row.layer] = row.self_ms * (
                    1 - tried.there_ms / tried.here_ms
                )
    return sorted(
        (saving.reason(profile) for saving in steps.values()),
        key=lambda reason: -(reason.saves_ms or 0.0),
    )


@dataclass
class _Saving:
    """The milliseconds that a step saves in each of some layers."""

    step: dict[str, dict[str, Any]]
    topics: dict[str, None] = field(default_factory=dict)
    estimated: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)

    def reason(self, profile: Profile) -> Reason:
        """The reason that sums up all layers."""
        saves = self.estimated | self.measured
        winners = sorted(
            (layer for layer in saves if saves[layer] > 0), key=lambda layer: -saves[layer]
        )
        names = ", ".join(
            f"'{layer or profile.workload}' {saves[layer]:.3g}" for layer in winners[:3]
        )
        more = f" and {len(winners) - 3} more" if len(winners) > 3 else ""
        loss = -sum(ms for ms in saves.values() if ms < 0)
        less = (
            f", less {loss:.3g} ms that it would cost others"
            if loss > MIN_SHARE * profile.total_ms
            else ""
        )
        topics = " and ".join(self.topics).capitalize()
        return Reason(
            topic=" and ".join(self.topics),
            sentence=f"{topics}: {counted(len(winners), 'layer')} ({names} ms{more}){less}.",
            step=self.step,
            saves_ms=sum(saves.values()),
            basis=self._basis(saves),
        )

    def _basis(self, saves: dict[str, float]) -> Basis:
        """Measured if every saving was measured, mostly measured if most of it was."""
        measured, whole = (
            sum(abs(ms) for ms in self.measured.values()),
            sum(abs(ms) for ms in saves.values()),
        )
        if set(saves) == set(self.measured):
            return "measured"
        return "mostly measured" if measured > MOSTLY_MEASURED * whole else "estimated"


def _overlap(steps: list[Reason]) -> Iterator[Reason]:
    if sum(reason.saves_ms is not None and reason.saves_ms > 0 for reason in steps) > 1:
        yield Reason(
            topic="overlap",
            sentence="Different steps may save the same milliseconds: their savings do not add up.",
        )
