"""Variants: a changed copy, created whole or not at all, cached by recipe prefix; the user's model
is unchanged.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload, steps
from paifuser_lab.errors import PaifuserError, RecipeError, StepError, WorkloadError
from paifuser_lab.machine.host import threads
from paifuser_lab.model.weights import load_weights, weights_hash
from paifuser_lab.steps import Draft, Step
from paifuser_lab.variant import cache
from tests.support.models import Counting, Scaled, Small, images

STEPS = [
    "fold",
    "layout",
    {"precision": {"default": "bf16"}},
    {"backend": {"name": "eager", "threads": 1}},
]


class Trick(Step):
    """A step for tests: it calls a given function."""

    kind: ClassVar[str] = "trick"
    tolerance: ClassVar[float | None] = 1e-4
    does: str = "nothing"

    def apply(self, draft: Draft) -> None:
        module: Any = draft.module
        match self.does:
            case "a planted error":
                with torch.no_grad():
                    module.head.bias += 0.01
            case "a NaN":
                nn.init.constant_(module.head.bias, torch.nan)
            case "another shape":
                module.head = nn.Linear(8, 7)
            case "one answer more":
                module.register_forward_hook(lambda module, args, output: (output, output))
            case "a bug":
                module.conv.weight.data.zero_()
                raise ZeroDivisionError("division by zero\nlong story")
            case "a refusal":
                raise StepError("this model is not for me.")
            case "an interrupt":
                module.conv.weight.data.zero_()
                raise KeyboardInterrupt
            case "a bad copy":
                del module.head
            case "nothing":
                draft.notes.append("did nothing")


class Loose(Trick):
    """A Trick without a tolerance."""

    kind: ClassVar[str] = "loose"
    tolerance: ClassVar[float | None] = None


@pytest.fixture(autouse=True)
def tricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        steps, "BUILT_IN", steps.BUILT_IN | {"trick": ".trick:Trick", "loose": ".trick:Loose"}
    )
    monkeypatch.setitem(
        __import__("sys").modules,
        "paifuser_lab.steps.trick",
        SimpleNamespace(Trick=Trick, Loose=Loose),
    )  # type: ignore[arg-type]


def small() -> Workload:
    return Workload(Small(), images())


def marked() -> Workload:
    """A model with hooks, modes and flags that a careless tool would lose or change."""
    model = nn.Sequential(Small(), nn.Linear(5, 4), Counting())
    model.train()
    model[1].eval()
    model[1].weight.requires_grad_(False)
    model[0].register_forward_hook(lambda module, args, output: None)
    return Workload(model, images())


def portrait(model: nn.Module) -> Any:
    return (
        weights_hash(model), str(model), [module.training for module in model.modules()],
        [[*module._forward_hooks, *module._forward_pre_hooks] for module in model.modules()],
        [(id(p), p.requires_grad, p.is_contiguous(), p.grad) for p in model.parameters()],
        [id(buffer) for buffer in model.buffers()],
    )  # fmt: skip


@pytest.mark.parametrize("step", STEPS, ids=["fold", "layout", "precision", "backend"])
def test_applying_never_touches_the_model(step: Any) -> None:
    work = marked()
    before = portrait(work.model)
    output = work.output()
    variant = lab.apply(work, Recipe([step]))
    assert variant.model is not work.model
    assert portrait(work.model) == before
    assert torch.equal(work.output(), output)
    mine = {tensor.data_ptr() for tensor in (*work.model.parameters(), *work.model.buffers())}
    assert not mine & {
        tensor.data_ptr() for tensor in (*variant.module.parameters(), *variant.module.buffers())
    }
    assert not any(module.training for module in variant.module.modules())


def test_a_variant_has_its_recipe_notes_and_reports() -> None:
    variant = lab.apply(small(), Recipe(STEPS))
    assert [report.step for report in variant.reports] == [
        "fold batch-norm",
        "channels last",
        "bf16",
        "eager · 1 thread",
    ]
    assert variant.notes[0] == "folded 1 batch-norm layers" and variant.recipe == Recipe(STEPS)
    assert variant.reports[0].relative_error < 1e-4 < variant.reports[2].relative_error < 0.05
    assert variant.build_s >= sum(report.seconds for report in variant.reports[:2])
    assert variant.threads == 1
    label = "fold batch-norm → channels last → bf16 → eager · 1 thread"
    assert repr(variant) == f"Variant(Small: {label})"


def test_equal_recipes_return_the_cached_object_and_longer_ones_continue_from_it() -> None:
    work = small()
    long, short = lab.apply(work, Recipe(STEPS[:2])), lab.apply(work, Recipe(STEPS[:1]))
    assert lab.apply(work, Recipe(STEPS[:2])) is long
    assert lab.apply(work, Recipe(STEPS[:1])) is short
    assert lab.apply(work, Recipe(STEPS[:3])).reports[:2] == long.reports
    assert lab.apply(Workload(work.model, work.inputs), Recipe(STEPS[:2])) is not long


def edited(shift: float) -> type[Step]:
    """A step that a cell of a notebook defines, which is run again after its code was changed."""

    class Shift(Step):
        kind: ClassVar[str] = "shift"

        def apply(self, draft: Draft) -> None:
            module: Any = draft.module
            with torch.no_grad():
                module.head.bias += shift

    return Shift


def test_a_step_that_was_edited_in_a_notebook_is_applied_again() -> None:
    work = small()
    for shift in (1.0, 2.0):
        variant: Any = lab.apply(work, Recipe([edited(shift)()]))
        torch.testing.assert_close(variant.module.head.bias, work.model.head.bias + shift)


def test_a_step_that_this_process_defined_last_is_found_unless_its_kind_is_installed() -> None:
    class Mine(Step):
        kind: ClassVar[str] = "fold"

    last = [edited(shift) for shift in (1.0, 2.0)][-1]
    assert steps.step_class("shift") is last and "shift" not in steps.step_names()
    assert steps.step_class("fold") is not Mine


def test_undoing_everything_restores_the_original_exactly() -> None:
    work = small()
    recipe = Recipe(STEPS)
    lab.apply(work, recipe)
    for _ in STEPS:
        recipe = recipe[:-1]
        undone = lab.apply(work, recipe)
    assert weights_hash(undone.module) == weights_hash(work.model)
    assert torch.equal(undone.model(x := images()), work.model(x))


def test_equal_steps_with_other_remarks_share_the_model_and_have_the_new_remarks() -> None:
    work = small()
    plain = lab.apply(work, Recipe(["fold"]))
    explained = lab.apply(work, Recipe([{"fold": {"why": "exact"}}], workload="small"))
    assert explained.module is plain.module
    assert explained.recipe.explain().endswith("exact")
    assert explained.recipe.workload == "small"


def test_recipes_with_their_patterns_in_another_order_are_two() -> None:
    patterns = {"head": "fp32", "h*": "bf16"}
    first, second = (
        Recipe([{"precision": {"layers": dict(order)}}])
        for order in (patterns.items(), reversed(patterns.items()))
    )
    assert first != second and first.digest != second.digest
    work = small()
    formats = [lab.apply(work, recipe).module.head.weight.dtype for recipe in (first, second)]
    assert formats == [torch.bfloat16, torch.float32], "a later pattern wins"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_variant_changed_by_hand_is_created_again(which: int) -> None:
    work = small()
    old = [lab.apply(work, Recipe(STEPS[:count])) for count in range(3)]
    with torch.no_grad():
        old[which].module.head.bias += 1
    new = [lab.apply(work, Recipe(STEPS[:count])) for count in range(3)]
    assert [before is after for before, after in zip(old, new, strict=True)] == [
        index != which for index in range(3)
    ]
    assert new[which].reports == () or new[which].reports[-1].relative_error < 1e-4


def test_a_recipe_is_applied_again_after_training_the_model() -> None:
    work = small()
    old = lab.apply(work, Recipe(["fold"]))
    with torch.no_grad():
        work.model.norm.running_mean += 1
    new = lab.apply(work, Recipe(["fold"]))
    assert new is not old and new.weights_hash != old.weights_hash
    torch.testing.assert_close(new.model(x := images()), work.model(x))


def test_a_recipe_is_applied_again_if_the_output_changed_with_equal_weights() -> None:
    work = Workload(Scaled(), torch.randn(2, 4))
    old = lab.apply(work, Recipe(["layout"]))
    work.model.scale = 3.0
    torch.testing.assert_close(
        lab.apply(work, Recipe(["layout"])).model(x := torch.randn(2, 4)), work.model(x)
    )
    assert old.model.scale == 1.0


def test_a_recipe_is_applied_again_with_other_data_or_another_loss() -> None:
    work, recipe = small(), Recipe([{"precision": {"default": "int8"}}])
    before = lab.apply(work, recipe)
    for name, value in (
        ("test", [(3 * images(), None)]),
        ("train", [(9 * images(), None)]),
        ("loss", nn.functional.cross_entropy),
    ):
        setattr(work, name, value)
        after = lab.apply(work, recipe)
        assert after is not before and lab.apply(work, recipe) is after
        assert (after.remembered == before.remembered) is (name == "loss")
        before = after


def test_the_number_of_cached_variants_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_KEPT", 3)
    work = small()
    for pattern in ("conv", "norm", "head", "*"):
        lab.apply(work, Recipe([{"precision": {"layers": {pattern: "bf16"}}}]))
    assert len(work.variants) == 3


WRONG = {
    "a planted error": ("trick", (
        r"Step 'trick' cannot be applied to Small: it should be exact, and its output differs by "
        r".*\(allowed 1e-04\); nothing was changed"
    )),
    "a NaN": ("loose", "its output holds a NaN"),
    "another shape": ("loose", r"output has shape \(2, 7\) where the baseline's has \(2, 5\)"),
    "one answer more": ("loose", "output has 2 tensors where the baseline's has 1"),
    "a bug": ("loose", r"ZeroDivisionError: division by zero; nothing was changed\.$"),
    "a bad copy": ("loose", "AttributeError: .*head"),
    "a refusal": ("loose", "Step 'loose' cannot be applied to Small: this model is not for me"),
}  # fmt: skip


@pytest.mark.parametrize("exact", ["trick", "loose"])
@pytest.mark.parametrize("does", WRONG)
def test_a_failing_step_is_reported_and_changes_nothing(does: str, exact: str) -> None:
    kind, message = WRONG[does]
    work = small()
    before = portrait(work.model)
    good = lab.apply(work, Recipe(["fold"]))
    recipe = Recipe(["fold", {exact: {"does": does}}])
    if does == "a planted error" and exact == "loose":
        assert lab.apply(work, recipe).reports[-1].relative_error > 1e-4
    else:
        with pytest.raises(
            StepError, match=message if exact == kind else "cannot be applied to Small"
        ) as caught:
            lab.apply(work, recipe)
        assert "\n" not in str(caught.value)
    assert portrait(work.model) == before and lab.apply(work, Recipe(["fold"])) is good
    assert lab.apply(work, Recipe(["fold", "trick"])).notes[-1] == "did nothing"


def test_an_interrupt_leaves_only_complete_variants() -> None:
    work = small()
    before = portrait(work.model)
    recipe = Recipe(["fold", {"loose": {"does": "an interrupt"}}, "layout"])
    with pytest.raises(KeyboardInterrupt):
        lab.apply(work, recipe)
    assert portrait(work.model) == before
    complete = [variant.recipe for variant in work.variants.values()]
    assert complete == [Recipe(), Recipe(["fold"])]
    assert lab.apply(work, Recipe(["fold"])).reports[-1].relative_error < 1e-4


def test_an_error_in_a_pattern_is_reported() -> None:
    with pytest.raises(RecipeError, match="pattern 'haed' matches no layer; the nearest are head"):
        lab.apply(small(), Recipe([{"precision": {"layers": {"haed": "bf16"}}}]))


def test_a_model_that_cannot_be_copied_is_reported() -> None:
    model = Small()
    model.file = open(os.devnull)  # type: ignore[assignment]  # noqa: SIM115
    with (
        model.file,
        pytest.raises(
            StepError, match=r"Small cannot be copied .*, and a recipe is only applied to a copy"
        ),
    ):
        lab.apply(Workload(model, images()), Recipe(["fold"]))


class Clinging(nn.Linear):
    """Its copy is itself."""

    def __deepcopy__(self, memo: Any) -> Clinging:
        return self


class Lending(nn.Linear):
    """Its copy has its weight, or a view of it."""

    lends_view = False

    def __deepcopy__(self, memo: Any) -> Lending:
        lent = type(self)(self.in_features, self.out_features)
        lent.weight = nn.Parameter(self.weight[:]) if self.lends_view else self.weight
        return lent


class LendingView(Lending):
    lends_view = True


class LendingBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.ones(4))

    def forward(self, values: Tensor) -> Tensor:
        return values + self.shift

    def __deepcopy__(self, memo: Any) -> LendingBuffer:
        lent = LendingBuffer()
        lent.shift = self.shift
        return lent


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Clinging(4, 4), r"module 'part' \(Clinging\) is reused instead of copied"),
        (Lending(4, 4), r"the copy of module 'part' \(Lending\) shares the memory of 'weight'"),
        (
            LendingView(4, 4),
            r"the copy of module 'part' \(LendingView\) shares the memory of 'weight'",
        ),
        (
            LendingBuffer(),
            r"the copy of module 'part' \(LendingBuffer\) shares the memory of 'shift'",
        ),
    ],
    ids=["module", "weight", "view", "buffer"],
)
def test_a_model_whose_copy_shares_memory_is_refused_and_unchanged(
    part: nn.Module, message: str
) -> None:
    model = nn.Sequential(OrderedDict(line=nn.Linear(4, 4), part=part))
    work = Workload(model, torch.randn(2, 4))
    before = portrait(model)
    with pytest.raises(
        StepError, match=f"Sequential cannot be copied .*{message}.*; let its __deepcopy__"
    ):
        lab.apply(work, Recipe([{"precision": {"default": "bf16"}}]))
    with pytest.raises(WorkloadError, match=f"Sequential cannot be copied .*{message}"):
        work.copied()
    assert portrait(model) == before and work.variants == {}


def test_a_model_that_is_its_own_copy_is_refused() -> None:
    with pytest.raises(
        StepError, match=r"the model itself \(Clinging\) is reused instead of copied"
    ):
        lab.apply(Workload(Clinging(4, 4), torch.randn(2, 4)), Recipe(["layout"]))


def test_a_saved_recipe_replays_to_the_same_hash(tmp_path: Path) -> None:
    work = small()
    variant = lab.apply(work, Recipe(["fold", "layout"]))
    folder = variant.save(tmp_path / "out")
    assert {"recipe.yaml", "weights.safetensors"} < {path.name for path in folder.iterdir()}
    again = lab.apply(Workload(work.model, work.inputs), Recipe.load(folder / "recipe.yaml"))
    assert again.weights_hash == variant.weights_hash
    nn.init.zeros_(again.module.head.weight)
    load_weights(again.module, folder / "weights.safetensors")
    assert weights_hash(again.module) == variant.weights_hash


def test_layout_changes_memory_and_not_values() -> None:
    variant = lab.apply(small(), Recipe(["layout"]))
    seen: list[Tensor] = []
    variant.module.conv.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    variant.model(images())
    assert variant.module.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert variant.reports[0].relative_error < 1e-5
    assert (
        "no image" in lab.apply(Workload(Scaled(), torch.randn(2, 4)), Recipe(["layout"])).notes[0]
    )


def test_layout_leaves_weights_of_five_dimensions_as_they_are() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Unflatten(1, (1, 4)), nn.Conv3d(1, 2, 3))
    variant = lab.apply(Workload(model, torch.randn(1, 3, 6, 6)), Recipe(["layout"]))
    assert variant.module[0].weight.stride() == (3, 1, 3, 3)
    assert variant.module[2].weight.stride() == model[2].weight.stride()


class Foreign(Trick):
    """A step of another package."""

    kind: ClassVar[str] = "foreign"


def installed(monkeypatch: pytest.MonkeyPatch, loads: Any) -> None:
    class Entries(dict[str, Any]):
        names: ClassVar[tuple[str, ...]] = ("foreign", "fold")

    def load() -> Any:
        if isinstance(loads, Exception):
            raise loads
        return loads

    monkeypatch.setattr(
        steps,
        "entry_points",
        lambda group: Entries(foreign=SimpleNamespace(load=load, value="pack.age:Foreign")),
    )
    monkeypatch.setattr(steps, "_installed", steps._installed.__wrapped__)
    steps._from_entry_point.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    yield
    steps._from_entry_point.cache_clear()


def test_a_step_of_another_package_is_registered_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(monkeypatch, Foreign)
    assert steps.step_names()[-1] == "foreign" and steps.step_names().count("fold") == 1
    recipe = Recipe.from_text("version: 1\nsteps:\n  - foreign: {does: nothing}\n")
    assert lab.apply(small(), recipe).notes == ("did nothing",)
    assert steps.step_class("fold").__name__ == "Fold"


@pytest.mark.parametrize(
    ("loads", "message"),
    [
        (
            ImportError("no module named age"),
            r"'foreign' cannot be loaded from pack\.age:Foreign \(no module named age\)",
        ),
        (dict, "is not a Step of that kind"),
        (Loose, "is not a Step of that kind"),
    ],
)
def test_a_broken_step_of_another_package_is_reported(
    loads: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, loads)
    with pytest.raises(RecipeError, match=message):
        Recipe(["foreign"])
    assert Recipe(["fold"]).label == "fold batch-norm"


def test_a_step_without_apply_is_reported() -> None:
    with pytest.raises(PaifuserError, match="cannot be applied; define"):
        lab.apply(
            small(), Recipe([type("Silent", (Step,), {"kind": "silent", "__annotations__": {}})()])
        )


def test_an_engine_shares_the_weights_of_the_step_before_it():
    work = lab.Workload(Small(), images())
    before = lab.apply(work, lab.Recipe(["layout"]))
    assert lab.apply(work, before.recipe + {"backend": {"threads": 1}}).module is before.module


def test_the_memory_of_cached_variants_is_bounded(monkeypatch):
    work = lab.Workload(Small(), images())
    monkeypatch.setattr(cache, "SHARE_OF_MEMORY", 0.0)
    last = lab.apply(work, lab.Recipe(["layout", {"precision": {"default": "bf16"}}, "layout"]))
    assert len(work.variants) == 2
    assert lab.apply(work, last.recipe) is last


def test_variants_are_cached_by_number_of_threads():
    work = Workload(Small(), images())
    before = torch.get_num_threads()
    with threads(before + 1):
        other = lab.apply(work, Recipe(["fold"]))
    own = lab.apply(work, Recipe(["fold"]))
    assert (other.threads, own.threads) == (before + 1, before)
    with threads(before + 1):
        assert lab.apply(work, Recipe(["fold"])) is other, (
            "each is still there for its number of threads"
        )
    assert lab.apply(work, Recipe(["fold"])) is own
