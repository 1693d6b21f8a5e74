"""Figures show the content of records, in both themes, without pyplot."""

from __future__ import annotations

import sys

import pytest
from matplotlib.text import Text

import paifuser_lab as lab
from paifuser_lab.records import (
    AccelerationStatus,
    Accelerator,
    Ceiling,
    Fusion,
    FusionMap,
    GenerationRow,
    Hardware,
    Record,
    ResultRow,
    Results,
    Speculation,
    SpeculationRow,
    SwitchStatus,
)
from paifuser_lab.records.generation import Phase
from paifuser_lab.views import (
    DRAWERS,
    acceleration,
    channels,
    comparison,
    fusion_map,
    generation,
    hardware,
    heat_scale,
    memory_fit,
    results,
)
from paifuser_lab.views.picture import NARROWEST_PAGE, WIDEST_NAME, Axis, text_width
from paifuser_lab.views.style import DARK, GROUPS, LIGHT
from tests.support.colours import contrast
from tests.support.drawn import ACCELERATION, COMPARISON, HARDWARE, RECORDS, renamed


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


def texts_of(drawing):
    return [text.get_text() for text in drawing.findobj(Text)]


def test_a_comparison_shows_what_was_timed_and_leaves_out_what_failed():
    words = texts_of(lab.figure(COMPARISON))
    assert {"baseline", "fold", "bf16"} <= set(words)
    assert "openvino" not in words
    assert any("1.90–2.10" in word for word in words)


def test_a_comparison_s_bars_have_the_colour_of_their_verdict_and_notes_stand_below():
    noted = COMPARISON.rows[1].model_copy(update={"notes": ("folded 20 layers",)})
    rows = (COMPARISON.rows[0], noted, *COMPARISON.rows[2:])
    drawn = comparison.picture(COMPARISON.model_copy(update={"rows": rows}))
    bars, spread, _ = drawn.panels[0].marks
    assert bars.tone[0] == "soft" and bars.tone[1] == COMPARISON.verdict(noted).tone == "good"
    assert list(bars.x2) == [row.latency_ms for row in rows if row.latency_ms is not None]
    assert (spread.x[1], spread.x2[1]) == noted.spread_ms
    assert drawn.items == ((noted.name, "folded 20 layers"),)
    assert drawn.tables[0].rows == COMPARISON.table()


def test_the_time_that_building_took_pays_after_so_many_calls_where_a_row_is_faster():
    rows = {row.name: row.model_copy(update={"build_s": 3.0}) for row in COMPARISON.rows}
    fold = rows["fold"].model_copy(update={"latency_ms": 2.0, "speedup": 2.0})
    built = COMPARISON.model_copy(update={"rows": tuple((rows | {"fold": fold}).values())})
    assert built["baseline"].latency_ms == 4 and built.pays_after(fold) == 1500
    assert built.pays_after(built["bf16"]) is None, "it is slower"
    assert built.pays_after(fold.model_copy(update={"build_s": None})) is None
    tips = comparison.picture(built).panels[0].marks[0].tips
    assert "built in 3 s · pays after 1500 calls" in tips.text(1)
    assert built.table()[1]["pays after calls"] == "1,500"


@pytest.mark.filterwarnings("error")  # of a layout that found no room
def test_long_notes_are_wrapped_and_leave_the_bars_their_room():
    note = "folded 20 batch-norm layers into quantized layers · " * 8
    rows = tuple(row.model_copy(update={"notes": (note,)}) for row in COMPARISON.rows)
    drawing = lab.figure(COMPARISON.model_copy(update={"rows": rows}))
    drawing.png()
    renderer = drawing.canvas.get_renderer()
    for text in drawing.findobj(Text):
        box = text.get_window_extent(renderer)
        assert not text.get_text() or 0 <= box.x0 < box.x1 <= drawing.bbox.width, text
    names = {row.name for row in rows}
    notes = next(text for text in drawing.findobj(Text) if "folded" in text.get_text())
    assert notes.get_text().count(" …") == len(names) and "\n" in notes.get_text()


@pytest.mark.parametrize("name", ["int8", "int8 in 14 layers + channels-last + fuse"])
def test_every_label_of_a_comparison_has_room_also_behind_the_longest_bar(name):
    slow = {"latency_ms": 112.3, "spread_ms": (90.0, 120.0), "speedup_interval": (0.1, 9.0)}
    rows = [row.model_copy(update=slow | {"name": name}) for row in COMPARISON.rows[1:2]]
    compared = COMPARISON.model_copy(update={"rows": (COMPARISON.rows[0], *rows)})
    drawing = lab.figure(compared)
    drawing.draw_without_rendering()
    texts = [text for text in drawing.findobj(Text) if text.get_text()]
    assert any("(unusable)" in text.get_text() for text in texts)
    boxes = [text.get_window_extent(drawing.canvas.get_renderer()) for text in texts]
    assert all(box.x0 >= 0 and box.x1 <= drawing.bbox.width for box in boxes)
    text = "112 ms · ≈ 1.00 × (unusable)"
    axis = Axis.beside([112.3], [text], [name], "ms")
    wide = NARROWEST_PAGE - text_width(name[:WIDEST_NAME])
    assert wide * 112.3 / axis.high + text_width(text) <= wide


