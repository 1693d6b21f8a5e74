"""Progress suits where it runs: a bar for a person, lines for a log, silence for a test."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest

from paifuser_lab import progress as seam
from paifuser_lab.progress import is_static, progress


@pytest.fixture
def chosen(monkeypatch):
    return lambda style: monkeypatch.setenv("PAIFUSER_PROGRESS", style)


def test_lines_are_said_a_few_seconds_apart(chosen, monkeypatch, capsys):
    chosen("lines")
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    monkeypatch.setattr(seam.time, "monotonic", lambda: next(clock))
    with progress("timing", 3) as shown:
        shown.advance(doing="the first")
        shown.advance(doing="the second")
        shown.advance()
    assert capsys.readouterr().err == "timing: 2 of 3 · the second\n"


def test_silence_says_nothing(chosen, capsys):
    chosen("none")
    with progress("timing", 1) as shown:
        shown.advance(doing="it")
    assert capsys.readouterr() == ("", "")


def test_a_bar_counts_to_its_total(chosen, capsys):
    chosen("bar")
    with progress("timing", 2) as shown:
        shown.advance(doing="the first")
        shown.advance(doing="the second")
    assert "timing" in capsys.readouterr().err


def test_a_bar_that_ends_early_is_done_and_one_that_failed_is_not(chosen, monkeypatch):
    import tqdm.auto

    made = []
    monkeypatch.setattr(
        tqdm.auto,
        "tqdm",
        lambda *given, **named: made.append(tqdm.tqdm(*given, **named)) or made[-1],
    )
    chosen("bar")
    with progress("timing", 30) as shown:
        shown.advance(11)
    with suppress(KeyError), progress("timing", 30) as shown:
        shown.advance(11)
        raise KeyError
    assert [bar.n == bar.total for bar in made] == [True, False]


@pytest.mark.parametrize(("static", "style"), [("1", "lines"), ("", "bar")])
def test_in_a_notebook_there_is_a_bar_unless_widgets_are_left_out(
    chosen, monkeypatch, static, style
):
    chosen("auto")
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    monkeypatch.setenv("PAIFUSER_STATIC", static)
    assert is_static() == bool(static)
    assert seam._style() == style
