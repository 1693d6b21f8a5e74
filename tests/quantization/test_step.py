"""Formats: of the whole model, by pattern, wherever a recipe takes them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import PaifuserError, RecipeError, StepError
from paifuser_lab.model.watch import not_finite
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.quantization.float_formats import cast_at_boundary
from tests.support.models import Mapped, Small, Tied, ids, images
from tests.support.precision import chosen


def nested() -> Workload:
    """a (Linear) → b (two Linears and a ReLU) → c (Linear)."""
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("a", nn.Linear(4, 6))
    model.add_module("b", nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)))
    model.add_module("c", nn.Linear(6, 3))
    return Workload(model, torch.randn(5, 4))


def formats(variant: lab.Variant) -> dict[str, torch.dtype]:
    return {
        name.removesuffix(".weight"): one.dtype
        for name, one in variant.module.named_parameters()
        if name.endswith("weight")
    }


FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


@pytest.mark.parametrize(
    ("options", "expected", "casts"),
    [
        ({"default": "bf16"}, {"a": BF16, "b.0": BF16, "b.2": BF16, "c": BF16}, 1),
        ({"default": "fp32"}, {"a": FP32, "b.0": FP32, "b.2": FP32, "c": FP32}, 0),
        ({"layers": {"b": "bf16"}}, {"a": FP32, "b.0": BF16, "b.2": BF16, "c": FP32}, 1),
        ({"layers": {"b.*": "bf16"}}, {"a": FP32, "b.0": BF16, "b.2": BF16, "c": FP32}, 1),
        ({"layers": {"b.2": "bf16"}}, {"a": FP32, "b.0": FP32, "b.2": BF16, "c": FP32}, 1),
        ({"layers": {"*": "bf16"}}, {"a": BF16, "b.0": BF16, "b.2": BF16, "c": BF16}, 3),
        (
            {"default": "bf16", "layers": {"c": "fp32"}},
            {"a": BF16, "b.0": BF16, "b.2": BF16, "c": FP32},
            2,
        ),
        (
            {"layers": {"b": "bf16", "b.0": "fp16"}},
            {"a": FP32, "b.0": FP16, "b.2": BF16, "c": FP32},
            2,
        ),
        (
            {"layers": {"b.0": "fp16", "b": "bf16"}},
            {"a": FP32, "b.0": BF16, "b.2": BF16, "c": FP32},
            1,
        ),
        (
            {"default": "bf16", "layers": {"*": "fp32"}},
            {"a": FP32, "b.0": FP32, "b.2": FP32, "c": FP32},
            4,
        ),
    ],
)
def test_patterns_choose_and_later_ones_win(
    options: dict[str, Any], expected: dict[str, torch.dtype], casts: int
) -> None:
    work = nested()
    variant = chosen(work, **options)
    assert formats(variant) == expected
    assert sum(len(one._forward_hooks) for one in variant.module.modules()) == casts, (
        "one cast a region, none inside"
    )
    assert variant.model(torch.randn(2, 4)).dtype == FP32
    assert variant.reports[0].relative_error < 0.02
    assert variant.reports[0].relative_error > 0 or set(expected.values()) == {FP32}


def test_a_model_in_bf16_computes_in_bf16() -> None:
    seen: list[torch.dtype] = []
    work = nested()
    variant = chosen(work, default="bf16")
    variant.module.b[1].register_forward_hook(
        lambda module, args, output: seen.append(output.dtype)
    )
    variant.model(torch.randn(2, 4))
    assert seen == [BF16]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("b.9", r"pattern 'b\.9' matches no layer; the nearest are b\.[02]"),
        ("layer4.*", r"precision: pattern 'layer4\.\*' matches no layer\.$"),
        ("", "matches no layer"),
    ],
)
def test_a_pattern_that_matches_nothing_names_the_nearest(pattern: str, message: str) -> None:
    work = nested()
    before = weights_hash(work.model)
    with pytest.raises(RecipeError, match=message):
        chosen(work, layers={pattern: "bf16"})
    assert weights_hash(work.model) == before


def test_answers_keep_their_structure_and_types() -> None:
    work = Workload(Mapped(), {"ids": ids(), "mask": torch.ones(2, 5), "scale": 2.0})
    wanted, got = work.output(), chosen(work, default="bf16").model(**work.inputs.kwargs)
    assert (
        got.keys() == wanted.keys()
        and got["kind"] == "mapped"
        and got["count"] == 3
        and got["states"][1] is None
    )
    assert got["logits"].dtype == FP32 and got["states"][0].dtype == FP32
    torch.testing.assert_close(got["logits"], wanted["logits"], rtol=0.1, atol=0.1)


def test_integers_at_the_door_stay_integers() -> None:
    class Checking(nn.Embedding):
        def forward(self, index: Tensor) -> Tensor:
            assert index.dtype == torch.int64
            return super().forward(index)

    work = Workload(nn.Sequential(Checking(7, 4), nn.Linear(4, 2)), ids())
    for options in ({"default": "bf16"}, {"layers": {"0": "bf16"}}):
        assert chosen(work, **options).model(ids()).dtype == FP32


def test_a_half_precision_model_keeps_its_own_types_at_the_door() -> None:
    work = Workload(Small().bfloat16(), images().bfloat16())
    assert chosen(work, default="fp32").model(images().bfloat16()).dtype == BF16
    assert lab.apply(work, Recipe(["fold"])).reports[0].relative_error < 0.05


def test_tied_weights_stay_tied() -> None:
    variant = chosen(Workload(Tied(), ids()), default="bf16")
    assert variant.module.head.weight is variant.module.table.weight


def test_a_changed_model_can_be_copied_and_the_copy_has_doors_of_its_own() -> None:
    work = nested()
    variant = chosen(work, default="bf16", layers={"b.0": "fp32"})
    twin = copy.deepcopy(variant.model)
    x = torch.randn(2, 4)
    assert torch.equal(twin(x), variant.model(x))
    nn.init.zeros_(twin.c.weight)
    assert not torch.equal(twin(x), variant.model(x))


def test_steps_of_precision_add_up() -> None:
    work = nested()
    variant = lab.apply(
        work, Recipe([{"precision": {"default": "bf16"}}, {"precision": {"layers": {"a": "fp32"}}}])
    )
    assert formats(variant)["a"] == FP32 and formats(variant)["c"] == BF16
    assert variant.model(torch.randn(2, 4)).dtype == FP32


def test_weights_in_another_format_are_refused_by_name() -> None:
    with pytest.raises(
        PaifuserError,
        match=r"weights are torch\.float64; the step converts between fp32, bf16, fp16",
    ):
        chosen(Workload(nn.Linear(2, 2).double(), torch.ones(1, 2).double()), default="bf16")


def test_an_answer_that_overflows_is_refused() -> None:
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, 1e5)
    with pytest.raises(PaifuserError, match="its output holds a NaN"):
        chosen(
            Workload(nn.Sequential(model, nn.Softmax(-1)), torch.tensor([[1e3, 1e3]])),
            default="fp16",
        )


def test_an_answer_that_becomes_infinite_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    model[0].weight.data = torch.tensor([[-1e4, 0.0], [0.0, 1e4]])
    work = Workload(model, torch.full((1, 2), 10.0))
    with pytest.raises(
        PaifuserError,
        match="its output holds an infinity where the baseline's has none; choose a wider",
    ):
        chosen(work, default="fp16")
    assert chosen(work, default="bf16").reports[-1].relative_error < 0.01


class Masking(nn.Module):
    """Its output has places that are infinite on purpose."""

    def __init__(self, limit: float = -torch.inf) -> None:
        super().__init__()
        self.line, self.limit = nn.Linear(4, 4), limit

    def forward(self, values: Tensor) -> Tensor:
        return self.line(values).masked_fill(torch.eye(4, dtype=torch.bool), self.limit)


def test_an_answer_that_is_infinite_where_the_models_own_is_is_taken() -> None:
    variant = chosen(Workload(Masking(), torch.randn(4, 4)), default="bf16")
    assert (
        torch.isinf(variant.model(torch.randn(4, 4))).sum() == 4
        and 0 < variant.reports[-1].relative_error < 0.05
    )


def test_an_infinity_of_the_other_sign_is_refused() -> None:
    answer = torch.tensor([1.0, -torch.inf])
    assert not_finite([answer], [answer.half()]) is None
    assert not_finite([answer], [-answer]) == "an infinity where the baseline's has none"
    assert (
        not_finite([answer, torch.arange(2)], [torch.tensor([1.0, torch.nan]), torch.arange(2)])
        == "a NaN"
    )


def test_a_layer_that_stays_in_fp32_keeps_its_weights_to_the_bit() -> None:
    work = nested()
    variant = chosen(work, default="bf16", layers={"c": "fp32"})
    assert torch.equal(variant.module.c.weight, work.model.c.weight)


class Told(nn.Module):
    """Says what type it was given, and adds a layer norm, which autocast computes in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.types: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        made = self.line(x)
        self.types.append(made.dtype)
        return self.norm(made)


