"""A memory snapshot is read as plain data: nothing in it runs, and damage is named."""

from __future__ import annotations

import os
import pickle
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paifuser_lab.errors import FileError
from paifuser_lab.memory.snapshots import read_snapshot
from paifuser_lab.memory.snapshots.snapshot import ACTIONS, OOM
from tests.support.snapshots import STACKS, dump, recorded

ENTRY = {"action": "alloc", "addr": 0, "size": 5, "stream": 0, "time_us": 1, "frames": []}


def written(tmp_path, content=None, protocol=4):
    content = recorded(seed=3).snapshot() if content is None else content
    return dump(content, tmp_path / "run.pickle", protocol)


def columns(trace):
    names = [ACTIONS[code] for code in trace.action]
    return list(zip(names, trace.address, trace.size, trace.stream, trace.time_us, strict=True))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_events_and_segments_are_those_that_python_s_pickle_reads(tmp_path, protocol):
    path = written(tmp_path, recorded(seed=3, steps=2500).snapshot(), protocol)
    expected = pickle.loads(path.read_bytes())
    snapshot = read_snapshot(path)
    (entries,), (trace,) = expected["device_traces"], snapshot.traces
    assert len(entries) > 3000  # several of pickle's batches of a thousand
    assert columns(trace) == [
        (row["action"], row.get("addr", row.get("device_free")), row["size"], row["stream"],
         row["time_us"]) for row in entries
    ]  # fmt: skip
    for index in (0, 7, len(entries) - 1):
        frames = snapshot.stacks.frames_of(trace.stack[index])
        assert [frame._asdict() for frame in frames] == [
            {"function": row["name"], "file": row["filename"], "line": row["line"]}
            for row in entries[index]["frames"]
        ]
    assert [
        (segment.address, segment.size, [block.size for block in segment.blocks])
        for segment in snapshot.segments
    ] == [
        (row["address"], row["total_size"], [block["size"] for block in row["blocks"]])
        for row in expected["segments"]
    ]
    assert snapshot.settings == expected["allocator_settings"]


def test_an_old_file_is_the_list_of_segments(tmp_path):
    blocks = [
        {"size": 1024, "state": "active_allocated",
         "history": [{"addr": 4096, "real_size": 1000, "frames": list(STACKS[0])}]},
        {"size": 512, "state": "inactive"},
    ]  # fmt: skip
    content = [{"device": 1, "address": 4096, "total_size": 1536, "stream": 0,
                "segment_type": "small", "blocks": blocks}]  # fmt: skip
    snapshot = read_snapshot(written(tmp_path, content))
    used, free = snapshot.segments[0].blocks
    assert (used.address, used.requested, free.address, free.is_free) == (4096, 1000, 5120, True)
    assert str(snapshot.stacks.frames_of(used.stack)[1]).endswith("module.py:900 _apply")
    assert snapshot.devices == (1,) and not snapshot.traces


def test_events_of_a_version_without_times_and_of_unknown_kinds(tmp_path):
    entries = [
        {"action": "alloc", "addr": 0, "size": 5, "stream": 0, "frames": []},
        {"action": "dreams", "addr": 0, "size": 5},
        {"action": "oom", "device_free": 77, "size": 9, "stream": 0, "frames": []},
    ]
    trace = read_snapshot(written(tmp_path, {"segments": [], "device_traces": [entries]})).traces[0]
    assert [ACTIONS[code] for code in trace.action] == ["alloc", "other", "oom"]
    assert trace.address[trace.action == OOM] == 77
    assert not trace.is_timed and trace.times_ms().tolist() == [0, 1, 2]


