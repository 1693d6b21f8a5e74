"""Decisions by given figures: no clock, no loop."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.accelerate.judge import BUDGET, FIRST_STEPS, Judge
from paifuser_lab.accelerate.meter import Moment, OpenBlock
from paifuser_lab.accelerate.race import PLAIN, Block, Offer, Race, Way
from tests.support.training_loops import product

STEPS = 10**6  # of a loop in which judging may cost what it likes
CORE = (Offer("bf16", is_exact=False), Offer("channels_last"))
COSTS = st.floats(0.3, 3.0)


def judged(judge: Judge, cost, *, noise: float = 0.01, losses=lambda way: (), steps: int = 2000):
    """Run the judge with steps that cost so much; the way in which each block ran."""
    chance, done, ways = random.Random(0), 0, []
    while done < steps:
        if (way := judge.next_way(done)) is None:
            if not judge.is_waiting(done):
                break
            done += 1  # the loop goes on
            continue
        seconds = [cost(way) * (1 + noise * chance.uniform(-1, 1)) for _ in range(3)]
        changed = bool(ways) and ways[-1] != way
        done += len(seconds) + changed
        ways.append(way)
        judge.add(
            Block(way, tuple(seconds), tuple(losses(way)), cost(way) if changed else 0.0), done
        )
    return ways


@settings(max_examples=15, deadline=None)
@given(st.tuples(COSTS, COSTS, COSTS))
def test_the_best_combination_is_found_within_five_percent(figures):
    costs = dict(
        zip((("bf16",), ("channels_last",), ("bf16", "channels_last")), figures, strict=True)
    )
    cost = lambda way: costs.get(tuple(sorted(way)), 1.0)
    judge = Judge(CORE)
    judged(judge, cost)
    # judging may end early where it has cost too much
    assert judge.is_spent(0) or cost(judge.best) <= 1.05 * min(1.0, *figures)


@settings(max_examples=12, deadline=None)
@given(st.lists(COSTS, min_size=3, max_size=3), st.integers(0, 5))
def test_what_is_kept_is_never_slower_than_nothing_and_judging_keeps_its_budget(figures, seed):
    names = ("bf16", "channels_last", "memory_pool")
    cost = product(dict(zip(names, figures, strict=True)))
    judge = Judge(CORE, [[Offer("memory_pool")]])
    judged(judge, cost, noise=0.02)
    assert cost(judge.best) <= 1.02
    # one block may pass the line: its steps in the slowest way there is
    most = 4 * max(1.0, *(cost(frozenset(way)) for way in (names, names[:2], *zip(names))))
    assert judge.spent_steps <= BUDGET * FIRST_STEPS + most


def test_a_switch_that_changes_nothing_is_taken_back():
    judge = Judge((), [[Offer("memory_pool")]])
    judged(judge, lambda way: 1.0)
    assert judge.best == PLAIN
    verdict = judge.verdicts["memory_pool"]
    assert not verdict.is_kept and verdict.why == "not faster by more than its interval"
    assert verdict.interval[0] < 1 < verdict.interval[1]


def test_a_combination_keeps_only_the_switches_that_help_in_it():
    judge = Judge(CORE)
    costs = {PLAIN: 1.0, frozenset({"bf16"}): 0.95, frozenset({"channels_last"}): 0.6,
             frozenset({"bf16", "channels_last"}): 0.6}  # fmt: skip
    judged(judge, costs.__getitem__)
    assert judge.best == {"channels_last"}
    assert judge.verdicts["channels_last"].is_kept and not judge.verdicts["bf16"].is_kept


def test_later_switches_are_judged_on_top_of_the_best_so_far():
    judge = Judge(CORE, [[Offer("fused_optimizer")], [Offer("threads=2")]])
    cost = product({"bf16": 0.6, "channels_last": 1.2, "fused_optimizer": 0.8, "threads=2": 1.3})
    ways = judged(judge, cost)
    assert judge.best == {"bf16", "fused_optimizer"}
    assert frozenset({"bf16", "fused_optimizer", "threads=2"}) in ways
    assert frozenset({"threads=2"}) not in ways
    assert judge.verdicts["fused_optimizer"].ratio == pytest.approx(1 / 0.8, rel=0.03)
    assert judge.verdicts["fused_optimizer"].why.endswith("beside bf16")


def test_of_switches_that_exclude_each_other_one_is_kept():
    judge = Judge((), [[Offer("threads=2"), Offer("threads=4")]])
    judged(judge, product({"threads=2": 0.8, "threads=4": 0.6}))
    assert judge.best == {"threads=4"}


def test_a_switch_that_saves_memory_stays_while_it_costs_next_to_nothing():
    for cost, is_kept in ((1.01, True), (1.1, False)):
        judge = Judge((), [[Offer("memory_reuse", saves_memory=True)]])
        judged(judge, product({"memory_reuse": cost}), noise=0.001)
        assert judge.verdicts["memory_reuse"].is_kept is is_kept


@pytest.mark.parametrize(
    ("peaks", "why"),
    [
        ((120, 60), "less memory, and hardly slower"),
        ((120, 120), "hardly slower; no lower peak was measured"),
        ((120, None), "hardly slower; no lower peak was measured"),
        ((None, None), "hardly slower; no lower peak was measured"),
    ],
)
def test_less_memory_is_said_of_a_switch_whose_peak_was_measured_to_be_lower(peaks, why):
    judge = Judge((), [[Offer("memory_reuse", saves_memory=True)]])
    while (way := judge.next_way(STEPS)) is not None:
        judge.add(Block(way, (1.0,) * 3, peak_bytes=peaks[bool(way)]), 10**6)
    verdict = judge.verdicts["memory_reuse"]
    assert verdict.is_kept and verdict.why == why


def test_a_way_that_is_hopeless_at_once_is_not_run_again():
    judge = Judge((), [[Offer("threads=2")]])
    ways = judged(judge, product({"threads=2": 4.0}))
    assert ways.count(frozenset({"threads=2"})) == 1
    assert "4.0 times slower at once" in judge.verdicts["threads=2"].why


def test_a_switch_whose_losses_leave_the_band_is_taken_back_however_fast():
    judge = Judge(CORE)
    losses = lambda way: (0.9, 0.95, 0.92) if "bf16" in way else (0.5, 0.48, 0.52)
    judged(judge, product({"bf16": 0.4, "channels_last": 0.9}), losses=losses)
    assert judge.best == {"channels_last"}
    assert (
        "the loss left the band of the reference (0.92 against 0.5)" in judge.verdicts["bf16"].why
    )


def test_losses_of_exact_switches_are_not_held_against_them():
    judge = Judge((), [[Offer("channels_last")]])
    losses = lambda way: (0.9, 0.95, 0.92) if way else (0.5, 0.48, 0.52)
    judged(judge, product({"channels_last": 0.6}), losses=losses)
    assert judge.best == {"channels_last"}


def test_judging_that_has_cost_a_tenth_of_the_first_steps_goes_on_once_the_loop_has_paid_for_it():
    judge, rest = Judge((), [[Offer("a")], [Offer("b")]]), frozenset({"a"})
    assert judge.next_way(2) == PLAIN
    judge.add(Block(PLAIN, (1.0,) * 3), 5)
    judge.add(Block(rest, (0.8,) * 3, warm_s=31.0), 9)
    assert judge.is_spent(9) and judge.spent_steps == 30
    assert judge.next_way(9) is None and judge.best == PLAIN and not judge.verdicts
    assert judge.names_waiting == {"b"}
    # 30 steps have been spent, and another round costs as much
    assert judge.goes_on_at == 600
    assert judge.next_way(599) is None and judge.next_way(600) == PLAIN
    judged(judge, product({"a": 0.8, "b": 1.1}))
    assert judge.best == {"a"} and judge.verdicts["a"].is_kept
    assert judge.verdicts["b"].why == "slower beside a"


def test_the_first_switch_s_price_keeps_no_other_one_from_being_judged():
    costs = product({"bf16": 6.6, "channels_last": 0.75})
    judge = Judge(CORE, [[Offer("fused_optimizer")], [Offer("memory_pool")]])
    ways = judged(judge, costs, noise=0.02, steps=600)
    assert judge.best == {"channels_last"} and not judge.names_waiting and judge.race is None
    assert all(
        verdict.ratio or "times slower at once" in verdict.why
        for verdict in judge.verdicts.values()
    )
    assert judge.spent_steps < BUDGET * 600
    # what is dearest, lower precision, comes last, and is not tried again beside another switch
    assert [way for way in ways if way][:2] == [frozenset({"channels_last"}), frozenset({"bf16"})]
    assert len([way for way in ways if "bf16" in way]) == 1


def test_a_way_that_is_slower_but_not_ruinous_may_yet_win_beside_another_switch():
    costs = {PLAIN: 1.0, frozenset({"bf16"}): 2.0, frozenset({"channels_last"}): 1.0,
             frozenset({"bf16", "channels_last"}): 0.5}  # fmt: skip
    judge = Judge(CORE)
    judged(judge, costs.__getitem__)
    assert judge.best == {"bf16", "channels_last"}


def test_what_is_proven_is_in_force_while_the_rest_waits():
    judge = Judge(CORE)
    costs = product({"bf16": 1.3, "channels_last": 0.75})
    done = 0
    while not judge.is_waiting(done):
        way = judge.next_way(done)
        done += 4
        judge.add(Block(way, (costs(way),) * 3, warm_s=1.0 + 4 * ("bf16" in way)), done)
    assert judge.race is not None and judge.best == {"channels_last"}


def test_a_round_that_was_left_is_run_anew_from_its_reference():
    offers = {"a": Offer("a")}
    rest = frozenset({"a"})
    race = Race([PLAIN, rest], offers)
    for way in (PLAIN, rest, rest):  # the second round begins with the other way
        assert race.next_way() == way
        race.add(Block(way, (1.0,) * 3))
    race.leave_round()
    assert race.next_way() == PLAIN
    assert len(race.blocks[rest]) == 1
    race.add(Block(PLAIN, (5.0,) * 3))  # the loop is another one by now
    race.add(Block(rest, (5.0,) * 3))
    assert race.compared(PLAIN, rest)[0] == 1 and not race.dropped


def test_a_slow_step_ends_a_block_only_where_the_one_before_was_slow_too():
    rest = frozenset({"a"})
    race = Race([PLAIN, rest], {"a": Offer("a")})
    race.add(Block(PLAIN, (1.0,) * 3))
    for warm, is_over in ((1.0, False), (6.6, True)):
        block = OpenBlock(rest, needs_warm_up=True, is_wall=True)
        block.add(Moment(warm, warm), [])
        assert not block.is_over(race)
        block.add(Moment(6.6, 6.6), [])
        assert block.is_over(race) is is_over


def test_a_switch_that_fails_takes_every_way_with_it_out_of_the_race():
    judge = Judge(CORE)
    judge.next_way(STEPS)
    judge.fail(frozenset({"channels_last"}), "the model fails with it (view)")
    ways = judged(judge, product({"bf16": 0.7, "channels_last": 0.1}))
    assert judge.best == {"bf16"} and not any("channels_last" in way for way in ways)
    assert judge.verdicts["channels_last"].why.startswith("the model fails with it (view)")


def test_what_is_withdrawn_during_its_race_or_before_it_is_never_tried_again():
    judge = Judge(CORE, [[Offer("memory_pool")]])
    judge.next_way(STEPS)
    judge.withdraw(["bf16", "memory_pool"], "turned off")
    ways = judged(judge, product({"bf16": 0.1, "channels_last": 0.7, "memory_pool": 0.1}))
    assert {name for way in ways for name in way} == {"channels_last"} == judge.best
    assert judge.verdicts["bf16"].why == judge.verdicts["memory_pool"].why == "turned off"


def test_a_switch_offered_later_is_judged_when_the_others_are():
    judge = Judge(CORE)
    judged(judge, product({"bf16": 0.6}))
    judge.add_offer(Offer("compile", is_exact=False))
    assert judge.names_waiting == {"compile"}
    judged(judge, product({"bf16": 0.6, "compile": 0.8}))
    assert judge.best == {"bf16", "compile"}
    judge.withdraw(["compile"], "the loop makes it compile again and again")
    assert judge.best == {"bf16"} and not judge.verdicts["compile"].is_kept
    assert judge.verdicts["compile"].ratio is not None  # the measurement stays on show


class Noisy:
    """Steps whose rest is disturbed, and whose time in the optimizer is not."""

    def __init__(self, gain: float = 1.0, noise: float = 0.5) -> None:
        self.gain, self.noise, self.chance = gain, noise, random.Random(3)

    def block(self, way: Way, *, is_timed: bool) -> Block:
        rest = 1.0 + self.noise * self.chance.random()
        own = 0.1 if "fused" in way else 0.2
        seconds = ((rest + own) / (self.gain if "fused" in way else 1.0),) * 3
        return Block(way, seconds, optimizer_s=(own,) * 3 if is_timed else ())


def rounds_of(judge: Judge, noisy: Noisy, *, is_timed: bool = False) -> int:
    count = 0
    while (way := judge.next_way(STEPS)) is not None:
        judge.add(noisy.block(way, is_timed=is_timed), 10**6)
        count += not way
    return count


def test_an_optimizer_s_switch_is_judged_by_the_optimizer_s_own_step():
    judge = Judge((), [[Offer("fused", is_of_optimizers=True)]])
    assert rounds_of(judge, Noisy(), is_timed=True) == 3
    verdict = judge.verdicts["fused"]
    assert verdict.is_kept and verdict.ratio == pytest.approx(1.45 / 1.35, rel=0.03)
    assert verdict.why == "faster by more than its interval, timed in the optimizer's step"
    untimed = Judge((), [[Offer("fused", is_of_optimizers=True)]])
    assert rounds_of(untimed, Noisy()) > 3  # the rest hides it
    slower = Judge((), [[Offer("other", is_of_optimizers=True)]])
    rounds_of(slower, Noisy(), is_timed=True)
    assert slower.best == PLAIN


def test_a_gain_that_a_few_rounds_do_not_prove_gets_more_and_one_that_is_not_worth_it_does_not():
    judge = Judge((), [[Offer("fused")]])
    assert 8 < rounds_of(judge, Noisy(gain=1.1, noise=0.6)) <= 27
    assert judge.best == {"fused"}
    small = Judge((), [[Offer("other")]])
    assert rounds_of(small, Noisy(noise=0.02)) == 8 and small.best == PLAIN
    assert small.verdicts["other"].why == "not faster by more than its interval"


def test_two_switches_that_only_hurt_alone_are_not_kept_together_without_a_proof():
    chance = random.Random(5)
    costs = {1: 1.3, 2: 1.0}
    judge = Judge(CORE)
    while (way := judge.next_way(STEPS)) is not None:
        noise = 0.3 * chance.random() if len(way) != 1 else 0.0
        judge.add(Block(way, (costs.get(len(way), 1.0) + noise,) * 3), 10**6)
    assert judge.best == PLAIN
    assert not judge.verdicts["bf16"].is_kept and not judge.verdicts["channels_last"].is_kept


def test_under_a_memory_limit_a_switch_stays_only_where_the_peak_is_above_it():
    for limit, peak, why in (
        (100, 60, "without it the peak is above the limit of 100 B"),
        (100, 130, "the peak is within the limit of 100 B without it, or no lower with it"),
        (200, 60, "the peak is within the limit of 200 B without it, or no lower with it"),
    ):
        judge = Judge((), [[Offer("less", saves_memory=True, limit_bytes=limit)]])
        count = 0
        while (way := judge.next_way(STEPS)) is not None:
            count += 1
            seconds, held = ((1.7,) * 3, peak) if way else ((1.0,) * 3, 120)
            judge.add(Block(way, seconds, peak_bytes=held), 10**6)
        assert judge.verdicts["less"].is_kept is (limit == 100 and peak == 60)
        assert judge.verdicts["less"].why == why and count == 6


def test_blocks_in_which_the_clock_has_not_ticked_end_a_race_without_a_figure():
    for figures in ((0.0, 0.01), (0.01, 0.0), (0.0, 0.0)):
        judge = Judge((), [[Offer("memory_pool")]])
        ways = iter(figures)
        while judge.next_way(STEPS) is not None:
            judge.add(Block(judge.next_way(STEPS), (next(ways),) * 3, warm_s=0.01), 8)
        assert judge.best == PLAIN and "too coarse" in judge.verdicts["memory_pool"].why