@pytest.mark.parametrize(("name", "dtype"), [("amp-bf16", BF16), ("amp-fp16", FP16)])
def test_under_autocast_weights_stay_and_operators_choose(name: str, dtype: torch.dtype) -> None:
    work = Workload(nn.Sequential(Told(), Told()), torch.randn(3, 4))
    variant = chosen(work, layers={"1": name})
    x = work.inputs.args[0]
    assert [part.types[-1] for part in variant.module] == [FP32, dtype]
    assert all(
        torch.equal(one, other)
        for one, other in zip(variant.module.parameters(), work.model.parameters(), strict=True)
    )
    with torch.no_grad():
        first = work.model[0](x)
        with torch.autocast("cpu", dtype):
            wanted = work.model[1](first)
        second = variant.module[1](first)
    assert second.dtype == FP32 and not torch.is_autocast_enabled("cpu")
    assert torch.equal(second, wanted.float())
    assert variant.recipe.label == f"1: {name}" and 0 < variant.reports[0].relative_error < 0.05


def test_autocast_is_as_torch_has_it_to_the_bit() -> None:
    work = lab.load("vit-s-tiny")
    inputs = work.inputs.args[0]
    with torch.no_grad(), torch.autocast("cpu", BF16):
        wanted = work.model.eval()(inputs).float()
    whole, plain = chosen(work, default="amp-bf16"), chosen(work, default="bf16")
    assert torch.equal(whole.model(inputs), wanted)
    assert torch.equal(copy.deepcopy(whole.module)(inputs), wanted)
    assert whole.reports[0].relative_error < plain.reports[0].relative_error


