"""A session and its workbench keep no more than they need, go when nobody refers to them, and never
leave anybody waiting.
"""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import PaifuserError, RecipeError, WorkloadError
from paifuser_lab.session import Session
from paifuser_lab.session import session as room
from paifuser_lab.variant import cache
from paifuser_lab.widgets import lifetime
from tests.support.models import Small, images

PATIENCE = 120.0
pytestmark = pytest.mark.usefixtures("one_thread", "quick")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(room, "PROFILE_S", 0.05)


class Interrupted(nn.Module):
    """Its forward is interrupted while `error` is set, as by a person or by a library that ends the
    program.
    """

    error: BaseException | None = None

    def __init__(self):
        super().__init__()
        self.inner = Small()

    def forward(self, x):
        if Interrupted.error is not None:
            raise Interrupted.error
        return self.inner(x)


@pytest.fixture
def interrupted(monkeypatch):
    monkeypatch.setattr(Interrupted, "error", None)
    return lab.Workload(Interrupted(), images(), name="small")


def small():
    return lab.Workload(Small(), images(), name="small")


def bench_of(work):
    bench = lab.Workbench(work, rounds=1, seconds=0.1)
    assert not bench.wait(PATIENCE).is_busy
    return bench


def parts_of(bench):
    """What is to go with a workbench."""
    return [
        weakref.ref(one)
        for one in (bench, bench.session, bench.session._own.model, bench.variant.module)
    ]


def workers():
    return [one for one in threading.enumerate() if one.name.startswith("session of")]


def ended(thread):
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_a_session_keeps_so_many_variants_comparisons_and_profiles(monkeypatch):
    monkeypatch.setattr(cache, "MOST_KEPT", 3)
    monkeypatch.setattr("paifuser_lab.session.history.MOST_RECORDS", 4)
    session = Session(small(), rounds=1, seconds=0.05)
    first = session.wait(PATIENCE).baseline
    for name in ("bf16", "fp16", "bf16", "fp16", "bf16", "fp16", "bf16"):
        session.choose(
            {"precision": {"layers": {"conv" if len(session._history) % 2 else "head": name}}}
        )
        state = session.wait(PATIENCE)
        assert state.error is None and state.variant is not None and state.baseline is first
    assert len(session._history) > 5
    assert len(session._own.variants) == 3 and not hasattr(session, "_variants")
    assert (len(session._comparisons), len(session._profiles)) == (4, 4)
    while session.undo():
        assert session.wait(PATIENCE).variant.recipe == session.recipe
    assert session.state.profile is first
    session.close()


def test_a_session_at_rest_has_no_thread():
    session = Session(small(), rounds=1, seconds=0.05)
    worker = session._worker
    session.wait(PATIENCE)
    assert worker is not None and ended(worker)
    session.choose("fold")
    assert session.wait(PATIENCE).variant.recipe == lab.Recipe(["fold"])


def test_a_workbench_goes_with_all_it_made_when_nobody_refers_to_it():
    work = small()
    parts = []
    for _ in range(3):
        bench = bench_of(work)
        parts += parts_of(bench)
    del bench
    gc.collect()
    assert [one() for one in parts] == [None] * 12
    assert not workers()


def test_a_workbench_that_goes_while_its_worker_is_busy_ends_what_it_does():
    bench = bench_of(small())
    measuring = threading.Event()
    bench.session.rounds, bench.session.seconds = 10**6, 1e6  # it would take for ever
    bench.session.observe(
        lambda state: measuring.set() if state.status == "measuring" and state.done else None
    )
    bench.recipe = lab.Recipe(["fold"])
    assert measuring.wait(PATIENCE)
    worker, parts = bench.session._worker, parts_of(bench)
    del bench
    gc.collect()
    assert ended(worker)
    gc.collect()
    assert [one() for one in parts] == [None] * 4


def test_a_workbench_that_is_shown_lives_until_its_cell_makes_the_next_one():
    work, other = small(), lab.Workload(nn.Linear(2, 2), images(2)[:, :1, :1, :2], name="small")
    bench = bench_of(work)
    bench._repr_mimebundle_()
    parts = parts_of(bench)
    del bench
    stranger = bench_of(other)
    gc.collect()
    assert all(one() is not None for one in parts), (
        "it is shown, and another model's is no reason to close it"
    )
    bench = bench_of(work)
    gc.collect()
    assert [one() for one in parts] == [None] * 4
    bench.close(), stranger.close()


def test_a_workbench_that_has_another_name_stays_when_its_cell_is_run_again():
    work = small()
    bench = mine = bench_of(work)
    mine._repr_mimebundle_()
    bench = bench_of(work)
    gc.collect()
    mine.recipe = lab.Recipe(["fold"])
    assert mine.wait(PATIENCE).variant.recipe == mine.recipe and not len(bench.recipe)
    assert mine.state["recipe"], "what is shown follows"
    mine.close(), bench.close()


