"""Whether losses are still those of a reference."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from paifuser_lab.accelerate.race import WINDOW, LossWatch, leaves_band

NOISE = st.lists(st.floats(-1, 1), min_size=8, max_size=30)


@given(NOISE, st.floats(0.1, 10))
def test_the_same_losses_in_another_order_never_leave_the_band(noise, level):
    reference = [level + 0.1 * level * value for value in noise]
    assert not leaves_band(reference, sorted(reference))


@given(NOISE, st.floats(0.1, 10))
def test_losses_far_above_the_reference_leave_it_and_lower_ones_never_do(noise, level):
    reference = [level + 0.1 * level * value for value in noise]
    spread = max(reference) - min(reference)
    assert leaves_band(reference, [level + 7 * spread + 0.5 * level] * 5)
    assert not leaves_band(reference, [value / 2 for value in reference])


def test_a_loss_that_is_not_finite_leaves_any_band():
    assert leaves_band([], [math.nan]) and leaves_band([1.0] * 9, [1.0, math.inf])


def test_few_losses_are_no_evidence():
    assert not leaves_band([1.0] * 3, [9.0] * 9) and not leaves_band([1.0] * 9, [9.0] * 3)


def fed(losses) -> list[str]:
    watch = LossWatch()
    return [why for loss in losses if (why := watch.see(loss))]


def test_a_falling_loss_with_noise_is_never_reported():
    chance = random.Random(0)
    assert not fed(2 / (1 + step / 50) + 0.2 * chance.gauss(0, 1) for step in range(600))


def test_a_loss_that_climbs_and_stays_high_is_reported_with_both_levels():
    reasons = fed([1.0 + 0.01 * (step % 5) for step in range(64)] + [2.0] * 3 * WINDOW)
    assert reasons == ["the loss left its band (2 after 1.02)"]


def test_one_bad_window_is_not_enough_and_a_nan_is():
    calm = [1.0 + 0.01 * (step % 5) for step in range(64)]
    assert not fed([*calm, *[3.0] * WINDOW, *calm])
    assert fed([*calm, math.nan]) == ["the loss became nan"]
