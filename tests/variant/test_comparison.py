"""A baseline and variants side by side: what is a row, what is the reference, and what an interrupt
leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Comparison, Recipe, Workload
from paifuser_lab.errors import MeasureError, StepError
from paifuser_lab.measure import Candidate, MachineWatch, Samples
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.records import Measurement, Quality
from paifuser_lab.records.quality import word_for
from paifuser_lab.session.state import State
from paifuser_lab.variant import comparison, trial
from paifuser_lab.views.comparison import _label
from paifuser_lab.widgets.presenter import story
from tests.support.models import Counting, images, small

CLOCK: dict[str, float] = {}


@pytest.fixture(autouse=True)
def on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores, on which candidates take as long as a test says: by name and threads,
    else 4 ms.
    """
    CLOCK.clear()
    monkeypatch.setattr(trial, "machine_label", lambda: "paper · 2 cores")
    monkeypatch.setattr(trial, "thread_choices", lambda: (1, 2))
    monkeypatch.setattr(trial, "faster_threads", lambda work: 1)
    monkeypatch.setattr(comparison, "rounds_in_turn", rounds_on_paper)


def rounds_on_paper(
    candidates: list[Candidate], *, rounds: int, seconds: float, turn: Any
) -> Iterator[dict[str, Samples]]:
    samples = {candidate.name: Samples() for candidate in candidates}
    for number in range(rounds):
        for index, candidate in enumerate(candidates):
            with torch.no_grad():
                candidate.call()
            ms = next((ms for key, ms in CLOCK.items() if candidate.name.startswith(key)), 4.0)
            taken = samples[candidate.name]
            for column in (taken.rounds_ms, taken.calls_ms, taken.cpu_ms):
                # no two candidates keep the same ratio in every round
                column.append(ms * (1 + 0.01 * number + (1e-9 if index and number % 2 else 0)))
        yield samples


def accuracy(predict: Any, test: Any) -> float:
    return sum(
        float((predict(batch).argmax(1) == labels).float().mean()) for batch, labels in test
    ) / len(test)


def test_the_faster_baseline_is_the_reference_and_both_are_shown() -> None:
    CLOCK.update({"baseline · 2 threads": 2.0, "baseline · 1 thread": 3.0, "f ·": 1.0})
    measured = lab.compare(small(), f=Recipe(["fold"]), rounds=4, threads="each")
    assert [row.name for row in measured.rows] == [
        "baseline · 1 thread",
        "baseline · 2 threads",
        "f",
    ]
    assert measured.baseline == "baseline · 2 threads"
    assert measured["f"].speedup == pytest.approx(2.0)
    assert [row.threads for row in measured.rows[:2]] == [1, 2]
    assert measured[measured.baseline].speedup == 1.0
    assert measured["baseline · 1 thread"].speedup == pytest.approx(2 / 3)
    assert measured.best.name == "f"
    assert measured.rounds == 4
    assert measured.machine == "paper · 2 cores"
    assert not measured.is_interrupted


@pytest.mark.parametrize(("one_ms", "two_ms", "threads"), [(1.0, 2.0, 1), (2.0, 1.0, 2)])
def test_a_variant_without_threads_of_its_own_shows_the_faster_number(
    one_ms: float, two_ms: float, threads: int
) -> None:
    CLOCK.update({"f · 1": one_ms, "f · 2": two_ms})
    measured = lab.compare(small(), f=Recipe(["fold"]), rounds=3, threads="each")
    assert measured["f"].threads == threads


def test_without_a_choice_every_row_runs_with_the_number_of_threads_of_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "faster_threads", lambda work: 2)
    measured = lab.compare(small(), f=Recipe(["fold"]), rounds=3)
    assert [(row.name, row.threads) for row in measured.rows] == [("baseline", 2), ("f", 2)]
    asked = lab.compare(small(), f=Recipe(["fold"]), rounds=3, threads=1)
    assert {row.threads for row in asked.rows} == {1}
    with pytest.raises(MeasureError, match="threads"):
        lab.compare(small(), threads=0)


def test_a_backend_keeps_its_threads() -> None:
    CLOCK.update({"e · 2": 0.1})
    row = lab.compare(small(), e=Recipe([{"backend": {"threads": 1}}]), rounds=3)["e"]
    assert (row.threads, row.latency_ms) == (1, pytest.approx(4.04))