class Runs:
    """Creates a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_wants_to_run_code_is_refused_and_nothing_runs(tmp_path, protocol):
    made = tmp_path / "made"
    events = [*(dict(ENTRY) for _ in range(1500)), Runs(made)]
    path = written(tmp_path, {"segments": [], "device_traces": [events]}, protocol)
    with pytest.raises(FileError, match=r"run.pickle wants to run code"):
        read_snapshot(path)
    assert not made.exists()
    pickle.loads(path.read_bytes())  # it would have run
    assert made.exists()


def assembled(*parts):
    """A pickle of protocol 4 out of opcodes."""
    return b"\x80\x04" + b"".join(parts) + b"."


ATTACKS = {
    "GLOBAL": b"cos\nmkdir\n",
    "STACK_GLOBAL": b"\x8c\x02os\x8c\x05mkdir\x93",
    "INST": b"(ios\nmkdir\n",
    "REDUCE": b"])R",
    "BUILD": b"}}b",
    "EXT1": b"\x82\x01",
    "BINPERSID": b"K\x01Q",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_opcode_that_imports_or_calls_is_refused(tmp_path, name):
    path = tmp_path / "a.pickle"
    head = b"}(\x8c\x08segments](\x8c\x04what"
    path.write_bytes(assembled(head, ATTACKS[name], b"eu"))
    with pytest.raises(FileError, match=r"a.pickle (wants to run code|is damaged)"):
        read_snapshot(path)


@pytest.mark.parametrize("share", [0.001, 0.37, 0.999])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_file_that_was_cut_short_is_named(tmp_path, share, protocol):
    path = written(tmp_path, protocol=protocol)
    content = path.read_bytes()
    path.write_bytes(content[: max(3, int(share * len(content)))])
    with pytest.raises(FileError, match=r"run.pickle was cut short: it ends after [\d,]+ bytes"):
        read_snapshot(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x80", "cut short"),
        (b"PK\x03\x04 a zip file", "is no pickle"),
        (b"\x80\x07}.", "unsupported pickle protocol"),
        (pickle.dumps({"a": 1}), "has no list of segments"),
        (pickle.dumps({"segments": 3}), "has no list of segments"),
        (pickle.dumps([1, 2]), "has no list of segments"),
        (pickle.dumps(3), "has no list of segments"),
        (pickle.dumps({"segments": [{}]}), "'blocks' is missing"),
        (pickle.dumps({"segments": [], "device_traces": [3, 4]}), "damaged"),
        (pickle.dumps({"segments": [], "device_traces": [[{"size": 3}]]}), "'action' is missing"),
        (pickle.dumps({"segments": [], "device_traces": [[3, 4]]}), "damaged"),
        (assembled(b"}(\x8c\x08segmentsh\x63u"), "damaged"),
        (assembled(b"uuu"), "damaged"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_a_sentence(tmp_path, content, message):
    path = tmp_path / "a.pickle"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        read_snapshot(path)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": -1}, {"size": 1 << 70}, {"size": "large"}, {"addr": None}, {"action": ["alloc"]},
        {"frames": 7}, {"frames": [{}]}, {"frames": [{"name": 1, "filename": "a", "line": 1}]},
    ],
    ids=str,
)  # fmt: skip
def test_an_event_with_a_value_of_another_kind_is_damage(tmp_path, wrong):
    path = written(tmp_path, {"segments": [], "device_traces": [[ENTRY, ENTRY | wrong]]})
    with pytest.raises(FileError, match=r"run.pickle is damaged"):
        read_snapshot(path)


def test_names_cannot_command_a_terminal(tmp_path):
    frame = {"name": "f\x1b[2J\ud800", "filename": "a.py", "line": 1}
    entry = ENTRY | {"frames": [frame]}
    snapshot = read_snapshot(written(tmp_path, {"segments": [], "device_traces": [[entry]]}))
    (read,) = snapshot.stacks.frames
    assert read.function == "f\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(FileError, match=r"Cannot read .*none.pickle"):
        read_snapshot(tmp_path / "none.pickle")
    with pytest.raises(FileError, match="is a folder"):
        read_snapshot(tmp_path)


@given(some.integers(0, 2**32 - 1), some.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path_factory, seed, count):
    draw = random.Random(seed)
    content = bytearray(pickle.dumps(recorded(seed=1, steps=12).snapshot()))
    for _ in range(count):
        content[draw.randrange(2, len(content))] = draw.randrange(256)
    path = tmp_path_factory.getbasetemp() / "damaged.pickle"
    path.write_bytes(bytes(content))
    with suppress(FileError):
        read_snapshot(path)
