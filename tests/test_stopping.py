"""Stopping long work keeps its results."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

import paifuser_lab as lab
from paifuser_lab.cli import program
from paifuser_lab.errors import (
    StoppedError,
    keep_when_stopped,
    stop_if_asked,
    terminated_like_ctrl_c,
)

PACKAGE = Path(lab.__file__).parent
EDGES = {
    "cli/program.py",  # SIGTERM ends the JupyterLab that it started
    "cli/sweep.py",  # stops the processes of a sweep, and is one of them
    "errors.py",
    "training/run.py",  # reports the epoch and raises the interrupt again
}


@pytest.mark.parametrize("stop", [StoppedError("was stopped."), KeyboardInterrupt()])
def test_a_stop_and_ctrl_c_both_keep_results(stop):
    results = []
    with keep_when_stopped(lambda: bool(results)) as ending:
        results.append(1)
        raise stop
    assert ending.is_stopped and results == [1]
    with pytest.raises(type(stop)), keep_when_stopped(lambda: False):
        raise stop


def test_work_that_ends_by_itself_is_not_stopped():
    with keep_when_stopped() as ending:
        stop_if_asked(None)
        stop_if_asked(lambda: False)
    assert not ending.is_stopped
    with pytest.raises(ZeroDivisionError), keep_when_stopped():
        raise ZeroDivisionError


def test_a_stop_before_there_is_a_result_is_reported():
    with pytest.raises(StoppedError, match="before there was a result"):
        stop_if_asked(lambda: True)
    with pytest.raises(StoppedError, match="was stopped while it counted"):
        stop_if_asked(lambda: True, "was stopped while it counted.")


def test_only_the_edges_of_the_program_handle_the_interrupt():
    naming = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"(except|raise) .*KeyboardInterrupt", path.read_text(encoding="utf-8"))
    }
    assert naming <= EDGES


def test_a_command_that_is_terminated_keeps_its_results(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    results = []

    def work():
        with keep_when_stopped(lambda: bool(results)) as ending:
            results.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
            results.append(2)
        results.append(ending.is_stopped)

    monkeypatch.setattr(program, "app", work)
    program.main()
    assert results == [1, True] and signal.getsignal(signal.SIGTERM) == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_worker_that_is_terminated_just_ends():
    with terminated_like_ctrl_c():
        if (worker := os.fork()) == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 128 + signal.SIGTERM
