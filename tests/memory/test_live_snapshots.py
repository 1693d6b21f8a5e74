"""A run on this machine as a snapshot: every byte has a category, a layer and a line of code."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.errors import FileError, MeasureError
from paifuser_lab.measure import peak_bytes
from paifuser_lab.memory.snapshots import live
from paifuser_lab.memory.snapshots.stacks import Frame, Stacks
from paifuser_lab.records import MemorySnapshot
from paifuser_lab.workload import QUIET, running
from paifuser_lab.workload.batching import tensor_bytes

pytestmark = pytest.mark.usefixtures("one_thread")
KB = 1000


class Net(nn.Module):
    """Buffers of known sizes: 100 kB a row of 25 examples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(10, 1000), nn.GELU(), nn.Linear(1000, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = y * 2.0
        return self.last(self.act(y) + z)


def net(batch: int = 25) -> lab.Workload:
    return lab.Workload(Net(), torch.randn(batch, 10), name="net")


def weights_of(model: nn.Module) -> int:
    return sum(one.nbytes for one in (*model.parameters(), *model.buffers()))


def by_category(record: MemorySnapshot) -> dict[str, int]:
    held: dict[str, int] = {}
    for row in record.at_peak:
        held[row.category] = held.get(row.category, 0) + row.held_bytes
    return held


@pytest.mark.parametrize("name", ["vit-s-tiny", "unet-tiny"])
def test_the_peak_is_that_of_the_allocator_with_weights_and_inputs(name):
    work = lab.load(name)
    record = lab.memory_snapshot(work)
    inputs = work.inputs.clone()
    with running(work.model):
        called = peak_bytes(lambda: inputs(work.model), work.device)
    assert record.peak_bytes == weights_of(work.model) + tensor_bytes(work.inputs) + called
    assert record.device_type == "cpu" and record.peak_reserved_bytes == 0 and not record.maps
    assert sum(row.held_bytes for row in record.layers) == record.peak_bytes
    assert sum(row.held_bytes for row in record.at_peak) == record.peak_bytes


def test_layers_lines_and_categories_are_those_of_the_code():
    record = lab.memory_snapshot(net())
    held = {(row.layer, row.category): row.held_bytes for row in record.layers}
    assert held["", "inputs"] == 25 * 10 * 4
    assert held["first", "weights"] == (10 * 1000 + 1000) * 4
    assert held["first", "activations"] == held["", "activations"] // 2 == 100 * KB
    assert held["act", "activations"] == 100 * KB
    lines = {row.site.partition(":")[0] for row in record.at_peak if row.category == "activations"}
    assert lines == {"memory/test_live_snapshots.py"}
    held = [row.held_bytes for row in record.at_peak if row.site.endswith(" Net.forward")]
    assert held.count(200 * KB) == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_of_training_has_gradients_and_optimizer_state(optimizer):
    work = net()
    before = [one.clone() for one in work.model.parameters()]
    options: dict[str, Any] = {"optimizer": optimizer, "momentum": 0.9} if optimizer == "sgd" else {
        "optimizer": optimizer
    }  # fmt: skip
    record = lab.memory_snapshot(work, True, **options)
    weights = weights_of(work.model)
    at_most = {
        name: max(column) for name, column in zip(record.categories, record.held_bytes, strict=True)
    }
    assert at_most["gradients"] == weights
    states = 1 if optimizer == "sgd" else 2
    assert states * weights <= at_most["optimizer state"] <= states * weights + 100
    kept = zip(work.model.parameters(), before, strict=True)
    assert all(torch.equal(one, other) and one.grad is None for one, other in kept)


def test_a_step_that_fails_is_refused_in_a_sentence():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with pytest.raises(MeasureError, match=r"^net fails in this step \(ValueError: Expected more"):
        lab.memory_snapshot(lab.Workload(model, torch.ones(1, 4), name="net"), True)


def test_what_the_backward_pass_makes_belongs_to_the_layer_it_differentiates():
    model = nn.Sequential(nn.Linear(10, 1000), nn.Sigmoid(), nn.Linear(1000, 10))
    record = lab.memory_snapshot(lab.Workload(model, torch.randn(2500, 10)), True)
    held = {(row.layer, row.category): row.held_bytes for row in record.layers}
    # at the peak: sigmoid's output, the gradient of it, and the gradient of the first layer's
    assert held["1", "activations"] == 20_000 * KB and held["2", "activations"] == 10_000 * KB
    assert sum(size for (layer, _), size in held.items() if not layer) < 500 * KB
    assert not any(kind == "unknown" for _, kind in held)


def test_a_variant_is_recorded_as_it_runs():
    model = nn.Sequential(nn.Linear(10, 1000), nn.ReLU(), nn.Linear(1000, 10))
    work = lab.Workload(model, torch.randn(25, 10))
    reused = lab.apply(work, lab.Recipe(["reuse"]))
    held = [by_category(lab.memory_snapshot(one))["activations"] for one in (work, reused)]
    assert held == [200 * KB, 101 * KB]


@pytest.mark.parametrize("train", [False, True])
def test_no_other_thread_runs_a_model_while_one_is_recorded(train):
    taken: list[bool] = []

    def try_in_a_thread(*given: Any) -> None:
        thread = Thread(target=lambda: taken.append(QUIET.acquire(blocking=False)))
        thread.start()
        thread.join()

    work = net()
    work.model.act.register_forward_pre_hook(try_in_a_thread)
    lab.memory_snapshot(work, train=train)
    assert taken and not any(taken)


def test_the_command_line_writes_a_page_without_scripts(tmp_path, command):
    path = tmp_path / "report.html"
    code, out, _ = command("memory", "resnet18-tiny", "--html", path)
    assert code == 0
    page = path.read_text(encoding="utf-8")
    assert "Largest by layer at the peak" in page and "one run on a CPU" in page
    assert "<script" not in page and "reserved at the peak" not in page
    assert "layer1.0" in page and "report in" in out


def test_options_are_for_workloads_alone(tmp_path):
    for more in ({"batch": 2}, {"train": True}, {"precision": "bf16"}):
        with pytest.raises(FileError, match="one recorded run"):
            lab.memory_snapshot(tmp_path / "any.pickle", **more)
    with pytest.raises(MeasureError, match="batch=0 is not possible"):
        lab.memory_snapshot(net(), batch=0)
    with pytest.raises(MeasureError, match="no option of a step"):
        lab.memory_snapshot(net(), precision="none")


class History:
    """Torch's memory history on CUDA: what is called of it."""

    def __init__(self, monkeypatch, *, is_on: bool) -> None:
        self.calls: list[Any] = []
        memory, calls = torch.cuda.memory, self.calls
        monkeypatch.setattr(memory, "_record_memory_history", lambda **how: calls.append(how))
        monkeypatch.setattr(memory, "_snapshot", self.snapshot)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("waited"))
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: is_on, raising=False)

    def snapshot(self, device: torch.device) -> dict[str, Any]:
        event = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
        return {"segments": [], "device_traces": [[event]], "allocator_settings": {}}

    def record(self, call=None):
        work = net()
        call = call or (lambda observer: self.calls.append("called"))
        return live._history(work, work.model, [], call)


