"""Page faults and resident bytes, as the kernel counts them."""

from __future__ import annotations

import mmap
import sys

import pytest

from paifuser_lab.measure import (
    Candidate,
    page_faults,
    pages,
    peak_resident_bytes,
    resident_bytes,
    restart_peak,
    rounds_in_turn,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel is another")
MB = 1 << 20


def touch(size):
    """Map fresh pages, write to each and give them back."""
    with mmap.mmap(-1, size) as mapped:
        for page in range(0, size, mmap.PAGESIZE):
            mapped[page] = 1
        return resident_bytes()


@linux
def test_fresh_pages_are_counted_and_their_peak_is_remembered():
    assert restart_peak()
    faults, before = page_faults(), resident_bytes()
    inside = touch(16 * MB)
    assert inside - before > 15 * MB
    assert page_faults() - faults > 100, "each page, or each large page"
    peak = peak_resident_bytes()
    assert peak >= before + 15 * MB
    assert restart_peak() and peak_resident_bytes() < peak - 10 * MB


def test_a_kernel_without_these_counts_gives_none(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "PROCESS", tmp_path / "nowhere")
    assert not restart_peak() and peak_resident_bytes() is None
    monkeypatch.setattr(pages, "PROCESS", tmp_path)
    (tmp_path / "status").write_text("Name:\tx\n")
    assert peak_resident_bytes() is None
    (tmp_path / "status").write_text("VmHWM:\t    12 kB\n")
    assert peak_resident_bytes() == 12288
    monkeypatch.setitem(sys.modules, "resource", None)
    assert page_faults() is None


@linux
def test_a_round_counts_the_page_faults_of_a_call_and_enters_what_is_around_it():
    entered = []

    class Around:
        def __enter__(self):
            entered.append("in")

        def __exit__(self, *_):
            entered.append("out")

    calls = [
        Candidate("fresh", lambda: touch(4 * MB), 1),
        Candidate("nothing", lambda: entered.append("call"), 1, around=Around),
    ]
    *_, samples = rounds_in_turn(calls, rounds=3, seconds=1.0)
    assert samples["fresh"].median_page_faults > 25
    assert samples["nothing"].median_page_faults < samples["fresh"].median_page_faults / 5
    turns = [event for event in entered if event != "call"]
    assert turns == ["in", "out"] * 4, "once to warm up, and once a round"
    assert entered[0] == "in" and entered[-1] == "out"
