"""Traces are written with layer names, read as a stream, and have torch's own figures."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import profiler
from paifuser_lab.errors import FileError
from paifuser_lab.profiler.traces import writing
from paifuser_lab.profiler.traces.events import Events
from paifuser_lab.profiler.traces.reading import read_trace
from paifuser_lab.profiler.traces.summary import summary_of
from paifuser_lab.records import Record
from paifuser_lab.views.trace import picture
from tests.support.models import Small, Tied, ids, images
from tests.support.processes import python


def event(name, start, length, category="cpu_op", *, tid=1, **args):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 7,
        "tid": tid,
        "ts": start,
        "dur": length,
        "args": args,
    }


def ids_of(external=0, correlation=0, **more):
    return {"External id": external, "correlation": correlation, **more}


def written(path, events, **more):
    path.write_text(json.dumps({"schemaVersion": 1, **more, "traceEvents": events}))
    return path


def summary(events):
    columns = Events("made up")
    for event in events:
        columns.add(event)
    return summary_of(columns)


def by_name(rows):
    return {row.name: row for row in rows}


def work(model=None):
    return lab.Workload(model or Small(), images(), name="small")


# A GPU's trace in Kineto's format: two layers, one kernel joined by its operator's number and one
# by its launch alone.
LAUNCH, KERNEL, COPY = "cuda_runtime", "kernel", "gpu_memcpy"
GPU = [
    event("ProfilerStep#1", 0, 100, "user_annotation"),
    event("(Net)", 0, 90, "user_annotation"),
    event("conv (Conv2d)", 5, 35, "user_annotation"),
    event("aten::conv2d", 10, 20, **ids_of(11)),
    event("aten::cudnn_convolution", 12, 15, **ids_of(12)),
    event("cudaLaunchKernel", 20, 4, LAUNCH, **ids_of(12, 101)),
    event("head (Linear)", 45, 30, "user_annotation"),
    event("aten::addmm", 50, 20, **ids_of(13)),
    event("cuLaunchKernel", 55, 4, "cuda_driver", **ids_of(0, 102)),
    event("aten::item", 80, 8, **ids_of(14)),
    event("aten::_local_scalar_dense", 81, 6, **ids_of(15)),
    event("cudaStreamSynchronize", 82, 5, LAUNCH, **ids_of(15, 103)),
    event("conv_kernel<float>", 30, 20, KERNEL, tid=3, **ids_of(12, 101, device=0, stream=7)),
    event("gemm_kernel", 60, 10, KERNEL, tid=3, **ids_of(0, 102, device=0, stream=7)),
    event("other_stream", 65, 15, KERNEL, tid=4, **ids_of(0, 0, device=0, stream=8)),
    event(
        "Memcpy HtoD (Pageable -> Device)",
        2,
        3,
        COPY,
        tid=3,
        **ids_of(0, 0, device=0, stream=7, bytes=4096),
    ),
    event(
        "Memcpy DtoH (Device -> Pageable)",
        83,
        2,
        COPY,
        tid=3,
        **ids_of(15, 104, device=0, stream=7, bytes=4),
    ),
    event("(Net)", 10, 70, "gpu_user_annotation", tid=3),
    {"ph": "f", "id": 101, "pid": 7, "tid": 3, "ts": 30, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    {"ph": "M", "name": "process_name", "ts": 0, "pid": 7, "tid": 0, "args": {"name": "python"}},
]


def test_a_trace_names_every_layer_by_its_path_and_type(tmp_path):
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3)), nn.ReLU())
    result = profiler.trace(
        lab.Workload(model, images(), name="net"), tmp_path / "net.json", runs=2
    )
    written_events = json.loads((tmp_path / "net.json").read_text())["traceEvents"]
    names = [row["name"] for row in written_events if row.get("cat") == "user_annotation"]
    assert (
        names.count("0.0 (Conv2d)") == names.count("1 (ReLU)") == names.count("(Sequential)") == 2
    )
    assert [name for name in names if name.startswith("ProfilerStep#")] == [
        "ProfilerStep#1",
        "ProfilerStep#2",
    ]
    assert {(row.layer, row.type, row.calls) for row in result.layers} == {
        ("", "Sequential", 2), ("0", "Sequential", 2), ("0.0", "Conv2d", 2), ("1", "ReLU", 2)
    }  # fmt: skip
    assert result.layers[0].layer == ""
    assert result.steps == 2 and not result.is_interrupted and not result.has_device
    assert result.device_idle_ratio is None and 0 <= result.cpu_idle_ratio < 1
    assert result.name == "net.json"


def test_a_traced_model_and_its_inputs_are_as_before(tmp_path):
    workload = work(Small().train())
    before = {name: value.clone() for name, value in workload.model.state_dict().items()}
    given_inputs = workload.inputs.args[0].clone()
    profiler.trace(workload, tmp_path / "a.json", runs=1)
    assert workload.model.training and torch.equal(workload.inputs.args[0], given_inputs)
    assert all(
        torch.equal(before[name], value) for name, value in workload.model.state_dict().items()
    )
    assert nn.Module.__call__.__name__ != "_watched_call"


def test_a_gzipped_trace_has_the_summary_of_a_plain_one(tmp_path):
    gzipped = profiler.trace(work(), tmp_path / "a.json.gz", runs=1)
    packed = (tmp_path / "a.json.gz").read_bytes()
    (tmp_path / "a.json").write_bytes(gzip.decompress(packed))
    plain = read_trace(tmp_path / "a.json")
    assert (
        plain.model_copy(update={"name": "a.json.gz"})
        == gzipped
        == read_trace(tmp_path / "a.json.gz")
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.json.gz"]


def test_a_folder_gets_a_file_that_tensorboard_looks_for_and_the_newest_is_read(tmp_path):
    workload = lab.Workload(Tied(), ids(), name="tied & co")
    first = profiler.trace(workload, tmp_path / "log", runs=1)
    second = profiler.trace(workload, tmp_path / "log", runs=2)
    names = sorted(file.name for file in (tmp_path / "log").iterdir())
    assert [first.name, second.name] == names
    assert all(re.fullmatch(r"tied_co\.\d+\.pt\.trace\.json", name) for name in names)
    assert read_trace(tmp_path / "log").steps == 2


@pytest.mark.parametrize("name", ["trace.txt", "trace.json.zip", "trace.gz", "taken"])
def test_a_trace_is_written_under_a_name_that_viewers_know(tmp_path, name):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(FileError, match=r"ends in \.json or \.json\.gz, or a folder"):
        profiler.trace(work(), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


class Stopping(nn.Module):
    """Somebody presses Ctrl-C during its n-th run."""

    def __init__(self, *, stops_at):
        super().__init__()
        self.line = nn.Linear(8, 8)
        self.runs, self.stops_at = 0, stops_at

    def forward(self, x):
        self.runs += 1
        answer = self.line(x)
        if self.runs == self.stops_at:
            raise KeyboardInterrupt
        return answer


def test_what_was_traced_before_an_interruption_is_kept(tmp_path):
    result = profiler.trace(
        lab.Workload(Stopping(stops_at=5), images()), tmp_path / "a.json", runs=9
    )
    assert result.is_interrupted and "stopped early" in result.title
    assert 2 <= by_name(result.operators)["aten::linear"].calls <= 3


def test_an_interruption_before_the_first_traced_run_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        profiler.trace(lab.Workload(Stopping(stops_at=3), images()), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
    assert not torch.autograd.profiler._is_profiler_enabled


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("recorded") / "small.pt.trace.json"
    recorder, _ = writing._record(work(), 3)
    writing._export(recorder, path, is_gzip=False)
    return recorder, path


def test_the_operators_are_those_of_key_averages(recorded):
    recorder, path = recorded
    result = by_name(read_trace(path).operators)
    theirs = {
        row.key: row
        for row in recorder.key_averages()
        if not row.is_user_annotation and row.key in result
    }
    assert len(result) > 15 and set(theirs) == set(result)
    for name, row in theirs.items():
        assert result[name].calls == row.count, name
        assert result[name].total_ms == pytest.approx(row.cpu_time_total / 1e3, abs=2e-3), name
        assert result[name].self_ms == pytest.approx(row.self_cpu_time_total / 1e3, abs=2e-3), name


def test_kernels_belong_to_the_operator_and_the_layer_that_launched_them():
    result = summary(random.Random(1).sample(GPU, len(GPU)))
    assert result.has_device
    operators = by_name(result.operators)
    assert operators["aten::cudnn_convolution"].device_self_ms == pytest.approx(0.020)
    assert operators["aten::conv2d"].device_self_ms == 0
    assert operators["aten::conv2d"].device_ms == pytest.approx(0.020)
    assert operators["aten::addmm"].device_ms == pytest.approx(0.010)
    assert operators["aten::item"].device_ms == pytest.approx(0.002)
    assert operators["aten::conv2d"].self_ms == pytest.approx(0.005)
    kernels = {row.name: (row.device_ms, row.layer, row.layer_count) for row in result.kernels}
    assert kernels == {
        "conv_kernel<float>": (pytest.approx(0.020), "conv", 1),
        "gemm_kernel": (pytest.approx(0.010), "head", 1),
        "other_stream": (pytest.approx(0.015), None, 0),
    }
    layers = {row.layer: (row.type, row.calls, row.cpu_ms, row.device_ms) for row in result.layers}
    assert layers["conv"] == ("Conv2d", 1, pytest.approx(0.035), pytest.approx(0.020))
    assert layers["head"] == ("Linear", 1, pytest.approx(0.030), pytest.approx(0.010))
    assert layers[""] == ("Net", 1, pytest.approx(0.090), pytest.approx(0.032))


def test_idle_time_waits_copies_and_launches_are_counted():
    result = summary(GPU)
    assert result.span_ms == pytest.approx(0.1)
    assert result.device_idle_ratio == pytest.approx(
        1 - (20 + 20) / 100
    )  # kernels at 30–50 and, on two streams, 60–80
    assert result.cpu_idle_ratio == pytest.approx(1 - (20 + 20 + 8) / 100)
    assert (result.synchronisations, result.synchronisation_ms) == (1, pytest.approx(0.005))
    assert (result.value_reads, result.launches, result.steps, result.events) == (1, 2, 1, len(GPU))
    copies = {row.direction: (row.calls, row.bytes, row.device_ms) for row in result.copies}
    assert copies == {
        "host to device": (1, 4096, pytest.approx(0.003)),
        "device to host": (1, 4, pytest.approx(0.002)),
    }


def test_modules_that_torch_names_are_layers_and_python_calls_are_not():
    result = summary([
        event("nn.Module: Conv2d_0", 0, 10, "python_function"),
        event("torch/nn/modules/module.py(1): _call", 0, 9, "python_function"),
        event("aten::conv2d", 2, 4),
    ])  # fmt: skip
    assert [(row.layer, row.type) for row in result.layers] == [("Conv2d_0", "Conv2d")]


def test_data_loading_is_reported(tmp_path):
    data = torch.utils.data.DataLoader(torch.zeros(4, 2), batch_size=2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorder:
        batches = list(data)
    recorder.export_chrome_trace(str(tmp_path / "a.json"))
    result = read_trace(tmp_path / "a.json")
    assert len(batches) == 2 and result.data_loading_ms > 0
    assert "data loading" in str(result)


def test_a_list_of_events_without_categories_is_a_trace_too(tmp_path):
    with torch.autograd.profiler.profile() as recorder:
        torch.ones(3) @ torch.ones(3)
    recorder.export_chrome_trace(str(tmp_path / "old.json"))
    assert "aten::matmul" in by_name(read_trace(tmp_path / "old.json").operators)


def test_rounded_clocks_neither_lose_nor_invent_nesting():
    result = by_name(
        summary(
            [event("a", 0, 10.0), event("b", 4, 6.2), event("c", 9.9, 5), event("d", 12, 2.95)]
        ).operators
    )
    assert result["a"].self_ms == pytest.approx(0.004)  # b ends a little late and is in it
    assert result["b"].self_ms == pytest.approx(0.0062)  # c begins a little early and is not
    assert result["c"].self_ms == pytest.approx(0.0021)
    twins = by_name(summary([event("outer", 0, 5), event("inner", 0, 5)]).operators)
    assert (twins["outer"].self_ms, twins["inner"].self_ms) == (0, pytest.approx(0.005))


@pytest.mark.parametrize("length", [None, -1, "12", [], float("inf"), float("nan")])
def test_an_event_without_a_valid_time_is_left_out_and_counted(length):
    result = summary([event("aten::mm", 0, 5), event("aten::odd", 1, length)])
    assert [row.name for row in result.operators] == ["aten::mm"]
    assert result.skipped == 1 and "events without a sound time: 1" in str(result)


def test_strange_events_are_skipped():
    odd = [
        7,
        None,
        [],
        {"ph": "X"},
        {"ph": "X", "name": "no category", "ts": "soon", "dur": 1},
        {"ph": ["X"], "ts": 1},
        {"ph": "X", "name": "listed", "cat": ["cpu_op"], "ts": 1, "dur": 2},
        {
            "ph": "X",
            "name": None,
            "cat": "cpu_op",
            "pid": [1],
            "tid": {},
            "ts": 1,
            "dur": 2,
            "args": 3,
        },
        event("aten::mm", 0, 5, **ids_of("12", -3)),
        event("k", 2, 2, KERNEL, **ids_of(1 << 80, 1.5, bytes="many")),
    ]
    result = summary(odd)
    assert {row.name for row in result.operators} == {"aten::mm", "None"}
    assert result.kernels[0].layer is None and result.events == len(odd)


WHOLE = json.dumps(
    {
        "schemaVersion": 1,
        "traceEvents": [event("aten::mm", n, 1) for n in range(40)],
        "traceName": "x",
    }
).encode()
DAMAGED = {
    "empty": (b"", "was cut short after 0 events"),
    "no JSON": (b"PK\x03\x04 not json", "is not JSON"),
    "half": (WHOLE[: len(WHOLE) // 2], "was cut short after 1[0-9] events"),
    "no end": (WHOLE[:-1], "was cut short after 40 events"),
    "not UTF-8": (WHOLE.replace(b"aten::mm", b"aten\xff\xfe", 1), "is not JSON"),
    "NaN": (b'{"traceEvents": [{"ph": "X", "dur": NaN}]}', "is not JSON"),
    "a number": (b"12", "no operator, annotation or kernel"),
    "another object": (b'{"model": {"traceEvents": 3}}', "no operator, annotation or kernel"),
    "a list of numbers": (b"[1, 2, 3]", "no operator, annotation or kernel"),
    "no events": (b'{"traceEvents": []}', "no operator, annotation or kernel"),
    "only names": (
        b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}',
        "no operator, annotation or kernel",
    ),
    "half gzip of JSON": (gzip.compress(WHOLE)[:-20], "was cut short after [0-9]+ events"),
    "damaged gzip": (
        gzip.compress(WHOLE)[:30] + b"\xff" * 40 + gzip.compress(WHOLE)[70:],
        "is a damaged gzip file",
    ),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_ends_in_one_sentence(tmp_path, content, reason):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=rf"^bad\.json.*({reason})") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_missing_file_and_a_folder_without_traces_raise(tmp_path):
    with pytest.raises(FileError, match=r"Cannot read none\.json: No such file"):
        read_trace(tmp_path / "none.json")
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(FileError, match="a folder without a trace"):
        read_trace(tmp_path)


def test_numbers_beyond_64_bits_are_read(tmp_path):
    events = [event("aten::mm", 5, 3, Addr=2**64 - 1), event("k", 6, 1, KERNEL)]
    path = written(tmp_path / "a.json", events)
    assert read_trace(path) == summary(events).model_copy(update={"name": "a.json"})


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="asks Linux for the peak of memory"
)
def test_a_large_trace_is_read_in_a_fraction_of_its_size(tmp_path):
    path, count = tmp_path / "large.json", 40_000
    args = {
        "Input Dims": [[2, 3, 8, 8]] * 6,
        "Input type": ["float"] * 6,
        "Input Strides": [[192, 64, 8, 1]] * 6,
    }
    with path.open("w") as file:
        file.write('{"traceEvents": [\n')
        for number in range(count):
            one = json.dumps(
                event(f"aten::op{number % 50}", 10 * number, 9, **args, **ids_of(number + 1))
            )
            file.write(one + (",\n" if number + 1 < count else "\n]}"))
    small = written(
        tmp_path / "small.json", GPU
    )  # read first, so that what is loaded once does not count
    code = (
        "import re, sys\nfrom pathlib import Path\nfrom paifuser_lab.profiler import read_trace\n"
        "def kib(what):\n    return int(re.search(what + r':\\s*(\\d+) kB', "
        "Path('/proc/self/status').read_text())[1])\n"
        "read_trace(sys.argv[2])\nbefore = kib('VmRSS')\nfound = read_trace(sys.argv[1])\n"
        "print(found.events, len(found.operators), 1024 * (kib('VmHWM') - before))"
    )
    done = python("-c", code, path, small)
    events, operators, peak_bytes = map(int, done.stdout.split())
    assert (events, operators) == (count, 50)
    assert peak_bytes < path.stat().st_size / 2


def test_a_summary_is_read_without_any_viewer(tmp_path):
    result = summary(GPU)
    text = str(result)
    for part in (
        "device idle: 60%",
        "waiting for the device: 1 call, 0.005 ms",
        "copies, host to device: 1 of 4.1 kB in all",
        "values read back: 1",
        "aten::cudnn_convolution",
        "conv (Conv2d)",
        "gemm_kernel",
    ):
        assert part in text
    assert list(result.frame.columns) == [
        "calls",
        "self_ms",
        "total_ms",
        "device_self_ms",
        "device_ms",
    ]
    assert result.frame.loc["aten::addmm", "self_ms"] == pytest.approx(0.020)
    assert list(result.frame["self_ms"]) == sorted(result.frame["self_ms"], reverse=True)
    result.save(tmp_path / "a.json")
    assert Record.load(tmp_path / "a.json") == result


def test_a_drawing_of_a_device_shows_who_started_its_work():
    shares, times = picture(summary(GPU)).panels
    assert list(shares.y.names) == ["main thread", "device"]
    assert shares.marks[-1].texts == ["48% in operators, 52% outside", "40% in kernels, 60% idle"]
    assert list(shares.marks[0].x2) == pytest.approx([0.48, 0.4], abs=0.01)
    assert times.y.names[0] == "aten::cudnn_convolution"
    assert times.marks[-1].texts[0].startswith("0.02 ms")


def test_seconds_are_drawn_without_an_exponent():
    *_, times = picture(summary([event("aten::mm", 0, 3_456_000)])).panels
    assert times.marks[-1].texts == ["3460 ms · 1 ×"]


def test_names_of_layers_that_would_break_json_or_html_do_not(tmp_path):
    model = nn.Sequential()
    model.add_module('a"b\\<script>', nn.Linear(8, 4))
    result = profiler.trace(lab.Workload(model, images()), tmp_path / "a.json", runs=1)
    assert len(result.layers) == 2
    assert "<script>" not in result._repr_html_()