def test_a_gpu_s_own_history_is_taken_and_ended(monkeypatch):
    history = History(monkeypatch, is_on=False)
    found, calls = history.record(), history.calls
    assert found.name == "net" and found.device_type == "cuda" and len(found.trace(0)) == 1
    assert calls[1:] == ["called", "waited", {"enabled": None}] and "max_entries" in calls[0]

    def fails(observer):
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        history.record(fails)
    assert calls[-1] == {"enabled": None}


def test_a_history_that_the_caller_records_is_left_alone(monkeypatch):
    history = History(monkeypatch, is_on=True)
    with pytest.raises(MeasureError, match="is on already"):
        history.record()
    assert not history.calls


TORCH = "/usr/lib/python3.11/site-packages/torch/nn/modules"
OWN = Frame("forward", "/home/user/net.py", 31)


@pytest.mark.parametrize(
    ("frames", "layer"),
    [
        ([Frame("forward", f"{TORCH}/conv.py", 9), OWN], "user/net.py:31 forward › conv"),
        ([Frame("Conv2d.forward", f"{TORCH}/conv.py", 9), OWN], "user/net.py:31 forward › Conv2d"),
        ([Frame("relu", "/home/user/net.py", 3), OWN], "user/net.py:31 forward"),
        ([Frame("forward", f"{TORCH}/linear.py", 9)], "linear"),
        ([Frame("step", f"{TORCH}/../../optim/adam.py", 9)], ""),
        ([], ""),
    ],
)
def test_the_layer_of_a_gpu_s_stack_is_its_innermost_forward(frames, layer):
    stacks = Stacks()
    stacks.frames.extend(frames)
    stacks.stacks.append(tuple(range(len(frames))))
    assert stacks.layers == ("", layer)
