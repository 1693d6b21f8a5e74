"""Figures show the content of records, in both themes, without pyplot."""

from __future__ import annotations

import sys

import pytest
from matplotlib.text import Text

import paifuser_lab as lab
from paifuser_lab.records import AccelerationStatus, Record
from paifuser_lab.views import DRAWERS
from paifuser_lab.views.style import DARK, LIGHT
from tests.support.colours import contrast
from tests.support.drawn import ACCELERATION, COMPARISON, HARDWARE, NAMES, RECORDS


def test_every_drawer_has_a_record_here():
    assert set(DRAWERS) == set(RECORDS)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_is_drawn_in_both_themes(record, dark):
    drawing = lab.figure(record, dark=dark)
    assert drawing.png().startswith(b"\x89PNG")
    assert drawing.get_facecolor()[:3] == pytest.approx(
        tuple(int((DARK if dark else LIGHT).paper[i : i + 2], 16) / 255 for i in (1, 3, 5))
    )


def test_a_figure_follows_the_theme_of_the_notebook_and_is_a_plain_picture_in_static_mode(
    monkeypatch,
):
    shown = lab.figure(HARDWARE)._repr_mimebundle_()
    assert shown["text/html"].count("<img") == 2
    assert "data-jp-theme-light" in shown["text/html"]
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    assert set(lab.figure(HARDWARE)._repr_mimebundle_()) == {"image/png", "text/plain"}


def test_text_from_a_model_is_never_markup():
    named = COMPARISON.model_copy(update={"workload": "<script>alert(1)</script>"})
    assert "<script" not in lab.figure(named)._repr_mimebundle_()["text/html"]


def test_a_comparison_shows_what_was_timed_and_leaves_out_what_failed():
    words = [text.get_text() for text in lab.figure(COMPARISON).axes[0].texts]
    assert {"baseline", "fold", "bf16"} <= set(words)
    assert "openvino" not in words
    assert any("1.90–2.10" in word for word in words)


def test_every_switch_has_its_state_in_words_its_speedup_and_its_reason_beside_it():
    axes = lab.figure(ACCELERATION).axes[0]
    words = [text.get_text() for text in axes.texts]
    for row in ACCELERATION.rows:
        assert row.name in words and row.state in words
        assert row.why[:20] in " ".join(words)
    assert {"2.10 × (1.90–2.20)", "0.80 × (0.70–1.02)", "1 ×"} <= set(words)
    markers = {line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1}
    assert {"o", "x", "D", "_"} <= markers, "a state is told by its shape as well"
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    (one, faster), (also_one, slower), _ = spans
    assert one == also_one and slower < one < faster, "bars begin at 1 ×"
    assert lab.figure(AccelerationStatus(is_enabled=False)).png()


def test_what_a_limit_refused_is_no_dot_of_the_results():
    results = RECORDS["Results"]
    refused = results[1].model_copy(update={"number": 4, "refused": "too much is lost"})
    both = results.model_copy(update={"rows": (*results.rows, refused)})
    dots = [text.split(".")[0] for text in lab.figure(both).hover.values()]
    assert dots == ["0", "1", "2"]


@pytest.mark.parametrize(("limit", "is_drawn"), [(90, True), (100_000, False)])
def test_a_limit_is_a_line_where_it_is_near_and_named_where_it_is_not(limit, is_drawn):
    drawing = lab.figure(RECORDS["Fit"].model_copy(update={"limit_bytes": limit}))
    axes = drawing.axes[0]
    lines = [line for line in axes.lines if set(line.get_xdata()) == {limit}]
    assert bool(lines) == is_drawn and ("is beyond" in axes.get_xlabel()) != is_drawn
    verdicts = [text.get_text() for text in axes.texts]
    assert verdicts == ["100 B, too much" if is_drawn else "100 B, fits", "50 B, fits"]


def test_a_record_without_a_drawing_is_named():
    class Unknown(Record):
        ms: float

    with pytest.raises(TypeError, match="no drawing of a Unknown"):
        lab.figure(Unknown(ms=1.0))
    del Record.kinds["Unknown"]


def test_pyplot_is_not_imported():
    lab.figure(HARDWARE)
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_of_text_and_marks_stands_out_from_the_paper(theme):
    assert contrast(theme.ink, theme.paper) > 7
    assert all(
        contrast(colour, theme.paper) > 3
        for colour in (theme.faint, theme.main, theme.good, theme.bad)
    )


FORMULA = "$x_{$"


def with_formula(value, key=""):
    """A record's data with the beginning of a formula in every name."""
    if isinstance(value, dict):
        return {name: with_formula(inner, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_formula(item, key) for item in value]
    return f"{value}{FORMULA}" if isinstance(value, str) and value and key in NAMES else value


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_dollar_sign_in_a_name_is_not_a_formula(record):
    named = type(record).model_validate(with_formula(record.model_dump()))
    assert FORMULA in repr(named.model_dump())
    drawing = lab.figure(named)
    texts = [text for text in drawing.findobj(Text) if "x_{" in text.get_text()]
    assert drawing.png() and drawing.svg()
    assert not [text.get_text() for text in texts if text.get_parse_math()]


def test_the_legend_of_the_memory_figure_names_a_layer_with_a_dollar_sign():
    timeline = RECORDS["MemoryTimeline"]
    # built anew: a copy would keep cached properties of the old names
    named = type(timeline).model_validate(timeline.model_dump() | {"layers": (FORMULA,)})
    drawing = lab.figure(named)
    assert drawing.png() and FORMULA in drawing.svg()
