"""How quiet the machine was, in a state and in words, and the verdict that it allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paifuser_lab.records import BusyProcess, Quality, verdict
from paifuser_lab.records.quality import MARGIN
from paifuser_lab.records.text import readable_ratio


@pytest.mark.parametrize(
    ("figures", "state"),
    [
        ({}, "quiet"),
        ({"others_share": 0.1, "waited_share": 0.05, "spread": 0.25, "rows_share": 0.9}, "quiet"),
        ({"others_share": 0.11}, "busy"),
        ({"waited_share": 0.06}, "busy"),
        ({"spread": 0.3}, "busy"),
        ({"sleeps": 1.6}, "quiet"),
        ({"sleeps": 36.4}, "busy"),
        ({"rows_share": 0.71}, "busy"),
        ({"rows_share": 1.2}, "busy"),
        ({"clock_share": 0.8}, "busy"),
        ({"clock_share": 0.6}, "unusable"),
        ({"is_hopeless": True}, "unusable"),
    ],
)
def test_one_figure_beyond_its_limit_makes_a_machine_busy(figures, state):
    quality = Quality(**figures)
    assert quality.state == state and quality.is_quiet is (state == "quiet")
    assert bool(quality.sentence) is not quality.is_quiet


def test_a_busy_machine_says_why_and_who_and_what_to_do():
    quality = Quality(
        others_share=0.46,
        spread=0.612,
        rows_share=0.99,
        busiest=(BusyProcess(name="python, 2 processes", cores=0.7),),
    )
    assert quality.sentence == (
        "the machine was busy (others took 46%, rounds agree within ± 61%; python, 2 processes), "
        "so sizes are rough and small differences are not told: wait until the machine is quiet, "
        "then measure again"
    )
    assert quality.reasons == (
        ("others took", "46%"),
        ("rounds agree within", "± 61%"),
        ("layers add up to", "99%"),
    )


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ((4.5, 0.9, 5.0, (4.3, 5.4)), "4.50 → 0.900 ms · 5.0 × faster · likely 4.3–5.4"),
        ((4.0, 8.0, 0.5, (0.4, 0.625)), "4.00 → 8.00 ms · 2.0 × slower · likely 1.6–2.5"),
        ((4.0, 4.0, 1.0, (0.95, 1.04)), "4.00 → 4.00 ms · no difference · likely 0.95–1.04 ×"),
        (
            (4.0, 3.0, 1.25, (0.4, 2.2)),
            "4.00 → 3.20 ms · cannot be told: 0.40–2.20 ×, too uncertain",
        ),
        ((None, 3.0, None, None), "3.00 ms"),
        ((4.0, None, None, None), "not measured"),
    ],
)
def test_the_sentence_of_a_verdict(figures, sentence):
    assert verdict(*figures).sentence == sentence


BUSY = Quality(others_share=0.5)


@pytest.mark.parametrize(
    ("speedup", "interval", "effect", "tone"),
    [
        (4.9, (4.3, 5.4), "≈ 4.9 × faster · likely 4.3–5.4", "good"),
        (0.5, (0.4, 0.625), "≈ 2.0 × slower · likely 1.6–2.5", "bad"),
        (5.6, (1.33, 49.0), "≈ 5.6 × faster · likely over 1.3", "good"),
        (1.3, (1.2, 1.4), "cannot be told: 1.20–1.40 ×, measured on a busy machine", "untold"),
        (0.9, (0.85, 0.95), "cannot be told: 0.85–0.95 ×, measured on a busy machine", "untold"),
        (1.0, (0.95, 1.04), "cannot be told: 0.95–1.04 ×, measured on a busy machine", "untold"),
        (1.1, (0.0, 99550383697.31), "cannot be told: too uncertain", "untold"),
    ],
)
def test_a_busy_machine_tells_what_is_beyond_a_margin_and_no_size(speedup, interval, effect, tone):
    told = verdict(4.5, 4.5 / speedup, speedup, interval, BUSY)
    assert told.sentence.partition(" ms · ")[2] == effect and told.tone == tone


def test_an_unusable_machine_tells_nothing():
    assert verdict(4.5, 0.9, 4.9, (4.3, 5.4), Quality(clock_share=0.5)).word == "not told"


def test_calls_that_slept_are_named_only_beside_a_second_pool():
    assert Quality(sleeps=1.6).reasons == ()
    assert Quality(sleeps=36.4).disturbances == ("each call slept 36 times",)


@given(low=st.floats(0.05, 20), width=st.floats(0, 20), others=st.none() | st.floats(0, 1))
def test_a_verdict_needs_an_interval_without_1_and_on_a_busy_machine_a_margin(low, width, others):
    interval = (low, low + width)
    quality = None if others is None else Quality(others_share=others)
    word = verdict(1.0, 1.0, low + width / 2, interval, quality).word
    margin = 1 if quality is None or quality.is_quiet else MARGIN
    if word in ("faster", "slower"):
        assert (low > margin) if word == "faster" else (low + width < 1 / margin)
    if margin > 1:
        assert word != "no difference"


def test_a_speed_up_has_as_many_decimals_as_it_deserves():
    assert [readable_ratio(value) for value in (0.62, 1.311, 4.87, 11.12, 240.4)] == [
        "0.62", "1.31", "4.9", "11.1", "240",
    ]  # fmt: skip


def test_a_single_round_gives_no_verdict():
    told = verdict(1.02, 1.0, 1.02, (1.02, 1.02), Quality(others_share=0.0))
    assert (told.word, told.tone) == ("not told", "untold")
    assert told.sentence.endswith("cannot be told: 1.02 ×, of a single round")