def test_every_switch_has_its_state_its_speedup_and_its_reason():
    drawing, drawn = lab.figure(ACCELERATION), acceleration.picture(ACCELERATION)
    words = texts_of(drawing)
    for row in ACCELERATION.rows:
        assert row.name in words and row.state in words
        assert not row.why or f"{row.name}: {row.why}" in " ".join(words)
    assert {"2.10 × (1.90–2.20)", "0.80 × (0.70–1.02)", "1 ×"} <= set(words)
    _, bars, intervals, _, states = drawn.panels[0].marks
    assert len(set(states.shape)) == len({row.state for row in ACCELERATION.rows})
    assert list(zip(bars.x, bars.x2, strict=True))[:2] == [(1.0, 2.1), (0.8, 1.0)]
    assert (intervals.x[0], intervals.x2[0]) == (1.9, 2.2)
    assert drawn.panels[0].x.low < 1 / 2.2 and bars.tone[:2] == ["good", "bad"]
    assert lab.figure(AccelerationStatus(is_enabled=False)).png()


def test_what_is_said_of_a_loop_names_the_switches_in_force_and_those_that_are_judged():
    rows = (
        SwitchStatus(name="bf16", state="on"),
        SwitchStatus(name="threads", state="judging"),
        SwitchStatus(name="compile", state="waiting"),
    )
    status = AccelerationStatus(is_enabled=True, steps=40, rows=rows)
    spoken = acceleration.picture(status).spoken
    assert spoken.line == "Step 40: on bf16; judging threads"
    later = status.model_copy(update={"steps": 50})
    assert acceleration.picture(later).spoken.news == spoken.news
    ended = status.model_copy(update={"is_enabled": False})
    assert acceleration.picture(ended).spoken.line.endswith("after step 40 with bf16 on")


def test_a_machine_s_ceilings_are_bars_by_format_beside_its_memory_and_each_device_has_its_own():
    cpu = (
        Ceiling(threads=4, fp32_gflops=300, bandwidth_gbs=60),
        Ceiling(threads=1, fp32_gflops=90, bf16_gflops=200, bandwidth_gbs=20),
    )
    gpu = Accelerator(name="GPU", kind="cuda", memory_bytes=80_000_000_000,
                      ceiling=Ceiling(threads=1, fp32_gflops=5e4, int8_gops=1e6,
                                      bandwidth_gbs=3000))  # fmt: skip
    machine = Hardware(name="CPU", source="measured", physical_cores=4, logical_cores=8,
                       memory_bytes=64_000_000_000, caches_bytes={"L1": 32768, "L2": 2**20},
                       ceilings=cpu, accelerators=(gpu,))  # fmt: skip
    drawn = hardware.picture(machine)
    (rates, widths), (gpu_rates, _) = drawn.rows
    assert list(rates.y.names) == ["1 thread · fp32", "1 thread · bf16", "4 threads · fp32"]
    assert rates.marks[1].texts[1] == "200 · 2.2 ×" and list(widths.marks[0].x2) == [20, 60]
    assert list(gpu_rates.marks[0].x2) == [5e4, 1e6], "each device has a scale of its own"
    facts = [f"{fact.value} {fact.name}" for fact in drawn.facts]
    assert facts[0] == "4, 8 logical cores" and {"32 KiB L1 cache", "1 MiB L2 cache"} <= {*facts}


def test_what_a_limit_refused_is_no_dot_of_the_results():
    tried = RECORDS["Results"]
    refused = tried[1].model_copy(update={"number": 4, "refused": "too much is lost"})
    both = tried.model_copy(update={"rows": (*tried.rows, refused)})
    dots = [text.split(".")[0] for text in lab.figure(both).hover.values()]
    assert dots == ["0", "1", "2"]