def test_parts_apart_inside_autocast_and_around_it() -> None:
    work = Workload(nn.Sequential(Told(), Told(), Told()), torch.randn(3, 4))
    inside = chosen(work, default="amp-bf16", layers={"1": "fp32", "2": "fp16"})
    assert [part.types[-1] for part in inside.module] == [BF16, FP32, FP16]
    around = chosen(work, default="bf16", layers={"1": "amp-fp16"})
    assert [part.types[-1] for part in around.module] == [BF16, FP16, BF16]
    assert torch.equal(around.module[1].line.weight, work.model[1].line.weight)
    eight = chosen(work, default="amp-bf16", layers={"1.line": "int8"})
    assert eight.module[1].line.format == "int8" and eight.reports[0].relative_error < 0.05


def test_autocast_is_undone_and_an_error_inside_leaves_it() -> None:
    work = nested()
    recipe = Recipe().with_step({"precision": {"layers": {"b": "amp-bf16"}}})
    on = lab.apply(work, recipe)
    with pytest.raises(RuntimeError):
        on.module.b(torch.randn(2, 5))
    assert not torch.is_autocast_enabled("cpu")
    off = lab.apply(work, recipe.with_step({"precision": {"layers": {"b": "fp32"}}}))
    assert torch.equal(off.model(work.inputs.args[0]), work.output())


def test_autocast_is_compiled_and_is_refused_by_exporters() -> None:
    work = nested()
    step: dict[str, Any] = {"precision": {"layers": {"b": "amp-bf16"}}}
    with pytest.raises(
        PaifuserError, match="a part under autocast cannot be exported; choose bf16"
    ):
        lab.apply(work, Recipe([step, {"backend": {"name": "onnxruntime"}}]))
    compiled = lab.apply(work, Recipe([step, {"backend": {"name": "inductor"}}]))
    assert compiled.reports[-1].relative_error < 0.02


def test_a_device_without_autocast_is_named() -> None:
    with pytest.raises(PaifuserError, match="amp-bf16: torch has no autocast on meta; choose bf16"):
        cast_at_boundary(
            nn.Linear(2, 2, device="meta"), inside="amp-bf16", outside="fp32", original="fp32"
        )


BARE = nn.Linear(4, 4)


@pytest.mark.parametrize("name", ["int8", "fp8", "int8-weights", "int4-weights"])
def test_a_model_that_is_itself_a_layer_says_how_to_round_it(name: str) -> None:
    with pytest.raises(
        StepError, match=r"the model is itself a Linear, .*; wrap it: nn.Sequential\(model\)\.$"
    ):
        chosen(Workload(BARE, torch.randn(2, 4)), default=name)
    assert any(
        "in int8" in note
        for note in chosen(Workload(nn.Sequential(BARE), torch.randn(2, 4)), default="int8").notes
    )


@pytest.mark.parametrize(
    "again",
    [
        {"default": "int8"},
        {"default": "int4-weights"},
        {"layers": {"a": "int8"}},
        {"layers": {"a": "fp32"}},
    ],
)
def test_what_is_rounded_is_not_rounded_again_in_silence(again: dict[str, Any]) -> None:
    with pytest.raises(
        StepError,
        match=r"'a' is in int8 already, and is not rounded again; "
        r"let one 'precision' say all of it",
    ):
        lab.apply(nested(), Recipe([{"precision": {"default": "int8"}}, {"precision": again}]))


def test_a_model_without_weights_has_nothing_to_round() -> None:
    with pytest.raises(
        StepError, match="it has no layer with weights that could be rounded; leave the step out"
    ):
        chosen(Workload(nn.Sequential(nn.ReLU()), torch.randn(2, 4)), default="int8")
