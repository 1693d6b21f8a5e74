"""The buffers of one run: what makes them, what touches them last, when they are released."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.memory.lifetimes import Recording, record
from paifuser_lab.workload import running


def seen(model: nn.Module, *inputs: Tensor) -> Recording:
    return record(model.eval(), lambda: model(*inputs))


class Stepwise(nn.Module):
    """Five operators of 4 kB each; the second is a view, the third works in place."""

    def forward(self, x: Tensor) -> Tensor:
        first = x + 1
        second = first.view(-1)
        second.mul_(2)
        third = second.cos()
        del first, second
        return third.exp()


def test_views_and_results_in_place_are_the_same_buffer():
    recording = seen(Stepwise(), torch.ones(10, 100))
    rows = [
        (one.operator, one.begin, one.end, one.released, one.is_output) for one in recording.buffers
    ]
    assert recording.operators == 5
    assert rows == [
        ("add", 0, 3, 4, False),
        ("cos", 3, 4, 5, False),
        ("exp", 4, 4, None, True),
    ]
    assert {one.size_bytes for one in recording.buffers} == {4000}
    assert recording.referenced_bytes == 8000


class Holding(nn.Module):
    """Refers to its first value until the end, without reading it."""

    def forward(self, x: Tensor) -> Tensor:
        first = x + 1
        second = first * 2
        third = second * 3
        del second
        fourth = third * 4
        del first
        return fourth


def test_a_value_that_is_held_longer_than_it_is_read_is_told_apart():
    recording = seen(Holding(), torch.ones(1000))
    first = recording.buffers[0]
    assert (first.end, first.released) == (1, 4)
    assert recording.referenced_bytes == 3 * 4000


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x + 1)
        return (self.kept[-1] * 2).cos()


def test_what_outlives_the_call_is_alive_to_the_end_and_no_output():
    recording = seen(Keeping(), torch.ones(10))
    kept = recording.buffers[0]
    assert (kept.end, kept.released, kept.is_output) == (2, None, False)


def test_inputs_and_weights_are_no_buffers():
    line = nn.Linear(4, 3)
    recording = seen(nn.Sequential(nn.Flatten(), line), torch.ones(2, 2, 2))
    assert [(one.layer, one.size_bytes) for one in recording.buffers] == [("1", 2 * 3 * 4)]
    whole, flatten, linear = recording.calls
    assert (whole.layer, flatten.caller, linear.caller) == ("", "", "")
    assert linear.given is not None and linear.given.buffer is None
    assert (flatten.begin, flatten.end, linear.end) == (0, 1, recording.operators)


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole, self.part, self.wide = nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        part = self.part(y[:1])
        wide = self.wide((x[:1, :1] + 1).expand(2, 4))
        return self.whole(y.t()) + part.t() + wide.t()


def test_an_argument_is_whole_if_it_is_all_of_its_memory():
    calls = {call.layer: call for call in seen(Parts(), torch.ones(2, 4)).calls}
    whole, part, wide = (calls[layer].given for layer in ("whole", "part", "wide"))
    assert whole is not None and part is not None and wide is not None
    assert (whole.is_whole, part.is_whole, wide.is_whole) == (True, False, False)
    assert (whole.buffer, part.buffer) == (0, 0)


@pytest.mark.parametrize("name", ["vit-s-tiny", "yolo-tiny"])
def test_every_buffer_of_a_zoo_model_lives_within_the_run(name, one_thread):
    work = lab.load(name)
    inputs = work.inputs.clone()
    with running(work.model):
        recording = record(work.model, lambda: inputs(work.model))
    assert len(recording.buffers) > 10
    for one in recording.buffers:
        assert 0 <= one.begin <= one.end < recording.operators and one.size_bytes > 0
        assert one.released is None or one.end < one.released <= recording.operators
    assert sum(one.is_output for one in recording.buffers) >= 1
    assert not [one for one in recording.buffers if one.released is None and not one.is_output]