def test_results_are_dots_by_speed_and_accuracy_below_a_line_that_nothing_beats():
    row = ResultRow(number=0, label="As it came", latency_ms=10.0, metric=0.9, relative_error=0.0)
    others = [
        row.model_copy(
            update={"number": number, "label": "a", "latency_ms": ms, "metric": worth,
                    "speedup": 10 / ms, "speedup_interval": (9 / ms, 11 / ms)}
        )
        for number, ms, worth in ((1, 5.0, 0.9), (2, 2.0, 0.8))
    ]  # fmt: skip
    tried = Results(workload="net", machine="m", metric_name="accuracy", current=2,
                    rows=(row, *others))  # fmt: skip
    (panel,) = results.scatter(tried).panels
    line, _, names, dots = panel.marks
    assert list(zip(line.x, line.y, strict=True))[:2] == [(2.0, 0.8), (5.0, 0.9)]
    assert line.x[-1] == panel.x.high, "nothing is better to the right"
    assert (list(dots.x), list(dots.y), list(dots.key)) == ([10, 5, 2], [0.9, 0.9, 0.8], [*"012"])
    assert dots.size[2] > dots.size[1] and dots.shape[0] == "ring"
    assert panel.y.names[-1].endswith(" %") and names.texts == [*"012"]
    even = tried.model_copy(update={"rows": (row, others[0])})
    (panel,) = results.scatter(even).panels
    assert panel.y.high - panel.y.low >= results.LEAST_SPAN, "rounding is no difference"
    same = row.model_copy(update={"number": 1})
    (panel,) = results.scatter(even.model_copy(update={"rows": (row, same)})).panels
    first, second = zip(panel.marks[2].across, panel.marks[2].up, strict=True)
    assert first != second, "the numbers of dots in one place stand beside each other"
    refused = others[1].model_copy(update={"refused": "too much is lost; more"})
    bars = results.picture(tried.model_copy(update={"rows": (row, refused)})).panels[0].marks
    assert bars[2].texts == ["10.0 ms", "refused: too much is lost"]
    assert bars[0].tone == ["soft", "soft"]


@pytest.mark.parametrize("is_less_better", [True, False])
def test_the_best_results_stand_on_top_where_a_smaller_metric_is_better(is_less_better):
    row = ResultRow(number=0, label="As it came", latency_ms=10.0, metric=24.0, relative_error=0.0)
    worse = row.model_copy(update={"number": 1, "latency_ms": 5.0, "metric": 30.0})
    tried = Results(workload="net", machine="m", metric_name="perplexity", rows=(row, worse),
                    smaller_is_better=is_less_better)  # fmt: skip
    (panel,) = results.scatter(tried).panels
    assert (panel.y.low > panel.y.high) == is_less_better
    assert (panel.y.share(24.0) > panel.y.share(30.0)) == is_less_better


@pytest.mark.parametrize(("limit", "is_drawn"), [(90, True), (100_000, False)])
def test_a_limit_is_a_line_where_it_is_near_and_named_where_it_is_not(limit, is_drawn):
    drawing = lab.figure(RECORDS["Fit"].model_copy(update={"limit_bytes": limit}))
    axes = drawing.axes[0]
    lines = [line for line in axes.lines if set(line.get_xdata()) == {limit}]
    assert bool(lines) == is_drawn and ("is beyond" in axes.get_xlabel()) != is_drawn
    verdicts = [text.get_text() for text in axes.texts]
    assert verdicts == ["100 B, too much" if is_drawn else "100 B, fits", "50 B, fits"]
    held, changes, _, *_ = memory_fit.picture(RECORDS["Fit"]).panels[0].marks
    assert list(held.x[1:]) == list(held.x2[:-1]) and held.x2[-1] == 100, "they stand in a row"
    assert len(set(held.tone)) == len(held.tone) and list(changes.x2) == [50]


def test_generated_texts_show_where_they_part_from_the_original_and_rates_the_verdict():
    compared = RECORDS["GenerationComparison"]
    made = generation.picture(compared)
    assert made.items == (
        ("the prompt", "Where?"),
        ("net · torch", "The ▸ cat sat"),
        ("int8-weights · llama.cpp", "The ▸ cow sat"),
    )
    tokens, prompts, sizes = (panel for (panel,) in made.rows)
    assert tokens.y.names == ("net · torch", "int8-weights · llama.cpp")  # what failed has no bar
    assert list(tokens.marks[0].x2) == [100, 200] and list(prompts.marks[0].x2) == [1000, 2000]
    assert list(tokens.marks[0].tone) == ["soft", "good"]
    assert list(tokens.marks[1].texts) == ["100", "200 · 2.00 ×"]
    assert "2,000" in prompts.x.names and list(prompts.marks[1].texts)[1] == "2,000 · 2.00 ×"
    slower = Phase(ms=9, tokens_per_s=900, speedup=0.9, interval=(0.85, 0.95))
    rows = compared.rows[0], compared.rows[1].model_copy(update={"prefill": slower})
    slow = generation.picture(compared.model_copy(update={"rows": rows}))
    assert [list(panel.marks[0].tone)[1] for (panel,) in slow.rows[:2]] == ["good", "bad"]
    rows = compared.rows[:1] * 2 + compared.rows[1:2]
    texts = generation.picture(compared.model_copy(update={"rows": rows})).items
    assert texts[1:] == (
        ("net · torch and 1 more", "The cat sat"),
        ("int8-weights · llama.cpp", "The ▸ cow sat"),
    )
    assert compared.rows[1].early_and_late == (200, 125)
    assert list(sizes.marks[0].x2) == [4000, 1000]
    assert list(sizes.marks[1].texts) == ["4 kB · perplexity 20.09", "1 kB · perplexity 22.20"]


