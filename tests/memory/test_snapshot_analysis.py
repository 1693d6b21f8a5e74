"""Who held what and when, out of a snapshot: each figure equals one reckoned event by event."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import paifuser_lab as lab
from paifuser_lab.errors import FileError
from paifuser_lab.memory.snapshots import analysis, memory_snapshot, read_snapshot, replay
from paifuser_lab.memory.snapshots.lifetimes import lifetimes_of
from paifuser_lab.memory.snapshots.settings import Settings
from paifuser_lab.memory.snapshots.snapshot import reserved_bytes, segments_at
from paifuser_lab.memory.snapshots.stacks import UNKNOWN_SITE
from paifuser_lab.records import MemorySnapshot, SnapshotMap
from paifuser_lab.views.page import snapshot_report
from tests.support.snapshots import MIB, STACKS, Recorder, dump, frame, recorded

seeds = some.integers(0, 10_000)


def read(tmp_path, recorder, **more):
    return read_snapshot(dump(recorder.snapshot(**more), tmp_path / "run.pickle"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("snapshots")


def walked(entries):
    """Allocated and reserved bytes after each event, one event at a time."""
    alive, segments, allocated, reserved = {}, {}, [], []
    for entry in entries:
        action, address = entry["action"], entry.get("addr")
        if action == "alloc":
            alive[address] = -(-entry["size"] // 512) * 512
        elif action == "free_completed":
            del alive[address]
        elif action == "segment_alloc":
            segments[address] = entry["size"]
        elif action == "segment_free":
            del segments[address]
        allocated.append(sum(alive.values()))
        reserved.append(sum(segments.values()))
    return allocated, reserved, alive, segments


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_the_timeline_is_that_of_the_events(folder, seed):
    recorder = recorded(seed, steps=120)
    record = memory_snapshot(read(folder, recorder))
    allocated, reserved, _, _ = walked(recorder.events)
    assert [sum(column) for column in zip(*record.held_bytes, strict=True)] == allocated
    assert list(record.reserved_bytes) == reserved
    assert record.peak_bytes == max(allocated) and record.peak_reserved_bytes == max(reserved)
    assert sum(row.held_bytes for row in record.at_peak) == record.peak_bytes
    assert all(a <= r for a, r in zip(allocated, record.reserved_bytes, strict=True))


@given(seeds, some.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_the_map_of_any_moment_has_the_segments_and_blocks_of_that_moment(folder, seed, share):
    recorder = recorded(seed, steps=120)
    snapshot = read(folder, recorder)
    event = int(share * (len(recorder.events) - 1))
    _, _, alive, segments = walked(recorder.events[: event + 1])
    trace, held = snapshot.trace(0), snapshot.segments_of(0)
    assert {s.address: s.size for s in segments_at(trace, held, event)} == segments
    lifetimes = lifetimes_of(trace, held)
    shown = analysis.map_at(trace, held, lifetimes, snapshot.stacks, event, "then")
    assert sorted(shown.block_bytes) == sorted(alive.values())
    assert shown.allocated_bytes == sum(alive.values())
    assert shown.free_bytes == shown.reserved_bytes - shown.allocated_bytes
    ends: dict[int, int] = {}
    for segment, offset, size in zip(
        shown.block_segment, shown.block_offset_bytes, shown.block_bytes, strict=True
    ):
        assert ends.get(segment, 0) <= offset, "two blocks overlap"
        ends[segment] = offset + size
        assert ends[segment] <= shown.segment_bytes[segment]


def test_blocks_from_before_the_recording_are_alive_from_its_start(folder):
    recorder = recorded(4, steps=200)
    whole = recorder.snapshot()
    later = len(recorder.events) // 2
    whole["device_traces"] = [recorder.events[later:]]
    record = memory_snapshot(read_snapshot(dump(whole, folder / "late.pickle")))
    allocated, reserved, _, _ = walked(recorder.events)
    assert list(record.reserved_bytes) == reserved[later:]
    assert [sum(c) for c in zip(*record.held_bytes, strict=True)] == allocated[later:]


def test_a_snapshot_of_this_process_is_read_and_left_as_it_is(folder):
    content = recorded(4, steps=200).snapshot()
    before = pickle.dumps(content)
    live = memory_snapshot(content, replay=True)
    assert pickle.dumps(content) == before
    file = memory_snapshot(dump(content, folder / "live.pickle"), replay=True)
    assert live.name == "this process" and live.at_peak == file.at_peak
    assert live.replay.rows == file.replay.rows


def test_a_long_timeline_is_thinned_and_keeps_its_peaks(folder, monkeypatch):
    monkeypatch.setattr(analysis, "MAX_TIMES", 60)
    recorder = recorded(5, steps=900)
    record = memory_snapshot(read(folder, recorder))
    allocated, reserved, _, _ = walked(recorder.events)
    assert len(record.time_ms) <= 62
    shown = [sum(column) for column in zip(*record.held_bytes, strict=True)]
    events = [round(time / 0.007) for time in record.time_ms]
    assert shown == [allocated[event] for event in events]
    for first, last in pairwise(numpy.linspace(0, len(allocated), 21).astype(int)):
        inside = [event for event in events if first <= event < last]
        for column in (allocated, reserved):
            assert max(column[event] for event in inside) == max(column[first:last])
    assert max(record.reserved_bytes) == max(reserved) == record.peak_reserved_bytes
    assert record.time_ms[-1] == pytest.approx(0.007 * (len(recorder.events) - 1))


def test_an_empty_snapshot_is_said_to_be_empty(folder):
    content = {"segments": [], "device_traces": []}
    record = memory_snapshot(read_snapshot(dump(content, folder / "e.pickle")), replay=True)
    assert "Nothing is allocated" in str(record) and "no request to replay" in str(record)
    assert lab.figure(record).png() and snapshot_report(record)


def test_pages_of_expandable_segments_are_mapped_and_unmapped(folder):
    page = 20 * MIB
    segment = {"device": 0, "address": 0, "total_size": 2 * page, "stream": 0,
               "segment_type": "large", "is_expandable": True, "blocks": []}  # fmt: skip
    actions = [
        ("segment_map", 0),
        ("segment_map", page),
        ("segment_map", 2 * page),
        ("segment_unmap", page),
        ("segment_map", page),
        ("segment_unmap", 2 * page),
    ]
    entries = [{"action": action, "addr": address, "size": page, "stream": 0, "frames": []}
               for action, address in actions]  # fmt: skip
    content = {"segments": [segment], "device_traces": [entries]}
    snapshot = read_snapshot(dump(content, folder / "pages.pickle"))
    trace, held = snapshot.trace(0), snapshot.segments_of(0)
    assert (reserved_bytes(trace, held) // page).tolist() == [1, 2, 3, 2, 3, 2]
    ranges = [
        [(row.address // page, row.size // page) for row in segments_at(trace, held, event)]
        for event in range(-1, 6)
    ]
    assert ranges == [[], [(0, 1)], [(0, 2)], [(0, 3)], [(0, 1), (2, 1)], [(0, 3)], [(0, 2)]]


def test_fragmentation_is_the_share_of_free_memory_outside_of_the_largest_piece(folder):
    recorder = Recorder()
    blocks = [recorder.request(400 * 1024, STACKS[1]) for _ in range(5)]
    for index in (0, 2):
        recorder.release(blocks[index])
    shown = memory_snapshot(read(folder, recorder)).maps[-1]
    tail = 2 * MIB - 5 * 400 * 1024
    assert shown.free_bytes == 800 * 1024 + tail
    assert shown.fragmentation == pytest.approx(1 - 400 * 1024 / (800 * 1024 + tail))
    assert SnapshotMap(moment="now", time_ms=0).fragmentation == 0


@pytest.mark.parametrize(
    ("stack", "site", "category"),
    [
        (STACKS[0], "work/train.py:80 main", "weights"),
        (STACKS[1], "work/net.py:12 forward", "activations"),
        (STACKS[3], "work/train.py:80 main", "gradients"),
        (STACKS[4], "work/train.py:80 main", "optimizer state"),
        ([], UNKNOWN_SITE, "unknown"),
        (STACKS[0][:1], "at::empty_cuda", "other"),
        (
            [frame("call", "/tmp/torchinductor_me/z3/cz3.py", 7), *STACKS[1]],
            "work/net.py:12 forward",
            "activations",
        ),
        ([STACKS[0][0], STACKS[0][1]], "modules/module.py:900 _apply", "weights"),
    ],
)
def test_a_call_site_is_the_innermost_line_of_one_s_own_code(folder, stack, site, category):
    recorder = Recorder()
    recorder.request(1000, stack)
    (row,) = memory_snapshot(read(folder, recorder)).at_peak
    assert (row.site, row.category, row.blocks, row.held_bytes) == (site, category, 1, 1024)


def test_the_device_with_most_events_is_chosen_and_another_can_be(folder):
    one = recorded(9, steps=50).snapshot()
    content = {
        "segments": one["segments"] + [row | {"device": 1} for row in one["segments"]],
        "device_traces": [[], one["device_traces"][0]],
    }
    snapshot = read_snapshot(dump(content, folder / "two.pickle"))
    assert memory_snapshot(snapshot).device == 1
    first = memory_snapshot(snapshot, device=0)
    assert (first.device, first.events, first.devices) == (0, 0, (0, 1))
    with pytest.raises(FileError, match="holds nothing of device 5; devices in it: 0, 1"):
        memory_snapshot(snapshot, device=5)


# replay


@given(seeds, some.sampled_from([Settings(), Settings(max_split_size_mb=32)]))
@settings(max_examples=20, deadline=None)
def test_under_its_own_settings_the_replay_reserves_what_was_recorded(folder, seed, own):
    recorder = recorded(seed, steps=150, settings=own)
    replayed = replay(read(folder, recorder))
    assert replayed.rows[0].settings == str(own)
    assert replayed.rows[0].peak_reserved_bytes == recorder.peak_reserved_bytes
    assert replayed.rows[0].peak_allocated_bytes == recorder.peak_allocated_bytes
    assert replayed.recorded_peak_reserved_bytes == recorder.peak_reserved_bytes
    assert replayed.agreement in (1.0, None)


def test_other_settings_reserve_what_a_run_under_them_reserves(folder):
    own, other = Settings(), Settings(max_split_size_mb=32)
    snapshot = read(folder, recorded(11, settings=own))
    expected = recorded(11, settings=other)
    rows = replay(snapshot, [other]).rows
    assert [row.settings for row in rows] == ["default", "max_split_size_mb:32"]
    assert rows[1].peak_reserved_bytes == expected.peak_reserved_bytes
    assert rows[0].peak_reserved_bytes != rows[1].peak_reserved_bytes


# out of memory


def full(*, expandable_helps):
    """A run that ends out of memory, in pieces or for good."""
    recorder = Recorder(limit_bytes=200 * MIB)
    recorder.request(40 * MIB, STACKS[0])
    if expandable_helps:
        recorder.release(recorder.request(100 * MIB, STACKS[1]))
        pinned = [recorder.request(24 * MIB, STACKS[1]) for _ in range(4)]
        for block in pinned[:2]:
            recorder.release(block)
        assert recorder.request(80 * MIB, STACKS[2]) is None
    else:
        recorder.request(100 * MIB, STACKS[1])
        assert recorder.request(80 * MIB, STACKS[2]) is None
    return recorder


def test_an_out_of_memory_says_who_asked_and_what_was_left(folder):
    ended = memory_snapshot(read(folder, full(expandable_helps=False))).out_of_memory
    assert ended.requested_bytes == 80 * MIB and ended.site == "work/net.py:31 forward"
    assert ended.free_on_device_bytes == 60 * MIB and ended.reserved_bytes == 140 * MIB
    assert ended.allocated_bytes == 140 * MIB and ended.free_in_segments_bytes == 0
    assert "work/net.py:31 forward asked for 83.9 MB" in ended.sentence
    fits = {remedy.what: remedy.fits for remedy in ended.remedies}
    share = (200 - 40) / (100 + 80)
    assert fits == {
        "if free segments had been given back (empty_cache)": False,
        "with expandable_segments:True": False,
        "with max_split_size_mb:128": False,
        f"with a batch of at most {share:.0%} of this one": True,
    }


def test_an_out_of_memory_in_a_snapshot_without_times_names_its_event(folder):
    recorder = full(expandable_helps=False)
    for event in recorder.events:
        del event["time_us"]
    ended = memory_snapshot(read(folder, recorder)).out_of_memory
    assert ended.sentence.startswith(f"Out of memory at event {len(recorder.events) - 1}: work/net")
    assert " ms" not in ended.sentence


def test_an_out_of_memory_by_fragmentation_would_have_fitted_in_expandable_segments(folder):
    record = memory_snapshot(read(folder, full(expandable_helps=True)))
    ended = record.out_of_memory
    fits = {remedy.what: remedy.fits for remedy in ended.remedies}
    assert fits["with expandable_segments:True"]
    assert not fits["if free segments had been given back (empty_cache)"]
    assert fits["with the same batch, were all free memory in one piece"]
    assert ended.free_in_segments_bytes > 0 and str(record).count(ended.sentence) == 1


# what is shown

SCRIPT = "<script>alert(1)</script>"


def hostile():
    recorder = full(expandable_helps=False)
    stack = [{"name": SCRIPT, "filename": f"/{SCRIPT}/net.py", "line": 3}]
    recorder.request(1000, stack)
    recorder.log("oom", 5, 900 * MIB, 0, frames=list(stack))
    return recorder


def test_text_of_a_file_is_never_markup(folder):
    record = memory_snapshot(read(folder, hostile()), replay=True)
    named = type(record).model_validate(record.model_dump() | {"name": SCRIPT, "settings": SCRIPT})
    page = snapshot_report(named)
    for text in (page, named._repr_html_(), lab.figure(named).svg()):
        assert "<script" not in text
    assert "&lt;script" in page and "default-src 'none'" in page.replace("&#x27;", "'")
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_the_command_prints_the_record_and_writes_the_page(folder, command, tmp_path):
    path = dump(full(expandable_helps=True).snapshot(), tmp_path / "run.pickle")
    page, saved = tmp_path / "run.html", tmp_path / "run.json"
    code, out, _ = command("memory", path, "--html", page, "--json", saved)
    assert code == 0 and f"report in {page}" in out
    assert "Out of memory at" in out and "Under its own settings the simulator reserves" in out
    assert "<svg" in page.read_text() and MemorySnapshot.load(saved).replay is not None
    code, out, _ = command("memory", path, "--no-replay")
    assert code == 0 and "simulator" not in out
    for option in (("--train",), ("--batch", 2), ("--limit", "8 GB"), ("--input", "1x3")):
        code, _, err = command("memory", path, *option)
        assert code == 2 and f"{option[0]} is for a model; {path} is a snapshot's file." in err