def test_a_row_holds_everything_that_was_measured() -> None:
    batch = images(4)
    work = small(test=[(batch, torch.zeros(4, dtype=torch.long))], metric=accuracy)
    measured = lab.compare(work, lab.apply(work, Recipe(["fold"])), rounds=3)
    row, base = measured["fold batch-norm"], measured.rows[0]
    assert row.steps == ("fold batch-norm",) and "folded 1 batch-norm layers" in row.notes
    assert row.parameters == 3 * 8 * 9 + 8 + 8 * 5 + 5
    assert row.flops == base.flops
    assert row.size_bytes == 4 * row.parameters
    assert row.peak_bytes > row.size_bytes
    assert 0 <= row.relative_error < 1e-5
    assert base.relative_error == 0
    assert (row.relative_error > 0) is (row.max_error > 0), (
        "rounding may differ or not, with the processor"
    )
    assert row.metric == base.metric == accuracy(work.model, work.test)
    assert measured.metric_name == "accuracy"
    assert row.weights_hash == lab.apply(work, Recipe(["fold"])).weights_hash
    assert base.weights_hash == weights_hash(work.model)
    assert row.build_s > 0 and base.build_s is None
    assert lab.compare(work, rounds=3, metric=False).rows[0].metric is None
    narrow = Recipe([{"precision": "bf16"}], limit={"output_error": 1e-9})
    unjudged = lab.compare(work, narrow, rounds=3, metric=False).rows[-1]
    assert unjudged.relative_error > 1e-9 and unjudged.refused is None


@pytest.mark.parametrize(
    ("ms", "note"),
    [(8.0, "slower than the baseline"), (4.0, "no faster than the baseline, within the interval")],
)
def test_a_variant_that_is_not_faster_gets_a_note(ms: float, note: str) -> None:
    CLOCK.update({"f ·": ms})
    assert note in lab.compare(small(), f=Recipe(["fold"]), rounds=3)["f"].notes


QUIET, BUSY = Quality(others_share=0.01), Quality(others_share=0.46)
NO_FASTER = "no faster than the baseline, within the interval"


@pytest.mark.parametrize(
    ("interval", "quality", "note", "word"),
    [
        ((1.01, 1.2), QUIET, "", "faster"),
        ((1.01, 1.2), None, "", "faster"),
        ((0.9, 1.1), QUIET, NO_FASTER, "no difference"),
        ((1.0, 1.2), QUIET, NO_FASTER, "no difference"),
        ((0.8, 1.0), QUIET, NO_FASTER, "no difference"),
        ((0.8, 0.99), QUIET, "slower than the baseline", "slower"),
        ((1.01, 1.2), BUSY, "", "not told"),
        ((0.8, 0.99), BUSY, "", "not told"),
        ((1.3, 1.6), BUSY, "", "faster"),
        ((0.5, 0.7), BUSY, "slower than the baseline", "slower"),
        ((0.4, 2.1), QUIET, "", "not told"),
    ],
)
def test_one_verdict_stands_in_the_note_the_table_the_figure_and_the_workbench(
    interval: tuple[float, float], quality: Quality | None, note: str, word: str
) -> None:
    if quality is not None:
        assert trial.NO_GAIN.get(word_for(interval, quality), "") == note
    rows = (
        Measurement(
            name="baseline", threads=1, latency_ms=2.0, speedup=1.0, speedup_interval=(1.0, 1.0)
        ),
        Measurement(
            name="v",
            steps=("fold",),
            threads=1,
            latency_ms=2.0,
            speedup=1.0,
            speedup_interval=interval,
        ),
    )
    measured = of_rows(rows, rounds=9, quality=quality)
    state = State(recipe=Recipe(["fold"]), comparison=measured)
    verdict = measured.verdict(rows[1])
    assert story(state) == {"tone": verdict.tone, "sentence": verdict.sentence}
    assert verdict.word == word and verdict.sentence.startswith("2.00 → 2.00 ms · ")
    is_rough = word == "not told" or quality is BUSY
    assert measured.table()[1]["speed-up"].startswith("≈") is is_rough
    assert ("sizes are rough" in str(measured)) is (quality is BUSY)
    assert ("≈" in _label(rows[1], measured)) is is_rough


def test_a_result_that_says_nothing_is_measured_again_within_its_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = iter([Quality(is_hopeless=True), Quality(is_hopeless=True), QUIET])
    monkeypatch.setattr(MachineWatch, "quality", lambda *_, **__: next(states))
    assert lab.compare(small(), f=Recipe(["fold"]), rounds=3).quality == QUIET
    states = iter([Quality(is_hopeless=True)])
    assert lab.compare(small(), rounds=3, seconds=0).quality.state == "unusable"