def test_tokens_a_second_of_a_slow_model_keep_three_figures():
    slow = Phase(ms=413, tokens_per_s=1e3 / 413)
    row = GenerationRow(name="net", engine="torch", threads=1, prefill=slow, decode=slow,
                        pace=((1, 400.0), (2, 413.0), (3, 420.0)))  # fmt: skip
    compared = RECORDS["GenerationComparison"].model_copy(update={"rows": (row,)})
    (cells,) = compared.table()
    assert (cells["tokens/s"], cells["prompt tokens/s"]) == ("2.42", "2.42")
    assert cells["first → last third"] == "2.5 → 2.38"
    assert list(generation.picture(compared).panels[0].marks[1].texts) == ["2.42"]
    drafted = SpeculationRow(draft_tokens=0, drafted=0, accepted=0, calls=4, token_ms=413)
    guessed = Speculation(workload="net", draft="small", machine="m", prompt_tokens=8,
                          new_tokens=4, rounds=1, rows=(drafted,))  # fmt: skip
    assert guessed.table()[0]["tokens/s"] == "2.42"


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


def test_a_dark_page_replaces_no_colour_of_a_group_or_of_a_text_on_a_heat_map():
    inks = {heat_scale.ink_on(step, LIGHT) for step in range(len(heat_scale.RAMP))}
    assert len(set(GROUPS)) == 7 and len(inks) == 2
    assert not {*GROUPS, *inks} & set(LIGHT.variables)


FORMULA = "$x_{$"  # the beginning of one


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_name_is_neither_a_formula_nor_markup(record):
    named = renamed(record, f"{FORMULA}<script>")
    assert FORMULA in repr(named.model_dump())
    drawing = lab.figure(named)
    texts = [text for text in drawing.findobj(Text) if "x_{" in text.get_text()]
    assert drawing.png() and "<script" not in drawing.svg()
    assert not [text.get_text() for text in texts if text.get_parse_math()]


def test_the_legend_of_the_memory_figure_names_a_layer_with_a_dollar_sign():
    timeline = RECORDS["MemoryTimeline"]
    # built anew: a copy would keep cached properties of the old names
    named = type(timeline).model_validate(timeline.model_dump() | {"layers": (FORMULA,)})
    drawing = lab.figure(named)
    assert drawing.png() and FORMULA in drawing.svg()


def test_a_fusion_that_is_not_in_effect_is_outlined_and_one_without_times_has_its_reason():
    times = {"apart_ms": 0.4, "fused_ms": 0.5, "pattern": "convolution + relu"}
    sites = (
        Fusion(layers=("a.conv", "a.relu"), **times | {"fused_ms": 0.1}),
        Fusion(layers=("b.conv", "b.relu"), standing="slower", **times),
        Fusion(layers=("c", "d"), pattern="linear", standing="apart", reason="d is read twice"),
    )
    record = FusionMap(workload="net", machine="m", fusions=sites * 14, notes=("int8 stays.",))
    drawn = fusion_map.picture(record)
    apart, fused, idle, texts = drawn.panels[0].marks
    assert (fused.tone[0], fused.x2[0], fused.is_hollow) == ("good", 0.1, False)
    assert (idle.tone[0], idle.x2[0], idle.is_hollow) == ("bad", 0.5, True)
    assert apart.key[:2] == ["a.conv", "b.conv"] and len(apart.x) == 27  # of 40 shown
    assert texts.texts[:3] == ["0.4 → 0.1 ms · 4.00 ×", "0.4 → 0.5 ms · 0.80 × slower",
                               "d is read twice"]  # fmt: skip
    assert drawn.panels[0].y.names[0] == "a.conv + relu"
    assert drawn.sentence == "2 more places are left out. int8 stays."
    assert fusion_map.picture(record.model_copy(update={"fusions": ()})).rows == ()


def test_a_width_that_was_not_measured_has_the_latency_of_the_next_wider_one():
    made, read = channels.picture(RECORDS["Staircase"]).panels
    steps, dots, rings = made.marks
    assert steps.is_stepped and list(steps.x) == [32, 24, 16, 8]  # each goes on to the narrower
    assert list(dots.x) == [8, 16, 24, 32] and list(rings.x) == [16, 32] == list(made.x.ticks)
    assert list(rings.y) == [2.0, 3.8] and dots.tips.text(0) == "8 channels made\n2 ms"
    assert read.x.label == "channels read" and read.y.high == made.y.high
