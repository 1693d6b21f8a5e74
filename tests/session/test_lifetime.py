"""A session and its workbench bound what they cache, are collected when nothing refers to them, and
never leave a caller of `wait` blocked.
"""

from __future__ import annotations

import gc
import re
import threading
import weakref

import ipywidgets
import pytest
from IPython.core.displayhook import DisplayHook
from IPython.core.interactiveshell import InteractiveShell, InteractiveShellABC
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import PaifuserError, RecipeError, WorkloadError
from paifuser_lab.session import Session
from paifuser_lab.variant import cache
from paifuser_lab.widgets import workbench
from tests.support.bench import TIMEOUT_S
from tests.support.models import Small, images, small

pytestmark = pytest.mark.usefixtures("one_thread")


class Interrupted(nn.Module):
    """Its forward raises `error` while that is set, as an interrupt by the user or a library that
    ends the program would.
    """

    error: BaseException | None = None

    def __init__(self):
        super().__init__()
        self.inner = Small()

    def forward(self, x):
        if Interrupted.error is not None:
            raise Interrupted.error
        return self.inner(x)


@InteractiveShellABC.register
class Shell:
    """The part of IPython's shell that keeps what cells show."""

    push = InteractiveShell.push

    def __init__(self):
        self.user_ns, self.user_ns_hidden = {"_oh": {}}, {}
        self.displayhook = DisplayHook(shell=self)


@pytest.fixture
def interrupted(monkeypatch):
    monkeypatch.setattr(Interrupted, "error", None)
    return lab.Workload(Interrupted(), images(), name="small")


def bench_of(work):
    bench = lab.Workbench(work, rounds=1, seconds=0.1)
    assert not bench.wait(TIMEOUT_S).is_busy
    return bench


def parts_of(bench):
    """Weak references to what must be collected with a workbench."""
    return [
        weakref.ref(part)
        for part in (bench, bench.session, bench.session._own.model, bench.variant.module)
    ]


def has_ended(thread):
    thread.join(TIMEOUT_S)
    return not thread.is_alive()