def test_a_failing_recipe_is_a_row_with_the_reason_and_the_others_stay() -> None:
    work = Workload(Counting(), torch.randn(2, 4))
    bad = Recipe([{"backend": {"name": "onnxruntime"}}])
    odd = Recipe([{"precision": {"layers": {"lien": "bf16"}}}])
    measured = lab.compare(work, bad, odd, good=Recipe(["layout"]), rounds=3)
    assert [row.name for row in measured.rows][1:] == ["good", "onnxruntime", "lien: bf16"]
    assert "forward changes buffer 'calls'" in measured["onnxruntime"].failure
    assert "matches no layer" in measured.rows[-1].failure
    assert measured["good"].latency_ms and measured["onnxruntime"].latency_ms is None
    assert measured["onnxruntime"].steps == ("onnxruntime",)
    assert measured.best.failure is None and "matches no layer" in measured._repr_html_()


def test_only_what_the_seconds_suffice_for_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    work, clock = small(), Clock()
    monkeypatch.setattr(trial, "time", clock)
    real = trial.apply

    def slow(work: Workload, recipe: Recipe) -> Any:
        clock.now += 2.0 if "fold" in recipe.label else 0.1
        return real(work, recipe)

    monkeypatch.setattr(trial, "apply", slow)
    recipes = [Recipe([{"fold": {}}])] * 4
    variants, rows = trial.built(work, [*recipes, Recipe([{"layout": {}}])], seconds=5)
    assert [variant.recipe.label for variant in variants] == ["fold batch-norm"] * 2 + [
        "channels last"
    ], "two times 2 of 5 seconds; the third would end at 6"
    assert {row.failure for row in rows} == {"not built: the seconds do not suffice; give more"}
    assert len(rows) == 2


def test_what_compiles_is_begun_only_where_its_usual_seconds_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "apply", lambda work, recipe: recipe)
    monkeypatch.setattr(trial, "time", Clock())
    recipes = [Recipe(["fold"]), Recipe([{"backend": {"name": "inductor"}}]), Recipe(["layout"])]
    for seconds, failed in ((trial.COMPILING_S - 1, [True]), (trial.COMPILING_S + 1, [])):
        made = [
            trial._variant(small(), "x", one, 1, building)
            for building in [trial.Building(seconds)]
            for one in recipes
        ]
        assert [True for one in made if isinstance(one, Measurement)] == failed


def test_a_screening_is_of_few_rounds_and_has_no_flops_or_peaks() -> None:
    work = small()
    broken = lab.apply(work, Recipe(["fold"]))
    broken.module.head.bias.data.fill_(torch.nan)
    screened = comparison.screen(work, [lab.apply(work, Recipe(["layout"])), broken], 2)
    row, failed = screened.rows[-2:]
    assert screened.rounds == row.rounds == 2 and "only" not in str(screened)
    assert "in 2 rounds only" in str(screened.model_copy(update={"rounds": 30}))
    assert len(screened.trade_off.bargains) == len(screened.rows) - 1
    assert row.latency_ms and row.speedup and row.relative_error is not None and row.flops is None
    assert "a NaN" in (failed.failure or "") and failed.latency_ms is None


def test_one_recipe_is_built_in_any_case() -> None:
    variants, rows = trial.built(small(), [Recipe([{"fold": {}}])] * 2, seconds=0)
    assert len(variants) == len(rows) == 1


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_a_variant_that_fails_on_the_test_data_is_a_row_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = small(test=[(images(3), torch.zeros(3))], metric=accuracy)
    evaluate = work.evaluate

    def fail(model: Any) -> Any:
        if model is not work.model:
            raise StepError("no file for a batch of 3.")
        return evaluate(model)

    monkeypatch.setattr(work, "evaluate", fail)
    measured = lab.compare(work, f=Recipe(["fold"]), rounds=3)
    assert measured["f"].failure == "StepError: no file for a batch of 3."
    assert measured.rows[0].metric is not None


@pytest.mark.parametrize(
    ("value", "what"),
    [(torch.inf, "an infinity where the baseline's has none"), (torch.nan, "a NaN")],
)
def test_a_variant_with_output_that_is_not_finite_is_a_row_with_the_reason(
    value: float, what: str
) -> None:
    work = small()
    variant = lab.apply(work, Recipe(["fold"]))
    variant.module.head.bias.data.fill_(value)
    measured = lab.compare(work, f=variant, g=Recipe(["layout"]), rounds=3)
    assert f"the output holds {what}" in measured["f"].failure and measured["g"].failure is None
    assert measured.rows[0].failure is None and measured.rows[0].relative_error == 0


