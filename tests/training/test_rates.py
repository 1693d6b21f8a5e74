"""Learning rates react to the losses alone, and say why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paifuser_lab.training.rates import (
    HIGHEST_FACTOR,
    LOWEST,
    LOWEST_FACTOR,
    Adaptive,
    Plateau,
    reaction,
    scheduled_rate,
)

LOSSES = st.lists(st.one_of(st.floats(0.01, 10), st.just(math.nan)), max_size=200)


def fed(reacting, losses):
    for loss in losses:
        reacting.see(loss)
    return reacting


@given(LOSSES, st.sampled_from(["plateau", "adaptive"]), st.integers(0, 200))
def test_a_reaction_to_stored_losses_is_that_to_the_losses_as_they_came(losses, name, cut):
    as_they_came = fed(reaction(name, window=5), losses)
    resumed = fed(reaction(name, losses[:cut], window=5), losses[cut:])
    assert resumed.changes == as_they_came.changes and resumed.factor == as_they_came.factor
    assert LOWEST_FACTOR <= resumed.factor <= HIGHEST_FACTOR


@given(LOSSES)
def test_the_factor_of_the_rate_is_that_of_the_last_change(losses):
    adapted = reaction("adaptive", losses, window=5)
    assert adapted.factor == (adapted.changes[-1].factor if adapted.changes else 1.0)
    assert all(0 < change.step <= len(losses) and change.why for change in adapted.changes)


def test_the_warm_up_is_a_straight_line():
    rates = [scheduled_rate("one-cycle", 2.0, None, 0.3 * share) for share in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([2 * LOWEST, 1 + LOWEST, 2.0])


def test_without_a_name_no_loss_changes_the_rate():
    assert reaction(None, [5.0, math.nan, *[9.0] * 500], window=5).factor == 1.0


def test_a_plateau_halves_the_rate_once_for_each_spell_without_a_new_lowest_loss():
    plateau = fed(Plateau(window=2, patience=3), [4, 4, 3, 3, 2, 2])
    assert plateau.factor == 1.0
    fed(plateau, [2] * 6)
    assert plateau.factor == 0.5
    assert plateau.changes[0].step == 12
    assert plateau.changes[0].why == "the mean loss has not fallen below 2 in 6 steps"
    fed(plateau, [2] * 6)
    assert plateau.factor == 0.25


def test_a_new_lowest_loss_starts_the_patience_of_a_plateau_again():
    plateau = fed(Plateau(window=2, patience=3), [4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3])
    assert plateau.factor == 1.0


def test_a_plateau_compares_with_the_lowest_loss_of_all():
    plateau = fed(Plateau(window=2, patience=3), [1, 1, 3, 3, 2, 2, 3, 3])
    assert [change.step for change in plateau.changes] == [8]


def test_a_loss_that_is_not_finite_halves_the_adaptive_rate_at_once():
    adaptive = fed(Adaptive(window=5), [1.0, 1.1, math.nan])
    assert (
        adaptive.changes[-1][:2] == (3, 0.5) and adaptive.changes[-1].why == "the loss became nan"
    )


@pytest.mark.parametrize("window", [1, 2])
def test_a_window_with_less_than_two_finite_losses_calls_for_nothing_more(window):
    changes = reaction("adaptive", [1.0, math.nan, 1.0, math.inf], window).changes
    assert [change.step for change in changes] == [2, 4]


def test_a_rise_beyond_the_noise_halves_the_adaptive_rate_and_noise_does_not():
    quiet = fed(Adaptive(window=4), [1.0, 1.1, 0.9, 1.0, 1.05, 1.1, 0.95, 1.0])
    rising = fed(Adaptive(window=4), [1.0, 1.1, 0.9, 1.0, 2.0, 2.1, 1.9, 2.0])
    assert quiet.factor == 1.0 and rising.factor == 0.5
    assert rising.changes[0].why == "the mean loss rose from 1 to 2"


def test_a_loss_that_falls_steadily_raises_the_adaptive_rate_and_one_that_stays_lowers_it():
    falling, staying = Adaptive(window=4), Adaptive(window=4)
    for window in range(5):
        for noise in (0.0, 0.01, -0.01, 0.0):
            falling.see(5.0 - window + noise)
            staying.see(5.0 + noise)
    assert falling.factor == pytest.approx(1.2) and "fell" in falling.changes[0].why
    assert staying.factor == 0.5 and "stayed at 5" in staying.changes[0].why


def test_a_fall_within_the_noise_never_raises_the_adaptive_rate():
    noisy = Adaptive(window=2)
    for window in range(5):
        noisy.see(1.0 - 0.01 * window)
        noisy.see(1.2 - 0.01 * window)
    assert [change.factor for change in noisy.changes] == [0.5]
