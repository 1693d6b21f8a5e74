"""Replayed operators: what is recorded equals the model for other inputs, or is refused."""

from __future__ import annotations

import copy
import dis
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.engines.replay import MAX_KINDS, Replay
from paifuser_lab.engines.tape import Tape
from paifuser_lab.errors import StepError
from paifuser_lab.workload import Inputs
from tests.support.engines import Block
from tests.support.models import Small, images


class Calls(nn.Module):
    """A linear layer, and what a test gives after it."""

    def __init__(self, call: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.line, self.call = nn.Linear(4, 4), call

    def forward(self, x: Tensor) -> Any:
        return self.call(self.line(x))


def replayed(model: nn.Module, x: Tensor) -> Replay:
    return Replay(model.eval(), Inputs.of(x), 1)


STEPS: list[Callable[[Tensor], Tensor]] = [
    torch.relu,
    lambda x: x.add_(1),  # in place
    lambda x: x.t().contiguous().t(),
    lambda x: torch.cat([*x.split(2, 1)][::-1], 1),  # several outputs
    lambda x: x[:, ::2].repeat(1, 2),
    lambda x: x.sort(dim=1).values,
    lambda x: x[torch.tensor([2, 0, 1])],
    lambda x: x * torch.tensor(0.5),  # a constant that each call makes anew
    lambda x: x.masked_fill(x > 0, 1.5),
    lambda x: x + torch.tensor([0.0] * 4).add_(x[0]),  # written into, and new at the next call
    lambda x: torch.zeros_like(x).index_put_((torch.tensor([0]),), x[:1]),
    lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    lambda x: x.reshape(2, 6)[:, :4].mul_(2) + x[:2],  # may write through a view
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=6))
def test_any_operators_are_replayed_for_other_inputs_to_the_bit(steps: list[Any]) -> None:
    def call(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x) if x.shape == (3, 4) else torch.cat([x, x])[:3].clone()
        return x

    model = Calls(call).eval()
    engine = replayed(model, torch.randn(3, 4))
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(3, 4)
            assert torch.equal(engine(x.clone()), model(x.clone()))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x, "reads what a tensor holds"),
        (lambda x: x + x.max().item(), "reads what a tensor holds"),
        (lambda x: x[x > 0], "reads what a tensor holds"),
        (lambda x: x + torch.from_numpy(x.detach().numpy() * 2), "other operators"),
        (lambda x: x * len([y for y in x.flatten().tolist() if y > 9]), "Tensor.tolist"),
        (lambda x: x + torch.rand(4), "depends on more than"),
    ],
)
def test_what_depends_on_values_is_refused(call: Any, why: str) -> None:
    work = Workload(Calls(call), torch.randn(3, 4))
    with pytest.raises(StepError, match=why):
        lab.apply(work, Recipe([{"backend": "replay"}]))


def test_a_refusal_names_the_layer() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Calls(lambda x: x + x.max().item()))
    with pytest.raises(StepError, match="layer '1'"):
        replayed(model, torch.randn(3, 4))


class Switching(nn.Module):
    """Runs other operators where its first value is large, which torch does not see."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if memoryview(x.detach().numpy())[0, 0] > 1 else x + 1


def test_a_branch_by_a_value_that_left_torch_is_refused_even_where_both_inputs_take_it() -> None:
    with pytest.raises(StepError, match=r"Tensor\.numpy"):
        replayed(Switching(), torch.zeros(3, 4))


def test_other_shapes_run_in_the_model_first_and_are_recorded_at_their_second_call() -> None:
    model = Block().eval()
    engine = replayed(model, torch.randn(1, 5, 8))
    calls: list[int] = []
    model.norm.register_forward_hook(lambda *args: calls.append(1))
    with torch.no_grad():
        for size in (3, 3, 3, 5):
            x = torch.randn(1, size, 8)
            engine(x)
        assert len(calls) == 1 + 3, "once in the model, and three times to record"
        for size in range(6, 6 + 2 * MAX_KINDS):
            x = torch.randn(1, size, 8)
            torch.testing.assert_close(engine(x), model(x))
    assert len(engine.replays) == MAX_KINDS
    calls.clear()
    engine(torch.randn(1, 5, 8))
    assert not calls, "the example's is kept"


class Sized(nn.Module):
    """Reads a value where it has more than three rows, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + x.max().item() if len(x) > 3 else x + 1