def test_should_stop_ends_after_the_round_and_keeps_the_results() -> None:
    polled = iter([False, False, True])
    measured = lab.compare(small(), Recipe(["fold"]), rounds=30, should_stop=lambda: next(polled))
    assert measured.rounds == 3 and measured.is_interrupted and "stopped early" in str(measured)
    assert all(row.latency_ms for row in measured.rows)


class Impatient(nn.Module):
    """The user presses Ctrl-C in one of its calls."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.line, self.calls, self.at = nn.Linear(2, 2), 0, at

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.line(x)


def test_an_interrupt_keeps_the_rounds_there_are() -> None:
    work = Workload(Impatient(at=8), torch.ones(1, 2))
    measured = lab.compare(work, rounds=30)
    assert measured.is_interrupted and measured.rounds >= 3 and len(measured.rows) == 1


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupt_while_a_useless_result_is_measured_again_keeps_its_rounds(
    done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = iter([3, done])

    def pressed(*args: Any, **options: Any) -> Iterator[dict[str, Samples]]:
        last = next(allowed)
        for number, samples in enumerate(rounds_on_paper(*args, **options)):
            if number == last:
                raise KeyboardInterrupt
            yield samples

    monkeypatch.setattr(comparison, "rounds_in_turn", pressed)
    monkeypatch.setattr(MachineWatch, "quality", lambda *_, **__: Quality(is_hopeless=True))
    measured = lab.compare(small(), f=Recipe(["fold"]), rounds=3)
    assert measured.is_interrupted and measured.rounds == 3
    assert all(row.latency_ms for row in measured.rows)


def test_an_interrupt_before_anything_was_timed_is_an_interrupt() -> None:
    work = Workload(Impatient(at=2), torch.ones(1, 2))
    with pytest.raises(KeyboardInterrupt):
        lab.compare(work, rounds=30)
    assert work.model.training


def test_an_interrupt_in_a_metric_keeps_what_was_timed() -> None:
    calls: list[int] = []

    def slow(predict: Any, test: Any) -> float:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 0.5

    measured = lab.compare(small(test=[1], metric=slow), f=Recipe(["fold"]), rounds=3)
    assert measured.is_interrupted and [row.metric for row in measured.rows] == [0.5, None]
    assert all(row.latency_ms for row in measured.rows) and len(calls) == 2


@pytest.mark.parametrize(
    ("variants", "named", "name"),
    [
        ((Recipe(["fold"]), Recipe(["fold"])), {}, "fold batch-norm"),
        ((Recipe(["fold"]),), {"fold batch-norm": Recipe(["layout"])}, "fold batch-norm"),
        ((), {"baseline": Recipe(["layout"])}, "baseline"),
    ],
)
def test_two_rows_of_one_name_are_refused_before_anything_is_built(
    variants: Any, named: Any, name: str
) -> None:
    work = small()
    with pytest.raises(MeasureError, match=f"Two rows would be called '{name}'"):
        lab.compare(work, *variants, **named)
    assert not work.variants


def test_a_variant_of_another_workload_is_refused() -> None:
    variant = lab.apply(small(), Recipe(["fold"]))
    with pytest.raises(
        MeasureError,
        match="variant 'fold batch-norm' was made from workload 'small'; compare it with that one",
    ):
        lab.compare(small(), variant)


def test_comparing_leaves_the_model_unchanged() -> None:
    model = nn.Sequential(Counting(), nn.BatchNorm1d(4)).train()
    before, flags = weights_hash(model), [module.training for module in model.modules()]
    lab.compare(Workload(model, torch.randn(3, 4)), Recipe(["layout"]), rounds=3)
    assert weights_hash(model) == before
    assert [module.training for module in model.modules()] == flags


def test_a_real_comparison_has_a_real_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from paifuser_lab.measure import rounds_in_turn

    monkeypatch.setattr(comparison, "rounds_in_turn", rounds_in_turn)
    before = torch.get_num_threads()
    measured = lab.compare(
        lab.load("resnet18-tiny"),
        ort=Recipe(["fold", {"backend": {"name": "onnxruntime", "threads": 1}}]),
        rounds=5,
        seconds=1,
    )
    assert len(measured.rows) == 2
    assert all(row.latency_ms > 0 and row.best_ms > 0 for row in measured.rows)
    low, high = measured["ort"].speedup_interval
    assert low <= measured["ort"].speedup <= high and measured["ort"].peak_bytes is None
    assert torch.get_num_threads() == before


def of_rows(rows, **more):
    given = {"workload": "net", "machine": "m", "baseline": "baseline", "rounds": 1} | more
    return Comparison(rows=tuple(rows), **given)


def test_a_trade_off_names_what_nothing_beats_and_leaves_out_the_slower_baseline():
    def row(name, ms, size, metric):
        return Measurement(
            name=name, threads=1, latency_ms=ms, size_bytes=size, metric=metric, relative_error=0.1
        )

    rows = (
        row("baseline · 1 thread", 9.0, 100, 0.9),
        row("baseline · 2 threads", 8.0, 100, 0.9),
        row("small", 7.0, 50, 0.8),
        row("better", 6.0, 60, 0.95),
        Measurement(name="failed", threads=1, failure="no"),
    )
    compared = of_rows(rows, baseline="baseline · 2 threads", metric_name="accuracy")
    result = compared.trade_off
    assert [row.name for row in result.bargains] == ["baseline · 2 threads", "small", "better"]
    assert result.unit == "accuracy"
    assert [row.name for row in result.unbeaten("latency_ms")] == ["better"]
    assert [row.name for row in result.unbeaten("size_bytes")] == ["small", "better"]
    turned = result.model_copy(update={"smaller_is_better": True})
    assert "better" not in {row.name for row in turned.unbeaten("size_bytes")}
    assert [row["note"] for row in result.table()] == [
        "",
        "unbeaten for its size",
        "unbeaten for its latency and unbeaten for its size",
    ]


def test_a_trade_off_without_a_metric_uses_the_output_error():
    rows = [
        Measurement(name=name, threads=1, latency_ms=1.0, size_bytes=1, relative_error=error)
        for name, error in (("baseline", 0.0), ("a", 0.25))
    ]
    result = of_rows(rows).trade_off
    assert result.unit == "closeness"
    assert [row.worth for row in result.bargains] == [1.0, 0.75]
    with pytest.raises(MeasureError, match="has a latency, a size and a finite metric or output"):
        _ = of_rows([Measurement(name="a", threads=1)], baseline="a").trade_off


@pytest.mark.parametrize("metrics", [(0.9, math.nan), (3.0, math.inf)])
def test_a_row_whose_metric_is_not_finite_has_no_place_in_a_trade_off(metrics):
    rows = [
        Measurement(name=name, threads=1, latency_ms=1.0, size_bytes=1, metric=metric)
        for name, metric in zip(("baseline", "a"), metrics, strict=True)
    ]
    result = of_rows(rows).trade_off
    assert [row.name for row in result.bargains] == ["baseline"] and lab.figure(result).png()
    unknown = [row.model_copy(update={"metric": metrics[1]}) for row in rows]
    assert of_rows(unknown).trade_off.unit == "closeness"


def test_a_variant_may_be_named_like_a_baseline():
    rows = [
        Measurement(name=name, threads=1, latency_ms=1.0, size_bytes=1, relative_error=0.0)
        for name in ("baseline", "baseline_copy")
    ]
    result = of_rows(rows).trade_off
    assert [bargain.name for bargain in result.bargains] == ["baseline", "baseline_copy"]


def test_an_interrupt_while_layers_at_fault_are_searched_keeps_the_comparison(monkeypatch):
    def interrupted(*given: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "refusal", interrupted)
    measured = lab.compare(small(), f=Recipe(["fold"]), rounds=2)
    assert measured["f"].latency_ms and measured["f"].refused is None


def test_the_quality_is_told_what_calls_waited_how_rounds_spread_and_the_intervals(monkeypatch):
    CLOCK.update({"baseline": 4.0, "f": 2.0})
    told: list[dict[str, Any]] = []

    def quality(watch: Any, **figures: Any) -> Quality:
        told.append(figures)
        return Quality()

    monkeypatch.setattr(MachineWatch, "quality", quality)
    lab.compare(small(), f=Recipe(["fold"]), rounds=8)
    assert told[-1]["waited_share"] == 0.0 and 0.02 < told[-1]["spread"] < 0.05
    ((low, high),) = told[-1]["intervals"]
    assert low == pytest.approx(2.0) and high == pytest.approx(2.0)