def workers():
    """The threads of sessions that do not end by themselves; one that is idle is about to."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("session of")]
    return [thread for thread in threads if not has_ended(thread)]


def test_a_session_bounds_its_cached_variants_and_profiles(monkeypatch):
    monkeypatch.setattr(cache, "MOST_KEPT", 3)
    monkeypatch.setattr("paifuser_lab.session.history.MAX_PROFILES", 4)
    session = Session(small(), rounds=1, seconds=0.05)
    first = session.wait(TIMEOUT_S).baseline
    shares = [row.share for row in first]
    for name in ("bf16", "fp16", "bf16", "fp16", "bf16", "fp16", "bf16"):
        session.choose(
            {"precision": {"layers": {"conv" if len(session._history) % 2 else "head": name}}}
        )
        state = session.wait(TIMEOUT_S)
        assert state.error is None and state.variant is not None
        assert [row.share for row in state.baseline] == shares
    assert len(session._history) > 5
    assert len(session._own.variants) == 3 and not hasattr(session, "_variants")
    assert len(session.tried._profiles) == 4
    while session.undo():
        assert session.wait(TIMEOUT_S).variant.recipe == session.recipe
    assert [row.share for row in session.state.profile] == shares
    session.close()


def test_an_idle_session_has_no_thread():
    session = Session(small(), rounds=1, seconds=0.05)
    worker = session._worker.thread
    session.wait(TIMEOUT_S)
    assert worker is not None and has_ended(worker)
    session.choose("fold")
    assert session.wait(TIMEOUT_S).variant.recipe == lab.Recipe(["fold"])


def test_an_unreferenced_workbench_is_collected_with_all_its_parts():
    work = small()
    parts = []
    for _ in range(3):
        bench = bench_of(work)
        parts += parts_of(bench)
    del bench
    gc.collect()
    assert [part() for part in parts] == [None] * 12
    assert not workers()


def test_collecting_a_workbench_stops_its_busy_worker():
    bench = bench_of(small())
    measuring = threading.Event()
    bench.session.rounds, bench.session.seconds = 10**6, 1e6  # it would never end
    bench.session.observe(
        lambda state: measuring.set() if state.status == "measuring" and state.done else None
    )
    bench.recipe = lab.Recipe(["fold"])
    assert measuring.wait(TIMEOUT_S)
    worker, parts = bench.session._worker.thread, parts_of(bench)
    del bench
    gc.collect()
    assert has_ended(worker)
    gc.collect()
    assert [part() for part in parts] == [None] * 4


def test_a_shown_workbench_lives_until_its_cell_makes_the_next_one():
    work, other = small(), lab.Workload(nn.Linear(2, 2), images(2)[:, :1, :1, :2], name="small")
    bench = bench_of(work)
    bench._repr_mimebundle_()
    parts = parts_of(bench)
    del bench
    stranger = bench_of(other)
    gc.collect()
    assert all(part() is not None for part in parts), (
        "it is shown, and a workbench of another model does not close it"
    )
    bench = bench_of(work)
    gc.collect()
    assert [part() for part in parts] == [None] * 4
    bench.close(), stranger.close()


def test_a_workbench_with_another_name_stays_when_its_cell_is_run_again():
    work = small()
    bench = mine = bench_of(work)
    mine._repr_mimebundle_()
    bench = bench_of(work)
    gc.collect()
    mine.recipe = lab.Recipe(["fold"])
    assert mine.wait(TIMEOUT_S).variant.recipe == mine.recipe and not len(bench.recipe)
    assert mine.state["recipe"], "the shown state is updated"
    mine.close(), bench.close()


def test_a_cell_that_runs_again_in_ipython_ends_its_earlier_workbench(monkeypatch):
    shell, work = Shell(), small()
    monkeypatch.setattr(workbench, "notebook_shell", lambda: shell)

    def run_cell(number):
        bench = bench_of(work)
        bench._repr_mimebundle_()
        shell.execution_count = number + 1
        shell.displayhook.update_user_ns(bench)
        return parts_of(bench)

    parts = run_cell(1)
    gc.collect()
    assert all(part() is not None for part in parts)
    run_cell(2)
    gc.collect()
    assert [part() for part in parts] == [None] * 4
    assert shell.user_ns["_"] is shell.user_ns["_oh"][2], "the newest stays"
    shell.user_ns["_"].close()


def test_a_page_that_is_loaded_again_finds_an_earlier_workbench_until_it_is_collected():
    work = small()
    earlier = bench_of(work)
    earlier._repr_mimebundle_()
    bench, model_id = bench_of(work), earlier.model_id
    assert {model_id, bench.model_id} <= ipywidgets.Widget.get_manager_state()["state"].keys()
    del earlier
    gc.collect()
    assert model_id not in ipywidgets.Widget.get_manager_state()["state"]
    bench.close()


def test_a_closed_workbench_is_no_longer_held():
    bench = bench_of(small())
    bench._repr_mimebundle_()
    assert bench in workbench.held()
    bench.close()
    assert bench not in workbench.held()


def test_messages_of_the_page_reach_a_weakly_referenced_workbench():
    bench = bench_of(small())
    data = {"method": "update", "state": {"selected": "conv"}, "buffer_paths": []}
    bench.comm.handle_msg({"content": {"data": data}, "buffers": []})
    assert bench.selected == "conv"
    bench.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_inside_a_forward_is_reported_and_wait_returns(interrupted, error):
    session = Session(interrupted, rounds=1, seconds=0.05)
    assert session.wait(TIMEOUT_S).error is None
    Interrupted.error = error
    session.choose("fold")
    state = session.wait(TIMEOUT_S)
    assert (
        state.status == "idle"
        and f"interrupted while it ran ({type(error).__name__})" in state.error
    )
    Interrupted.error = None
    assert state.can_redo and session.redo()
    state = session.wait(TIMEOUT_S)
    assert state.error is None and state.variant.recipe == lab.Recipe(["fold"])
    session.close()


def test_an_interrupt_during_a_query_is_reported(interrupted):
    session = Session(interrupted, rounds=1, seconds=0.05)
    session.wait(TIMEOUT_S)
    Interrupted.error = KeyboardInterrupt()
    session.query("sensitivity", seconds=0.1)
    state = session.wait(TIMEOUT_S)
    assert state.status == "idle" and "interrupted while it ran" in state.error
    session.close()


def test_an_interrupt_of_the_first_profile_is_reported(interrupted):
    Interrupted.error = KeyboardInterrupt()
    session = Session(interrupted, rounds=1, seconds=0.05)
    state = session.wait(TIMEOUT_S)
    assert state.status == "idle" and "interrupted while it ran" in state.error
    session.close()


@pytest.fixture(scope="module")
def closed():
    session = Session(small(), rounds=1, seconds=0.05)
    session.choose("fold")
    session.wait(TIMEOUT_S)
    session.close()
    return session


@pytest.mark.parametrize(
    "act",
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
def test_a_closed_session_raises_at_once(act, closed):
    before = closed.state
    with pytest.raises(PaifuserError, match="The session of small is closed; make a new one"):
        act(closed)
    assert closed.wait(TIMEOUT_S) is before and not before.is_busy


def test_closing_ends_the_measurement_and_wait_returns():
    session = Session(small(), rounds=10**6, seconds=1e6)
    measuring = threading.Event()
    session.observe(lambda state: measuring.set() if state.status == "measuring" else None)
    assert measuring.wait(TIMEOUT_S)
    session.close()
    assert session.wait(TIMEOUT_S).status == "idle"


def test_a_new_choice_clears_the_redo_list():
    session = Session(small(), rounds=1, seconds=0.05)
    session.choose("fold")
    session.undo()
    session.choose("layout")
    assert not session.redo() and session.recipe == lab.Recipe(["layout"])
    assert not session.wait(TIMEOUT_S).can_redo
    session.close()


def test_setting_a_value_that_is_not_a_recipe_raises():
    bench = bench_of(small())
    for value, sentence in (
        ("fold", "A str is not a recipe; write lab.Recipe(['fold'])"),
        (["fold"], "A list is not a recipe; write lab.Recipe(['fold'])"),
        ({"fold": {}}, "A dict is not a recipe"),
        (None, "A NoneType is not a recipe"),
        ("x" * 300, "A str is not a recipe"),
    ):
        with pytest.raises(RecipeError, match=re.escape(sentence)):
            bench.recipe = value
        assert bench.recipe == lab.Recipe([])
    bench.close()


def test_a_workbench_of_a_bare_model_raises(capsys):
    with pytest.raises(
        WorkloadError,
        match=r"A Small is not a workload; wrap the model: lab\.Workload\(model, inputs\)",
    ):
        lab.Workbench(Small())
    gc.collect()
    assert not capsys.readouterr().err and not workers()


def test_closing_a_workbench_at_interpreter_exit_does_nothing(monkeypatch):
    """The globals that closing needs no longer exist then."""
    bench = lab.Workbench(lab.Workload(Small(), images(), name="small"), rounds=1, seconds=0.1)
    bench.wait(TIMEOUT_S)
    closed = []
    monkeypatch.setattr(bench.session, "close", lambda: closed.append(bench))
    bench.close(is_ending=lambda: True)
    assert not closed
    bench.__del__()  # as ipywidgets does when nothing refers to it
    assert closed
