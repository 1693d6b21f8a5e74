"""Invalid arguments are refused in one sentence before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload, profiler
from paifuser_lab.errors import MeasureError, PaifuserError, RecipeError, WorkloadError
from paifuser_lab.machine.host import threads
from tests.support.models import unchecked

NAN = float("nan")


class NeverRun(nn.Linear):
    """A model whose forward is a failure of the test."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pytest.fail("it ran before its arguments were checked")


def work() -> Workload:
    return unchecked(NeverRun(2, 2), torch.ones(1, 2))


TIMED: dict[str, Callable[..., Any]] = {
    "compare": lab.compare,
    "profile": lab.profile,
    "plan": lab.plan,
    "batch_size": profiler.batch_size,
    "checklist": profiler.checklist,
}


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("seconds", [NAN, -1, "5", True])
def test_seconds_are_a_number_of_zero_or_more(name: str, seconds: Any) -> None:
    with pytest.raises(
        MeasureError, match=r"^seconds=.* leaves no time to measure; give a number, .*0.*\.$"
    ):
        TIMED[name](work(), seconds=seconds)


@pytest.mark.parametrize("error", [NAN, -0.1, "0.02", True, None])
def test_an_allowed_error_is_a_number_of_zero_or_more(error: Any) -> None:
    with pytest.raises(MeasureError, match=r"^max_error=.*; give a number, 0 or more"):
        lab.plan(work(), max_error=error)


@pytest.mark.parametrize("count", [0, -2, 1.5, True, 1_000_000])
def test_threads_are_an_integer_that_a_machine_can_have(count: Any) -> None:
    for tool in (lab.profile, profiler.batch_size):
        with pytest.raises(
            MeasureError, match=r"^threads=.* is not possible; give an integer of 1 to 1024"
        ):
            tool(work(), threads=count)
    with pytest.raises(MeasureError, match="torch cannot work with"), threads(count):
        pass
    with pytest.raises(RecipeError, match="threads"):
        Recipe([{"backend": {"threads": count}}])


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (lambda value: profiler.batch_size(work(), most=value), "most"),
        (lambda value: lab.profile(work(), runs=value), "runs"),
        (lambda value: lab.compare(work(), rounds=value), "rounds"),
        (lambda value: lab.load("resnet18-tiny", batch=value), "batch"),
    ],
    ids=["most", "runs", "rounds", "batch"],
)
@pytest.mark.parametrize("value", [0, 1.5, NAN, True, "3"])
def test_counts_are_integers_of_one_or_more(
    tool: Callable[[Any], Any], name: str, value: Any
) -> None:
    with pytest.raises(
        PaifuserError, match=f"^{name}={value!r} is not possible; give an integer of 1 or more"
    ):
        tool(value)


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", 1.5])
def test_a_device_that_torch_lacks_is_refused_by_name(device: Any) -> None:
    with pytest.raises(
        WorkloadError, match=f"^device='{device}' cannot be used here .*; give 'cpu'"
    ):
        work().to(device)
    with pytest.raises(WorkloadError, match=f"^device='{device}' cannot be used here"):
        lab.load("resnet18-tiny", device=device)
