"""A memory snapshot is read as plain data: nothing in it runs, and damage is named."""

from __future__ import annotations

import gc
import os
import pickle
import pickletools
import random
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paifuser_lab.errors import FileError
from paifuser_lab.memory.snapshots import read_snapshot, reading
from paifuser_lab.memory.snapshots.reading import ARGUMENTS, CALLING, Columns
from paifuser_lab.memory.snapshots.snapshot import ACTIONS, ALLOC, OOM
from tests.support.snapshots import STACKS, dump, large, recorded

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


@pytest.mark.parametrize("order", [("segments", "device_traces"), ("device_traces", "segments")])
@pytest.mark.parametrize("counts", [(), (0,), (1,), (0, 3), (3, 0, 1, 2500), (0, 0, 1)])
def test_any_number_of_devices_and_events(tmp_path, counts, order):
    traces = [
        [
            {"action": "alloc", "addr": n, "size": device, "stream": 0, "frames": []}
            for n in range(count)
        ]
        for device, count in enumerate(counts)
    ]
    content = {"segments": [], "device_traces": traces, "external_annotations": []}
    snapshot = read_snapshot(
        written(tmp_path, {key: content[key] for key in (*order, "external_annotations")})
    )
    assert tuple(map(len, snapshot.traces)) == counts
    assert all((trace.size == device).all() for device, trace in enumerate(snapshot.traces))


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


def places(attack):
    """Snapshots with an object that wants to run code in each kind of place."""
    entry = {"action": "alloc", "addr": 0, "size": 5, "stream": 0, "frames": []}
    many = [dict(entry) for _ in range(1500)]
    return {
        "top": attack,
        "key": {"segments": [], "device_traces": [], "more": attack},
        "segment": {"segments": [attack], "device_traces": []},
        "event": {"segments": [], "device_traces": [[*many, attack]]},
        "one event": {"segments": [], "device_traces": [[attack]]},
        "value": {"segments": [], "device_traces": [[entry | {"size": attack}]]},
        "frame": {"segments": [], "device_traces": [[entry | {"frames": [attack]}]]},
        "traces": {"segments": [], "device_traces": attack},
        "settings": {"segments": [], "allocator_settings": {"a": attack}},
    }


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("place", places(None))
def test_a_pickle_that_wants_to_run_code_is_refused_and_nothing_runs(tmp_path, place, protocol):
    made = tmp_path / "made"
    path = written(tmp_path, places(Runs(made))[place], protocol)
    with pytest.raises(FileError, match=r"run.pickle wants to run code"):
        read_snapshot(path)
    assert not made.exists()
    pickle.loads(path.read_bytes())  # it would have run
    assert made.exists()


def assembled(*parts):
    """A pickle of protocol 4 out of opcodes."""
    return b"\x80\x04" + b"".join(parts) + b"."


GLOBAL = b"cos\nmkdir\n"
ATTACKS = {
    "GLOBAL": GLOBAL,
    "STACK_GLOBAL": b"\x8c\x02os\x8c\x05mkdir\x93",
    "INST": b"(ios\nmkdir\n",
    "OBJ": b"(" + GLOBAL + b"o",
    "REDUCE": b"])R",
    "BUILD": b"}}b",
    "NEWOBJ": b")) \x81",
    "EXT1": b"\x82\x01",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "PERSID": b"Pnumber\n",
    "BINPERSID": b"K\x01Q",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_opcode_that_imports_or_calls_is_refused(tmp_path, name):
    path = tmp_path / "a.pickle"
    head = b"}(\x8c\x08segments](\x8c\x04what"
    path.write_bytes(assembled(head, ATTACKS[name], b"eu"))
    with pytest.raises(FileError, match=r"a.pickle (wants to run code|is damaged)"):
        read_snapshot(path)


def test_no_opcode_of_plain_data_is_one_that_imports_or_calls():
    """A new opcode of Python is refused until somebody has read what it does."""
    names = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
    assert {names[code] for code in ARGUMENTS} == {
        "PROTO", "STOP",
        "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE",
        "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "APPEND", "APPENDS",
        "EMPTY_TUPLE", "TUPLE2", "EMPTY_DICT", "SETITEM", "SETITEMS",
        "MARK", "FRAME", "MEMOIZE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT",
    }  # fmt: skip
    assert not ARGUMENTS.keys() & CALLING and names.keys() > CALLING


@pytest.mark.parametrize("share", [0.001, 0.1, 0.37, 0.5, 0.82, 0.999])
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
        (b"PK\x03\x04 a zip file", "is no pickle of protocol 2 to 5"),
        (b"\x80\x07}.", "is no pickle of protocol 2 to 5"),
        (b"{'segments': []}", "is no pickle"),
        (pickle.dumps({"a": 1}), "has no list of segments"),
        (pickle.dumps({}), "has no list of segments"),
        (pickle.dumps({"segments": 3}), "has no list of segments"),
        (pickle.dumps([1, 2]), "has no list of segments"),
        (pickle.dumps(3), "has no list of segments"),
        (pickle.dumps({"segments": [{}]}), "'blocks' is missing"),
        (pickle.dumps({"segments": [], "device_traces": 3}), "its events are no list"),
        (pickle.dumps({"segments": [], "device_traces": [3, 4]}), "its events are no lists"),
        (pickle.dumps({"segments": [], "device_traces": [[{"size": 3}]]}), "'action' is missing"),
        (pickle.dumps({"segments": [], "device_traces": [[3, 4]]}), "damaged"),
        (assembled(b"}(\x8c\x08segmentsh\x63u"), "damaged"),
        (assembled(b"uuu"), "damaged"),
        (assembled(b"}K"), "cut short|damaged"),
        (assembled(b"}(\x8c\x08segments\x8a\x50" + b"\0" * 99 + b"u"), "no place in one"),
        (assembled(b"}(\x8c\x08segments](euu"), "damaged"),
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
        {"size": -1}, {"size": 1 << 70}, {"size": "large"}, {"size": 2.5}, {"addr": None},
        {"action": ["alloc"]}, {"frames": 7}, {"frames": [3]}, {"frames": [{}]},
        {"frames": [{"name": 1, "filename": "a", "line": 1}]}, {"time_us": []},
        {"frames": [{"name": "f", "filename": "a", "line": "1"}]},
    ],
    ids=str,
)  # fmt: skip
def test_an_event_with_a_value_of_another_kind_is_damage(tmp_path, wrong):
    path = written(tmp_path, {"segments": [], "device_traces": [[ENTRY, ENTRY | wrong]]})
    with pytest.raises(FileError, match=r"run.pickle is damaged"):
        read_snapshot(path)


