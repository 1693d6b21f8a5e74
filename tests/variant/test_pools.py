"""A comparison lets a variant's pool be in force turn by turn, and times it without, too."""

from __future__ import annotations

import pytest

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.measure import MachineWatch, Samples
from paifuser_lab.memory.pools import HeapPool, heap_obstacle
from paifuser_lab.records import Quality
from paifuser_lab.variant import comparison, trial
from tests.support.models import Small, images

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle()),
]
QUIET, BUSY = Quality(others_share=0.0), Quality(others_share=0.5)


class Rounds:
    """Replaces timing: runs each turn once, and gives it the milliseconds of a test."""

    def __init__(self, ms):
        self.ms, self.turns = ms, []

    def __call__(self, candidates, *, rounds, seconds, turn):
        samples = {candidate.name: Samples() for candidate in candidates}
        for number in range(rounds):
            for index, candidate in enumerate(candidates):
                with candidate.around():
                    in_force = [pool.statistics.is_in_force for pool in POOLS]
                    candidate.call()
                self.turns.append((candidate.name, in_force))
                ms = self.ms.get(candidate.name, 4.0)
                # no two candidates keep the same ratio in every round
                apart = 1e-9 * index if number % 2 else 0
                samples[candidate.name].rounds_ms.append(ms * (1 + 0.01 * number + apart))
                samples[candidate.name].calls_ms.append(ms)
                samples[candidate.name].cpu_ms.append(ms)
                samples[candidate.name].page_faults.append(1000 * ms)
            yield samples


POOLS: list[HeapPool] = []
WITH, WITHOUT = "p · 1 threads", "p · 1 threads · without its memory pool"


@pytest.fixture
def timed(monkeypatch):
    def compared(ms, *, quality=QUIET):
        POOLS.clear()
        turns = Rounds(ms)
        monkeypatch.setattr(comparison, "rounds_in_turn", turns)
        monkeypatch.setattr(MachineWatch, "quality", lambda *_, **__: quality)
        monkeypatch.setattr(trial, "machine_label", lambda: "here")
        work = Workload(Small(), images(), name="small")
        variant = lab.apply(work, Recipe(["fold", "pool"]))
        POOLS.append(variant.pool)
        return lab.compare(work, p=variant, rounds=6, threads=1), turns

    return compared


def test_the_pool_is_in_force_in_the_turns_of_its_variant_alone(timed):
    measured, turns = timed({})
    assert [row.name for row in measured.rows] == ["baseline", "p"], "the twin is no row"
    expected = {"baseline · 1 threads": [False], WITH: [True], WITHOUT: [False]}
    assert len(turns.turns) == 18
    assert all(in_force == expected[name] for name, in_force in turns.turns)
    assert not POOLS[0].statistics.is_in_force


@pytest.mark.parametrize(
    ("without_ms", "quality", "note"),
    [
        (
            4.0,
            QUIET,
            "the memory pool helps (2.00 ×, 2.00–2.00); 4,000 page faults a call ",
        ),
        (1.0, QUIET, "the memory pool costs time: leave it out (0.50 ×"),
        (2.0, QUIET, "the memory pool makes no difference: leave it out (1.00 ×"),
        (4.0, BUSY, "the memory pool helps (2.00 ×"),
        (2.2, BUSY, "the memory pool may help or not, which a busy machine does not show (1.10 ×"),
    ],
)
def test_the_row_says_whether_the_pool_helps_the_same_variant(timed, without_ms, quality, note):
    measured, _ = timed({WITH: 2.0, WITHOUT: without_ms}, quality=quality)
    notes = [text for text in measured["p"].notes if text.startswith("the memory pool")]
    assert len(notes) == 1 and notes[0].startswith(note)
    assert notes[0].endswith("page faults a call without it, 2,000 with it")
    assert measured["p"].page_faults == 2000 and measured["baseline"].page_faults == 4000
    assert not any("pool" in text for text in measured["baseline"].notes)


def test_a_system_that_counts_no_page_faults_has_no_note_of_them(timed, monkeypatch):
    monkeypatch.setattr(Samples, "median_page_faults", None)
    measured, _ = timed({WITH: 2.0})
    assert measured["p"].page_faults is None
    assert any(note.endswith("(2.00 ×, 2.00–2.00)") for note in measured["p"].notes)
