"""Progress: a bar in notebooks and terminals, lines in logs, nothing in tests."""

from __future__ import annotations

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
    import tqdm

    bars, real = [], tqdm.tqdm
    monkeypatch.setattr(
        tqdm, "tqdm", lambda *args, **kwargs: bars.append(real(*args, **kwargs)) or bars[-1]
    )
    set_style("bar")
    with progress("timing", 30) as shown:
        shown.advance(11)
    with suppress(KeyError), progress("timing", 30) as shown:
        shown.advance(11)
        raise KeyError
    assert [bar.n == bar.total for bar in bars] == [True, False]


def test_a_bar_in_a_cell_is_no_widget_and_leaves_nothing_when_it_is_over(set_style, monkeypatch):
    import IPython.display

    shown = []

    class Handle:
        def update(self, data, *, raw):
            shown.append(data)

    def display(data, *, raw, display_id):
        shown.append(data)
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(progress_module, "DRAW_EVERY_S", -1)
    monkeypatch.setattr(progress_module, "_is_in_kernel", lambda: True)
    set_style("bar")
    with suppress(KeyError), progress("timing <b>", 4) as bar:
        bar.advance(2, doing="the first")
        raise KeyError
    before, during, after = shown
    assert "0/4" in before["text/plain"] and after == {}
    assert 'value="2" max="4"' in during["text/html"] and "the first" in during["text/html"]
    assert "&lt;b&gt;" in during["text/html"] and set(during) == {"text/plain", "text/html"}
    with progress("frames", None) as bar:
        bar.advance(8)
    assert "frames: 8" in shown[-2]["text/plain"] and "value" not in shown[-2]["text/html"]


@pytest.mark.parametrize(("static", "style"), [("1", "lines"), ("", "bar")])
def test_in_a_notebook_there_is_a_bar_unless_widgets_are_left_out(
    set_style, monkeypatch, static, style
):
    set_style("auto")
    monkeypatch.setattr(progress_module, "_is_in_kernel", lambda: True)
    monkeypatch.setenv("PAIFUSER_STATIC", static)
    assert is_static() == bool(static)
    assert progress_module._style() == style