def test_a_file_that_asks_for_much_memory_does_not_get_it(tmp_path):
    path = tmp_path / "a.pickle"
    for opcode, message in (
        # a table of back references of 64 GB
        (b"r" + struct.pack("<I", 0xFFFFFFF0), "back reference 4,294,967,280"),
        (b"X" + struct.pack("<I", 0xFFFFFFF0), "a text of 4,294,967,284 bytes"),
        (b"\x8d" + struct.pack("<Q", 1 << 62), "a text of"),
    ):
        path.write_bytes(assembled(b"}(\x8c\x08segments]", opcode, b"u"))
        with pytest.raises(FileError, match=message):
            read_snapshot(path)


def nested(depth):
    """A tuple of a tuple of a tuple, each twice the one within."""
    return b")\x94" + b"".join(b"h%c\x86\x94" % n for n in range(depth))


def test_pairs_of_numbers_are_read_and_other_tuples_are_refused(tmp_path):
    entries = [ENTRY | {"pool_id": pair} for pair in ((0, 0), (0, 300), (1 << 40, 1 << 20))]
    path = written(tmp_path, {"segments": [], "device_traces": [entries]})
    assert len(read_snapshot(path).traces[0]) == 3
    for more in ({(1, 2, 3): 0}, {((1, 2), (3, 4)): 0}, {"a": (1, 2, 3, 4, 5)}, {"a": ("b", "c")}):
        path = written(tmp_path, {"segments": [], "more": more})
        with pytest.raises(FileError, match="the pickle opcode TUPLE"):
            read_snapshot(path)


def test_values_that_never_end_when_they_are_hashed_or_printed_are_refused(tmp_path):
    path = tmp_path / "a.pickle"
    path.write_bytes(assembled(b"}(\x8c\x08segments", nested(60), b"u"))
    with pytest.raises(FileError, match="the pickle opcode TUPLE2"):
        read_snapshot(path)
    lists = [0]
    for _ in range(60):
        lists = [lists, lists]
    path = written(tmp_path, {"segments": [], "device_traces": [[ENTRY | {"size": lists}]]})
    with pytest.raises(FileError, match="damaged"):
        read_snapshot(path)
    block = {"size": lists, "state": lists, "address": lists}
    path = written(tmp_path, {"segments": [{"total_size": 5, "blocks": [block]}]})
    with pytest.raises(FileError, match="of type list is what should be a size"):
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
@settings(max_examples=80, deadline=None)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path_factory, seed, count):
    draw = random.Random(seed)
    content = bytearray(pickle.dumps(recorded(seed=1, steps=12).snapshot()))
    for _ in range(count):
        content[draw.randrange(2, len(content))] = draw.randrange(256)
    path = tmp_path_factory.getbasetemp() / "damaged.pickle"
    path.write_bytes(bytes(content))
    with suppress(FileError):
        read_snapshot(path)


@pytest.mark.parametrize("chunk", [100, 1 << 16])
def test_chunks_of_any_size_give_the_same(tmp_path, monkeypatch, chunk):
    path = written(tmp_path, recorded(seed=5, steps=700).snapshot())
    whole = read_snapshot(path)
    monkeypatch.setattr(reading, "CHUNK_BYTES", chunk)
    assert columns(read_snapshot(path).traces[0]) == columns(whole.traces[0])
    assert read_snapshot(path).segments == whole.segments


def test_the_events_of_a_long_file_are_never_in_memory_together(tmp_path, monkeypatch):
    path = written(tmp_path, large(events=3000, depth=12, stacks=40))
    counts = []
    add = Columns.add

    def counted(self, entries):
        counts.append(len(entries))
        add(self, entries)
        assert not any(entries)

    monkeypatch.setattr(Columns, "add", counted)
    snapshot = read_snapshot(path)
    assert max(counts) <= 1000 and sum(counts) == 3000
    assert (snapshot.traces[0].action == ALLOC).sum() == 1000
    assert gc.isenabled()


def test_blocks_that_many_segments_share_do_not_fill_the_memory(tmp_path):
    blocks = [{"size": 512, "state": "inactive", "address": 0} for _ in range(2000)]
    segments = [{"total_size": 512, "blocks": blocks} for _ in range(2000)]
    path = written(tmp_path, {"segments": segments, "device_traces": []})
    with pytest.raises(FileError, match="more blocks than bytes"):
        read_snapshot(path)
