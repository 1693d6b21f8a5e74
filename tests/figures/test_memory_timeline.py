"""The memory timeline: to the byte what measure.peak_bytes says, each byte with its layer, and the
same from Python to the page.
"""

from __future__ import annotations

import numpy
import pytest
import torch
from pydantic import ValidationError
from torch import nn

import paifuser_lab as lab
from paifuser_lab import profiler
from paifuser_lab.errors import FileError, ForwardError, WorkloadError
from paifuser_lab.measure import peak_bytes
from paifuser_lab.records import MemoryTimeline, Record
from paifuser_lab.records.memory import MOST_GROUPS, OTHERS, layer_groups
from paifuser_lab.widgets.section import packed
from paifuser_lab.workload import running
from tests.support.models import Mapped, Small, Tied, ids, images

A_FLOAT = 4


class Stepwise(nn.Module):
    """It takes 4 kB, then 8 kB beside it, gives the first back and answers with half of the
    second.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wide = Widened()

    def forward(self, x):
        first = x.clone()
        second = self.wide(first)
        del first
        return second[:1000].clone()


class Widened(nn.Module):
    def forward(self, x):
        return torch.cat([x, x])


def stepwise():
    return profiler.memory_timeline(lab.Workload(Stepwise(), torch.zeros(1000), name="steps"))


@pytest.mark.parametrize(
    "name", [name for name in lab.models() if name.endswith("-tiny") and "digits" not in name]
)
def test_the_peak_is_to_the_byte_what_measure_says(name):
    work = lab.load(name)
    seen = profiler.memory_timeline(work)
    with running(work.model):
        inputs = work.inputs.clone()
        assert seen.peak_bytes == peak_bytes(lambda: inputs(work.model), work.device) > 0
    assert sum(row.held_bytes for row in seen.at_peak) == seen.peak_bytes + seen.total_weights_bytes
    state = {id(one): one.nbytes for one in (*work.model.parameters(), *work.model.buffers())}
    assert seen.total_weights_bytes == sum(state.values())
    assert (
        min(seen.alive_bytes) >= 0
        and list(seen.time_ms) == sorted(seen.time_ms)
        and seen.time_ms[-1] <= seen.duration_ms
    )


def test_each_byte_is_told_with_the_layer_that_took_it_and_the_time_that_it_lives():
    seen = stepwise()
    assert seen.layers == ("", "wide")
    taken = [
        (seen.layers[index], change)
        for index, change in zip(seen.layer_index, seen.change_bytes, strict=True)
    ]
    assert taken == [("", 4000), ("wide", 8000), ("", -4000), ("", 4000), ("wide", -8000)]
    assert seen.alive_bytes == (4000, 12000, 8000, 12000, 4000) and seen.peak_event == 1
    assert [(row.layer, row.kind, row.held_bytes) for row in seen.at_peak] == [
        ("wide", "activations", 8000),
        ("", "activations", 4000),
    ]
    assert "8 kB (67%)" in seen.sentence and "activations of wide" in seen.sentence


def test_what_an_operator_gives_back_before_it_ends_is_its_workspace():
    seen = profiler.memory_timeline(
        lab.Workload(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()), torch.randn(1, 8, 4, 4))
    )
    held = [row for event in range(len(seen.time_ms)) for row in seen.held_at(event)]
    assert {(row.layer, row.kind) for row in held} >= {
        ("0", "workspace"),
        ("0", "activations"),
        ("1", "activations"),
        ("0", "weights"),
    }
    assert not [row for row in held if row.kind == "workspace" and row.layer == "1"]
    statistics = 2 * 8 * A_FLOAT
    assert max(row.held_bytes for row in held if row.kind == "workspace") == statistics


def test_weights_that_are_tied_are_counted_once():
    model = Tied()
    seen = profiler.memory_timeline(lab.Workload(model, ids()))
    weights = dict(zip(seen.layers, seen.weights_bytes, strict=True))
    assert weights["table"] == 7 * 4 * A_FLOAT and weights.get("head", 0) == 0


def test_a_variant_is_watched_as_well_as_a_workload():
    work = lab.Workload(Small(), images(), name="small")
    folded = profiler.memory_timeline(lab.apply(work, lab.Recipe(["fold"])))
    assert folded.peak_bytes <= profiler.memory_timeline(work).peak_bytes
    assert "norm" not in {folded.layers[index] for index in folded.layer_index}


def test_a_model_that_takes_nothing_is_told_so_and_drawn():
    seen = profiler.memory_timeline(lab.Workload(nn.Identity(), torch.zeros(3), name="nothing"))
    assert (seen.peak_bytes, seen.peak_event, seen.at_peak) == (0, -1, ())
    assert "takes nothing" in seen.sentence and seen.table()[0]["kind"] == "nothing"
    assert lab.figure(seen).png().startswith(b"\x89PNG")


def test_what_is_no_workload_and_a_model_that_fails_are_refused_by_name():
    with pytest.raises(WorkloadError, match="wrap the model"):
        profiler.memory_timeline(nn.Linear(2, 2))
    with pytest.raises(ForwardError, match="layer '1'"):
        profiler.memory_timeline(
            lab.Workload(nn.Sequential(nn.ReLU(), nn.Linear(3, 3)), torch.zeros(1, 2))
        )


def test_the_record_travels_and_what_does_not_fit_together_is_refused(tmp_path):
    seen = stepwise()
    path = seen.save(tmp_path / "memory.json")
    assert Record.load(path) == seen
    path.write_text(path.read_text().replace('"weights_bytes": [\n', '"weights_bytes": [\n   7,\n'))
    with pytest.raises(FileError, match="2 layers have 3 figures of weights"):
        MemoryTimeline.load(path)
    with pytest.raises(ValidationError, match="not listed"):
        MemoryTimeline(**seen.model_dump() | {"layer_index": [9] * len(seen.time_ms)})
    with pytest.raises(ValidationError, match="differ in length"):
        MemoryTimeline(**seen.model_dump() | {"time_ms": [0.0]})
    assert list(seen.frame["alive_bytes"]) == list(seen.alive_bytes) and "12 kB" in str(seen)


def test_many_layers_become_a_few_groups_in_their_order():
    layers = [
        "bert.words",
        *(f"bert.layer.{index}.{part}" for index in range(3) for part in "ab"),
        "head",
    ]
    names, group_of = layer_groups(layers, [1, 9, 5, 5, 5, 8, 5, 1])
    opened = (
        "bert.layer.0.a",
        "bert.layer.0.b",
        "bert.layer.1",
        "bert.layer.2.a",
        "bert.layer.2.b",
    )
    assert names == ("bert.words", *opened, "head"), "the largest branches are opened"
    assert group_of == (0, 1, 2, 3, 3, 4, 5, 6)
    names, group_of = layer_groups([f"layer{index}" for index in range(20)], list(range(20)))
    assert (
        len(names) == MOST_GROUPS and names[-1] == OTHERS and group_of.count(MOST_GROUPS - 1) == 14
    )
    assert layer_groups([""], [0]) == (("",), (0,))


def test_the_page_is_sent_the_events_to_the_byte():
    seen = stepwise()
    data = packed(seen)
    assert numpy.frombuffer(data["change_bytes"], "<f8").tolist() == list(seen.change_bytes)
    assert [data["layers"][place] for place in numpy.frombuffer(data["layer_index"], "<u2")] == [
        "",
        "wide",
        "",
        "",
        "wide",
    ]
    assert data["groups"] == ["", "wide"] and data["sentence"] == seen.sentence


def test_it_is_shown_and_drawn_with_any_name():
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)> $x", nn.Linear(4, 4))
    seen = profiler.memory_timeline(lab.Workload(model, torch.zeros(2, 4), name="$odd$ <b>"))
    panel = lab.show(seen)
    assert panel.view == "memory" and "<img src=x" not in panel.twin().split("base64")[0]
    panel.close()
    assert lab.figure(seen, dark=True).png().startswith(b"\x89PNG")


def test_a_dict_in_and_out_is_watched():
    seen = profiler.memory_timeline(lab.Workload(Mapped(), {"ids": ids()}))
    assert seen.alive_bytes[-1] > 0, "the answer is still held at the end"
