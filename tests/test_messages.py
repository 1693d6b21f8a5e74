"""Every tool refuses invalid arguments in one sentence."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import planner, profiler
from paifuser_lab._files import asset
from paifuser_lab.errors import (
    FileError,
    MeasureError,
    RecipeError,
    StepError,
    UnknownModelError,
    WorkloadError,
)
from paifuser_lab.pruning import groups as coupling
from paifuser_lab.steps import step_class, step_names
from tests.support.models import Tied

pytestmark = pytest.mark.usefixtures("one_thread")


def functions_of_a_workload() -> Iterator[Any]:
    """Every public function whose first argument is a workload."""
    for room in (lab, profiler, planner, coupling):
        names = ["channel_groups"] if room is coupling else room.__all__
        for name in names:
            function = getattr(room, name)
            if not inspect.isfunction(function):
                continue
            first = next(iter(inspect.signature(function).parameters.values()), None)
            if first is None or first.default is not first.empty:
                continue  # it also takes none
            if re.match("Workload|Subject", str(first.annotation)):
                yield pytest.param(function, id=f"{room.__name__.rpartition('.')[2]}.{name}")


def test_there_are_functions_that_take_a_workload() -> None:
    names = {parameter.id for parameter in functions_of_a_workload()}
    assert {
        "paifuser_lab.apply",
        "paifuser_lab.compare",
        "paifuser_lab.plan",
        "profiler.trace",
        "profiler.batch_size",
    } <= names
    assert len(names) >= 15


@pytest.mark.parametrize(
    "argument",
    [nn.Linear(3, 3), [nn.Linear(3, 3)], lab.Recipe([]), None],
    ids=lambda argument: type(argument).__name__,
)
@pytest.mark.parametrize("function", functions_of_a_workload())
def test_every_function_of_a_workload_refuses_other_arguments(
    function: Callable[..., Any], argument: Any
) -> None:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        "x"
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in positional
    ]
    with pytest.raises(
        WorkloadError,
        match=rf"A {type(argument).__name__} is not a workload; .*lab\.Workload\(model, inputs\)",
    ):
        function(argument, *needed)


def test_profile_in_turn_takes_a_list() -> None:
    with pytest.raises(MeasureError, match="profile_in_turn takes a list of workloads"):
        profiler.profile_in_turn(nn.Linear(3, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "argument",
    [["fold"], "fold", {"fold": {}}, nn.Linear(3, 3), None],
    ids=lambda argument: type(argument).__name__,
)
@pytest.mark.parametrize("function", [lab.apply, lab.compare])
def test_steps_without_a_recipe_are_refused(function: Callable[..., Any], argument: Any) -> None:
    work = lab.Workload(nn.Linear(3, 3), torch.ones(1, 3))
    with pytest.raises(
        RecipeError, match=rf"A {type(argument).__name__} is not a recipe; .*lab\.Recipe\(\["
    ):
        function(work, argument)


@pytest.mark.parametrize(
    "argument", [5, None, nn.Linear(3, 3)], ids=lambda argument: type(argument).__name__
)
def test_a_recipe_takes_a_list_of_steps(argument: Any) -> None:
    with pytest.raises(RecipeError, match=f"A {type(argument).__name__} is not a list of steps"):
        lab.Recipe(argument)
    if argument is not None:
        with pytest.raises(RecipeError, match=f"not a {type(argument).__name__}"):
            lab.Recipe([], workload=argument)


WRONG: list[Any] = [
    None,
    5,
    -1,
    1.5,
    "x",
    True,
    [],
    ["x"],
    {},
    {"a": "b"},
    {1: 2},
    float("nan"),
    10**30,
    b"x",
    torch.ones(2),
]


@pytest.mark.parametrize("kind", step_names())
def test_every_step_reports_an_option_of_a_wrong_type(kind: str) -> None:
    messages: list[str] = []
    for option in step_class(kind).model_fields:
        for value in WRONG:
            try:
                lab.Recipe.from_text(lab.Recipe([{kind: {option: value}}]).to_text())
            except RecipeError as error:  # any other exception fails the test
                messages.append(str(error))
    assert messages and all(kind in message for message in messages)


def test_load_takes_a_name_and_an_original_is_a_workload(tmp_path: Any) -> None:
    with pytest.raises(
        WorkloadError,
        match=r"not a Linear; wrap a model of your own: lab\.Workload\(model, inputs\)",
    ):
        lab.load(nn.Linear(3, 3))  # type: ignore[arg-type]
    work = lab.Workload(nn.Linear(3, 3), torch.ones(1, 3))
    lab.apply(work, lab.Recipe([])).save(tmp_path / "mine")
    for load in (lab.load, lab.Variant.load):
        with pytest.raises(WorkloadError, match="A Linear is not a workload"):
            load(tmp_path / "mine", work=nn.Linear(3, 3))  # type: ignore[operator]


class SharedWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x).relu())


@pytest.mark.parametrize(
    "layers",
    [{"one": "bf16", "two": "fp16"}, {"two": "bf16"}, {"one": "int8", "two": "bf16"}],
    ids=str,
)
def test_a_shared_weight_in_two_formats_names_both_layers(layers: dict[str, str]) -> None:
    work = lab.Workload(SharedWeight(), torch.ones(2, 16), name="sharing")
    both = (
        "'one'.* shares its weight with 'two'"
        if "int8" in layers.values()
        else "'one' and 'two' share a weight.* in"
    )
    with pytest.raises(StepError, match=both):
        lab.apply(work, lab.Recipe([{"precision": {"layers": layers}}]))


def test_a_shared_weight_in_one_format_is_fine() -> None:
    work = lab.Workload(SharedWeight(), torch.ones(2, 16))
    variant = lab.apply(work, lab.Recipe([{"precision": {"default": "bf16"}}]))
    assert variant.module.one.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
    assert lab.apply(lab.Workload(Tied(), torch.ones(1, 3).long()), lab.Recipe([])).reports == ()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def test_a_module_of_torch_export_is_refused_at_once() -> None:
    exported = torch.export.export(net(), (torch.ones(2, 16),))
    with pytest.raises(
        WorkloadError, match=r"made by torch\.export.*give the model that was exported"
    ):
        lab.Workload(exported.module(), torch.ones(2, 16))
    with pytest.raises(WorkloadError, match="not a ExportedProgram"):
        lab.Workload(exported, torch.ones(2, 16))  # type: ignore[arg-type]


def packed() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(net(), {nn.Linear}, dtype=torch.qint8)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore")
def test_packed_weights_of_torch_ao_are_reported_by_tools_that_cannot_use_them() -> None:
    work = lab.Workload(packed(), torch.ones(2, 16), name="packed")
    assert lab.profile(work, runs=2, seconds=0.1).latency_ms > 0
    for tool in (
        lambda: lab.apply(work, lab.Recipe([])),
        lambda: lab.compare(work, lab.Recipe([]), rounds=1, seconds=0.1),
    ):
        with pytest.raises(
            WorkloadError,
            match=r"'0\._packed_params\.\w+' of the Sequential .*torch\.ao.*'precision'",
        ):
            tool()


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_model_is_profiled_as_one_layer_and_steps_refuse_it() -> None:
    work = lab.Workload(torch.jit.script(net()), torch.ones(2, 16), name="scripted")
    assert lab.profile(work, runs=2, seconds=0.1).latency_ms > 0
    for step in (
        {"precision": {"default": "bf16"}},
        {"precision": {"default": "int8"}},
        {"prune": {"ratio": 0.5}},
    ):
        with pytest.raises(
            StepError, match=r"scripted or traced.*give the model that it was created from"
        ):
            lab.apply(work, lab.Recipe([step]))


class SparseBuffer(nn.Module):
    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)
        self.register_buffer("beside", torch.eye(8).to_sparse(layout=layout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(self.beside, self.line(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_buffer_is_profiled_and_reported_by_tools_that_hash_weights(
    layout: torch.layout,
) -> None:
    work = lab.Workload(SparseBuffer(layout), torch.ones(8, 8), name="beside")
    assert profiler.memory_timeline(work).peak_bytes > 0
    for tool in (
        lambda: lab.apply(work, lab.Recipe([])),
        lambda: lab.importance(work),
        lambda: lab.sensitivity(work, seconds=1),
    ):
        with pytest.raises(
            WorkloadError, match=r"'beside' of the SparseBuffer is a sparse tensor .*to_dense\(\)"
        ):
            tool()


class NestedOutput(nn.Module):
    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.line, self.layout = nn.Linear(8, 8), layout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nested.as_nested_tensor(
            [self.line(x[0, :2]), self.line(x[1])], layout=self.layout
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_as_output_is_refused(layout: torch.layout) -> None:
    work = lab.Workload(NestedOutput(layout), torch.ones(2, 5, 8), name="nesting")
    for tool in (work.output, lambda: lab.apply(work, lab.Recipe([])), lambda: lab.profile(work)):
        with pytest.raises(WorkloadError, match=r"nesting outputs a nested tensor.*padded"):
            tool()


class SparseOutput(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).to_sparse()


def test_a_sparse_tensor_as_output_is_refused() -> None:
    work = lab.Workload(SparseOutput(4, 4), torch.ones(2, 4), name="rarely")
    for tool in (work.output, lambda: lab.apply(work, lab.Recipe([])), lambda: lab.compare(work)):
        with pytest.raises(WorkloadError, match=r"rarely outputs a sparse tensor .*to_dense\(\)"):
            tool()


@dataclass
class Answer:
    scores: torch.Tensor


class WrappedOutput(nn.Linear):
    def forward(self, x: torch.Tensor) -> list[Answer]:
        return [Answer(super().forward(x))]


def test_an_output_whose_tensors_cannot_be_seen_is_refused_until_torch_knows_its_class() -> None:
    work = lab.Workload(WrappedOutput(4, 4), torch.ones(2, 4), name="wrapping")
    for tool in (work.output, lambda: lab.apply(work, lab.Recipe([])), lambda: lab.compare(work)):
        with pytest.raises(WorkloadError, match=r"wrapping outputs a Answer, .* tuple or dict"):
            tool()
    torch.export.register_dataclass(Answer)
    assert work.output()[0].scores.shape == (2, 4)


@pytest.mark.parametrize("name", ["resnet18-tiny", "bert-base-tiny", "resnet18-digits"])
def test_a_batch_that_does_not_fit_into_memory_is_refused(name: str) -> None:
    with pytest.raises(WorkloadError, match=rf"'{name}' does not fit into memory with batch="):
        lab.load(name, batch=2**40)


def test_explaining_something_else_than_a_profile_says_how_to_make_one() -> None:
    with pytest.raises(MeasureError, match=r"not 'nonsense'; make one with lab\.profile"):
        profiler.explain("nonsense")


@pytest.mark.filterwarnings("default")
def test_models_that_transformers_cannot_build_or_feed_are_reported() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UnknownModelError, match=r"hf:clip.*Workload\(model, inputs\)"):
        lab.load(
            "hf:clip", text_config={"num_hidden_layers": 1}, vision_config={"num_hidden_layers": 1}
        )
    with pytest.raises(UnknownModelError, match="transformers cannot make 'hf:bert'"):
        lab.load("hf:bert", hidden_size="wide")


def test_an_unknown_option_of_a_zoo_model_is_reported() -> None:
    with pytest.raises(
        WorkloadError, match=r"'resnet18-tiny' has no option 'width'; it has batch, seed, trained"
    ):
        lab.load("resnet18-tiny", width=3)


def test_a_missing_notebook_is_reported(command: Any) -> None:
    for words in (("sweep", "-p", "a=1", "--out", "out"), ("open", "--no-browser")):
        _, _, message = command(words[0], "nope.ipynb", *words[1:])
        assert "There is no notebook nope.ipynb" in message and "00_tour.ipynb" in message
        assert "reinstall" not in message
    with pytest.raises(FileError, match="reinstall"):
        asset("widgets/nope.js")
