"""Progress: a bar in notebooks and terminals, lines in logs, nothing in tests."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest

from paifuser_lab import progress as progress_module
from paifuser_lab.progress import is_static, progress


@pytest.fixture
def set_style(monkeypatch):
    return lambda style: monkeypatch.setenv("PAIFUSER_PROGRESS", style)


def test_lines_are_printed_a_few_seconds_apart(set_style, monkeypatch, capsys):
    set_style("lines")
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(clock))
    with progress("timing", 3) as shown:
        shown.advance(doing="the first")
        shown.advance(doing="the second")
        shown.advance()
    assert capsys.readouterr().err == "timing: 2 of 3 · the second\n"


def test_lines_of_work_without_a_known_end_count_alone(set_style, monkeypatch, capsys):
    set_style("lines")
    clock = iter([0.0, 6.0, 6.0])
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(clock))
    with progress("frames", None) as shown:
        shown.advance(8)
    assert capsys.readouterr().err == "frames: 8\n"


def test_style_none_prints_nothing(set_style, capsys):
    set_style("none")
    with progress("timing", 1) as shown:
        shown.advance(doing="the first")
    assert capsys.readouterr() == ("", "")


def test_a_bar_counts_to_its_total(set_style, capsys):
    set_style("bar")
    with progress("timing", 2) as shown:
        shown.advance(doing="the first")
        shown.advance(doing="the second")
    assert "timing" in capsys.readouterr().err


def test_a_bar_that_ends_early_is_filled_and_one_that_failed_is_not(set_style, monkeypatch):
    import tqdm.auto

    bars = []
    monkeypatch.setattr(
        tqdm.auto,
        "tqdm",
        lambda *args, **kwargs: bars.append(tqdm.tqdm(*args, **kwargs)) or bars[-1],
    )
    set_style("bar")
    with progress("timing", 30) as shown:
        shown.advance(11)
    with suppress(KeyError), progress("timing", 30) as shown:
        shown.advance(11)
        raise KeyError
    assert [bar.n == bar.total for bar in bars] == [True, False]


@pytest.mark.parametrize(("static", "style"), [("1", "lines"), ("", "bar")])
def test_in_a_notebook_there_is_a_bar_unless_widgets_are_left_out(
    set_style, monkeypatch, static, style
):
    set_style("auto")
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    monkeypatch.setenv("PAIFUSER_STATIC", static)
    assert is_static() == bool(static)
    assert progress_module._style() == style