def test_a_closed_workbench_is_no_longer_held():
    bench = bench_of(small())
    bench._repr_mimebundle_()
    assert bench in lifetime.held()
    bench.close()
    assert bench not in lifetime.held()


def test_what_the_page_sends_reaches_a_workbench_that_is_referred_to_weakly():
    bench = bench_of(small())
    data = {"method": "update", "state": {"selected": "conv"}, "buffer_paths": []}
    bench.comm.handle_msg({"content": {"data": data}, "buffers": []})
    assert bench.selected == "conv"
    bench.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_inside_a_forward_is_told_and_nobody_waits_for_ever(interrupted, error):
    session = Session(interrupted, rounds=1, seconds=0.05)
    assert session.wait(PATIENCE).error is None
    Interrupted.error = error
    session.choose("fold")
    state = session.wait(PATIENCE)
    assert (
        state.status == "idle"
        and f"interrupted while it ran ({type(error).__name__})" in state.error
    )
    Interrupted.error = None
    assert state.can_redo and session.redo()
    state = session.wait(PATIENCE)
    assert state.error is None and state.variant.recipe == lab.Recipe(["fold"])
    session.close()


def test_an_interrupt_while_a_session_looks_is_told(interrupted):
    session = Session(interrupted, rounds=1, seconds=0.05)
    session.wait(PATIENCE)
    Interrupted.error = KeyboardInterrupt()
    session.query("sensitivity", seconds=0.1)
    state = session.wait(PATIENCE)
    assert state.status == "idle" and "interrupted while it ran" in state.error
    session.close()


def test_an_interrupt_of_the_first_look_is_told(interrupted):
    Interrupted.error = KeyboardInterrupt()
    session = Session(interrupted, rounds=1, seconds=0.05)
    state = session.wait(PATIENCE)
    assert state.status == "idle" and "interrupted while it ran" in state.error
    session.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda session: session.undo(),
        lambda session: session.redo(),
        lambda session: session.choose("layout"),
        lambda session: session.set_recipe(lab.Recipe(["layout"])),
        lambda session: session.measure_again(),
        lambda session: session.query("sensitivity"),
        lambda session: session.show("sensitivity", None),
    ],
    ids=["undo", "redo", "choose", "set_recipe", "measure_again", "query", "show"],
)
def test_a_closed_session_says_so_at_once(ask):
    session = Session(small(), rounds=1, seconds=0.05)
    session.choose("fold")
    session.wait(PATIENCE)
    session.close()
    before = session.state
    with pytest.raises(PaifuserError, match="The session of small is closed; make a new one"):
        ask(session)
    assert session.wait(PATIENCE) is before and not before.is_busy


def test_closing_ends_what_is_measured_and_whoever_waits():
    session = Session(small(), rounds=10**6, seconds=1e6)
    measuring = threading.Event()
    session.observe(lambda state: measuring.set() if state.status == "measuring" else None)
    assert measuring.wait(PATIENCE)
    session.close()
    assert session.wait(PATIENCE).status == "idle"


def test_a_new_choice_takes_what_could_be_redone_away():
    session = Session(small(), rounds=1, seconds=0.05)
    session.choose("fold")
    session.undo()
    session.choose("layout")
    assert not session.redo() and session.recipe == lab.Recipe(["layout"])
    assert not session.wait(PATIENCE).can_redo
    session.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("fold", r"A str is no recipe; write lab\.Recipe\(\['fold'\]\)"),
        (["fold"], r"A list is no recipe; write lab\.Recipe\(\['fold'\]\)"),
        ({"fold": {}}, "A dict is no recipe"),
        (None, "A NoneType is no recipe"),
        ("x" * 300, "A str is no recipe"),
    ],
)
def test_what_is_no_recipe_is_refused_where_it_is_set(given, sentence):
    bench = bench_of(small())
    with pytest.raises(RecipeError, match=sentence):
        bench.recipe = given
    assert bench.recipe == lab.Recipe([])
    bench.close()


def test_a_bare_model_is_no_workload_for_a_workbench(capsys):
    with pytest.raises(
        WorkloadError,
        match=r"A Small is no workload; wrap the model: lab\.Workload\(model, inputs\)",
    ):
        lab.Workbench(Small())
    gc.collect()
    assert not capsys.readouterr().err and not workers()


def test_a_bench_that_python_takes_along_when_it_ends_touches_nothing(monkeypatch):
    """The globals that closing needs are gone by then."""
    bench = lab.Workbench(lab.Workload(Small(), images(), name="small"), rounds=1, seconds=0.1)
    bench.wait(PATIENCE)
    closed = []
    monkeypatch.setattr(bench.session, "close", lambda: closed.append(bench))
    bench.close(is_ending=lambda: True)
    assert not closed
    bench.__del__()  # as ipywidgets does, when nobody refers to it
    assert closed
