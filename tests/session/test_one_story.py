"""The headline, the results, the profile, and comparisons in a cell and in a terminal agree."""

from __future__ import annotations

import pytest

import paifuser_lab as lab
from paifuser_lab.engines import threads
from paifuser_lab.engines.threads import choose_threads, faster_threads
from paifuser_lab.machine import thread_choices
from paifuser_lab.measure import MachineWatch, Samples, timing
from paifuser_lab.records import Quality
from paifuser_lab.session import Session
from paifuser_lab.widgets.presenter import story

RECIPE = [{"backend": "onnxruntime"}]
ROUNDS, SECONDS = 3, 8.0


@pytest.fixture
def fixed_times(monkeypatch):
    """Calls run, and take given times: 2 ms in an engine and 5 ms without, a round like another."""

    def timed(candidate):
        candidate.call()
        ms = 2.0 if "onnxruntime" in candidate.name else 5.0
        return ms, ms * candidate.threads

    monkeypatch.setattr(timing, "_timed", timed)


@pytest.mark.parametrize(
    ("name", "threads"), [("resnet18-tiny", 1), ("vit-s-tiny", thread_choices()[-1])]
)
def test_session_results_profile_and_comparisons_agree(
    name, threads, fixed_times, command, tmp_path
):
    work = lab.load(name)
    choose_threads(work, threads)
    session = Session(work, rounds=ROUNDS, seconds=SECONDS)
    session.set_recipe(lab.Recipe(RECIPE))
    state = session.wait(300)
    session.close()
    told, row = story(state), state.comparison.rows[-1]
    assert told["sentence"] == state.comparison.verdict(row).sentence
    assert told["tone"] == row_of(state).verdict.tone
    assert row_of(state).speedup == row.speedup
    assert {one.threads for one in state.comparison.rows} == {threads} == {state.profile.threads}

    in_cell = lab.compare(work, lab.Recipe(RECIPE), rounds=ROUNDS, seconds=SECONDS)
    in_terminal = compared_in_terminal(name, threads, tmp_path, command)
    for measured in (in_cell, in_terminal):
        again = measured.rows[-1]
        assert {one.threads for one in measured.rows} == {threads}
        assert row.speedup_interval == again.speedup_interval == (2.5, 2.5)
        assert told["sentence"] == measured.verdict(again).sentence


def compared_in_terminal(name, threads, folder, command):
    """The comparison that `paifuser-lab compare` prints and saves."""
    lab.Recipe(RECIPE).save(folder / "recipe.yaml")
    options = ["--rounds", ROUNDS, "--seconds", SECONDS, "--threads", threads]
    files = [folder / "recipe.yaml", "--save", folder / "compared.json"]
    code, out, _ = command("compare", name, *files, *options)
    compared = lab.Comparison.load(folder / "compared.json")
    assert code == 0 and compared.verdict(compared.rows[-1]).sentence in out
    return compared


def row_of(state):
    (row,) = (row for row in state.results.rows if row.number)
    return row


@pytest.fixture
def work(monkeypatch):
    """A workload on a machine where one thread or two can be chosen."""
    monkeypatch.setattr(threads, "thread_choices", lambda: (1, 2))
    return lab.load("resnet18-tiny")


def test_the_number_of_threads_is_chosen_once_for_a_workload_and_its_copies(work, monkeypatch):
    asked = []
    monkeypatch.setattr(threads, "_fastest", lambda work, choices: asked.append(choices) or 2)
    assert [faster_threads(one) for one in (work, work.copied(), work)] == [2, 2, 2]
    assert asked == [(1, 2)]


def test_a_choice_made_on_a_busy_machine_is_made_again(work, monkeypatch):
    counts = iter([2, 1])
    monkeypatch.setattr(threads, "_fastest", lambda work, choices: next(counts))
    loads = iter([Quality(others_share=0.6), Quality(others_share=0.0)])
    monkeypatch.setattr(MachineWatch, "quality", lambda watch, **_: next(loads))
    shares = iter([0.6, None, 0.0])
    monkeypatch.setattr(MachineWatch, "others_share", property(lambda watch: next(shares)))
    # busy still, too early to tell, and quiet: chosen anew, once and for all
    assert [faster_threads(work) for _ in range(5)] == [2, 2, 2, 1, 1]


def test_a_choice_that_comes_out_on_a_busy_machine_again_stays_as_it_was(work, monkeypatch):
    counts = iter([2, 1, 1])
    monkeypatch.setattr(threads, "_fastest", lambda work, choices: next(counts))
    monkeypatch.setattr(MachineWatch, "quality", lambda watch, **_: Quality(others_share=0.6))
    monkeypatch.setattr(MachineWatch, "others_share", property(lambda watch: 0.0))
    assert [faster_threads(work) for _ in range(3)] == [2, 2, 2]


def test_a_variant_is_measured_with_the_threads_of_its_workload():
    one, other = lab.load("resnet18-tiny"), lab.load("resnet18-tiny")
    choose_threads(one, thread_choices()[-1])
    choose_threads(other, 1)
    fold = lab.Recipe(["fold"])
    assert faster_threads(lab.apply(one, fold).workload) == thread_choices()[-1]
    assert faster_threads(lab.apply(other, fold).workload) == 1


def test_of_two_counts_the_faster_is_chosen_and_a_slow_model_is_timed_twice(work, monkeypatch):
    def timed(candidates, **_):
        ms = times[-1]
        for done in range(1, 9):
            asked.append(done)
            yield {
                one.name: Samples(rounds_ms=[ms[one.name]] * done, cpu_ms=[1.0] * done)
                for one in candidates
            }

    monkeypatch.setattr(threads, "rounds_in_turn", timed)
    times = []
    for ms, count, rounds in (
        ({"1": 9.0, "2": 5.0}, 2, 8),
        ({"1": 5.0, "2": 9.0}, 1, 8),
        ({"1": 900.0, "2": 500.0}, 2, 2),
    ):
        asked = []
        times.append(ms)
        assert threads._fastest(work, (1, 2)) == count and len(asked) == rounds