def test_shapes_that_cannot_be_recorded_run_in_the_model_and_are_not_tried_again() -> None:
    model = Sized()
    engine = replayed(model, torch.randn(3, 4))
    x = torch.randn(4, 4)
    for _ in range(2):
        assert torch.equal(engine(x), x + x.max())
    before = model.calls
    engine(x)
    assert model.calls == before + 1


class Sorted(nn.Module):
    """Takes lengths that fall."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True).data


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Sorted(), (torch.randn(2, 4, 2), torch.tensor([4, 2]))),
        (Calls(lambda x: x.sub(x).div(0)), torch.randn(3, 4)),  # NaN equals nothing
    ],
)
def test_a_model_that_fails_for_other_inputs_is_refused_in_a_sentence(model, inputs) -> None:
    with pytest.raises(StepError, match=r"cannot be replayed: .*; use eager"):
        Replay(model, Inputs.of(inputs), 1)


def test_layouts_autocast_and_gradients_are_those_of_the_call() -> None:
    model = Small().eval()
    engine = replayed(model, images(2))
    with torch.no_grad():
        placed = images(2).contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(engine(placed), model(placed))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(engine(x := images(2)), model(x))
    assert not engine(images(2)).requires_grad


def test_inputs_of_another_layout_are_of_another_kind() -> None:
    model = Calls(lambda x: x)
    model.line = nn.Flatten(0)  # of a contiguous tensor it is a view, else a copy
    engine = replayed(model, torch.randn(4, 4))
    for _ in range(3):
        x = torch.randn(4, 4).t()
        assert torch.equal(engine(x), x.flatten())


def test_a_tensor_is_freed_once_nobody_reads_it() -> None:
    tape = Tape.of(Block().eval(), Inputs.of(torch.randn(1, 5, 8)))
    run = tape.compiled()
    deleted = {code.argval for code in dis.get_instructions(run) if code.opname == "DELETE_FAST"}
    assert set(run.__code__.co_varnames) - deleted == set(tape.outputs)


def test_a_copy_runs_with_its_own_weights() -> None:
    work = Workload(Small(), x := images(2), name="small")
    variant = lab.apply(work, Recipe(["fold", "fuse", {"backend": "replay"}]))
    copied = copy.deepcopy(variant.model)
    with torch.no_grad():
        expected = copied(x)
        for weight in copied.parameters():
            weight.mul_(2)
        for _ in range(3):
            assert torch.equal(variant.model(x), expected)
            torch.testing.assert_close(copied(x), copied.module(x))
        assert not torch.equal(copied(x), expected)


def test_a_profile_has_the_time_of_each_layer_and_adds_up() -> None:
    work = Workload(Small(), images(2), name="small")
    variant = lab.apply(work, Recipe(["fold", {"backend": "replay"}]))
    profile = lab.profile(variant, seconds=0.5)
    rows = {row.layer: row for row in profile}
    timed = [row for row in rows.values() if row.self_ms and row.macs]
    assert [row.runs_as for row in timed] == ["convolution", "addmm, t"]
    assert all(kernel.name.endswith(" aten") for row in timed for kernel in row.kernels)
    assert sum(row.self_ms for row in profile) == pytest.approx(profile.latency_ms, rel=0.5)


def test_a_saved_variant_is_replayed_when_it_is_loaded(tmp_path: Any) -> None:
    work = Workload(Small(), x := images(2), name="small")
    variant = lab.apply(work, Recipe(["fold", {"backend": "replay"}]))
    variant.save(tmp_path / "mine")
    loaded = lab.load(tmp_path / "mine", work=work)
    assert isinstance(loaded.model, Replay)
    with torch.no_grad():
        assert torch.equal(loaded.model(x), variant.model(x))


def test_no_step_follows_an_engine_that_was_saved(tmp_path: Any) -> None:
    work = Workload(Small(), images(2), name="small")
    folder = lab.apply(work, Recipe([{"backend": "replay"}])).save(tmp_path / "mine")
    refused = "small · replay runs in Replayed torch, and no step can follow an engine; apply the"
    with pytest.raises(StepError, match=refused):
        lab.apply(lab.load(folder, work=work), Recipe([{"precision": "int8-weights"}]))
