"""Distillation: a changed model learns from the original, which is unchanged; what cannot be
compared is an error.
"""

from __future__ import annotations

import threading
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError, StepError, StoppedError
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.session import Session
from paifuser_lab.training import Batches, Training, run, train
from paifuser_lab.training.distillation import (
    Projections,
    Teacher,
    answers_of,
    attention_distance,
    attention_map,
    blend_of,
    divergence,
    feature_distance,
    kinds_of,
    stages,
)
from paifuser_lab.workload import Inputs
from tests.support.models import Mapped, Small, enliven, images, state_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread"),
]
PATIENCE = 120.0
PRUNE = {"prune": {"ratio": 0.6, "importance": "random", "round_to": 1, "repair": []}}


class Staged(nn.Module):
    """Two stages of blocks, and a head."""

    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.near = nn.Sequential(block(8, 8), block(8, 8))
        self.far = nn.Sequential(block(8, 16, stride=2))
        self.head = head or nn.Linear(16, 4)
        enliven(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.far(self.near(self.stem(x)))
        return self.head(x) if isinstance(self.head, nn.Conv2d) else self.head(x.mean((2, 3)))


def block(width: int, after: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, after, 3, stride, padding=1), nn.BatchNorm2d(after), nn.ReLU()
    )


def data(count: int = 5) -> list[tuple[Tensor, Tensor]]:
    """Noisy copies of four images."""
    generator = torch.Generator().manual_seed(3)
    pictures, labels = torch.randn(4, 3, 8, 8, generator=generator), torch.arange(12) % 4
    return [
        (pictures[labels] + torch.randn(12, 3, 8, 8, generator=generator), labels)
        for _ in range(count)
    ]


@cache
def taught() -> dict[str, Tensor]:
    """The trained weights of the original."""
    torch.manual_seed(5)
    model, plan = Staged(), Training(epochs=8, learning_rate=0.02)
    train(model, data(), lambda model, inputs, target: F.cross_entropy(inputs(model), target), plan)
    return model.state_dict()


def right(predict, batches) -> float:
    return sum(float((predict(x).argmax(1) == y).float().mean()) for x, y in batches) / len(batches)


def work_of(model: nn.Module | None = None, **options) -> lab.Workload:
    if model is None:
        model = Staged()
        model.load_state_dict(taught())
    torch.manual_seed(5)
    known = {"loss": F.cross_entropy, "train": data(), "name": "staged"} | options
    return lab.Workload(model, images(size=8), **known)


def distilled(work: lab.Workload, *before, **options) -> lab.Variant:
    return lab.apply(
        work, lab.Recipe([*before, {"distill": {"epochs": 2, "learning_rate": 0.01} | options}])
    )


def gap(work: lab.Workload, module: nn.Module) -> float:
    """The relative squared distance of the outputs for the train data from the original's."""
    with torch.no_grad():
        pairs = [(work.model(x), module(x)) for x, _ in work.train]
    return float(
        sum((expected - output).square().sum() for expected, output in pairs)
        / sum(expected.square().sum() for expected, _ in pairs)
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hard": 0.0},
        {"features": "auto"},
        {"attention": ["near.*", "far"]},
        {"answers": "values", "hard": 0.0},
        {"blend": True},
    ],
    ids=str,
)
def test_a_pruned_model_gets_closer_to_the_original_which_is_unchanged(options):
    work = work_of()
    before = state_of(work.model)
    pruned = lab.apply(work, lab.Recipe([PRUNE]))
    variant = distilled(work, PRUNE, epochs=8, **options)
    assert gap(work, variant.module) < 0.8 * gap(work, pruned.module)
    assert state_of(work.model) == before
    assert [name for name, _ in variant.module.named_parameters()] == [
        name for name, _ in pruned.module.named_parameters()
    ]
    assert not any(
        module._forward_hooks or module.training for module in variant.module.modules()
    ), "it is left as it came"


def distances(work: lab.Workload, module: nn.Module, layer: str) -> tuple[float, float]:
    """The distances between two models of one width in a layer: of outputs and attention maps."""
    inputs = torch.cat([x for x, _ in work.train])
    with (
        torch.no_grad(),
        answers_of(work.model, [layer]) as taught,
        answers_of(module, [layer]) as own,
    ):
        work.model(inputs), module(inputs)
    return float(feature_distance(Projections(module, {}, {}, 0), own, taught, [layer])), float(
        attention_distance(module, own, taught, [layer])
    )


@pytest.mark.parametrize(("index", "what"), [(0, "features"), (1, "attention")])
def test_compared_layers_get_closer_to_the_originals(index, what):
    work, chosen = work_of(), {what: ["near.1.2"], f"{what.removesuffix('s')}_weight": 20}
    plain, like = (
        distilled(work, epochs=4, learning_rate=0.03, **options).module for options in ({}, chosen)
    )
    assert (
        distances(work, like, "near.1.2")[index] < 0.8 * distances(work, plain, "near.1.2")[index]
    )


@pytest.mark.slow
def test_half_of_the_digits_model_recovers_from_chance_accuracy():
    work = lab.load("resnet18-digits-tiny")
    recipe = lab.Recipe(
        [{"prune": {"ratio": 0.5, "repair": []}}, {"distill": {"epochs": 2, "learning_rate": 5e-3}}]
    )
    pruned, variant = lab.apply(work, recipe[:1]), lab.apply(work, recipe)
    assert work.evaluate(pruned.module) < 0.5 and work.evaluate(variant.module) > 0.9
    message = next(note for note in variant.notes if note.startswith("accuracy"))
    assert (
        message
        == f"accuracy {work.evaluate(pruned.module):.4f} → {work.evaluate(variant.module):.4f}"
    )


def test_the_notes_report_the_training():
    work = work_of(test=data(2), metric=right)
    notes = distilled(work, PRUNE, features="auto").reports[-1].notes
    assert notes[0].startswith("loss ") and " in 2 epochs, 10 steps, " in notes[0]
    assert notes[1].startswith("right ") and " → " in notes[1]
    assert (
        notes[2]
        == "learned from the original: its outputs as classes; features of near.1.2, far.0.2"
    )
    assert notes[3] == "the original's outputs for 5 of the batches were kept"


def test_without_labels_or_loss_only_the_original_is_used_and_a_note_reports_it():
    unlabelled = [(x, None) for x, _ in data()]
    for options in ({"train": unlabelled}, {"loss": None}):
        work = work_of(**options)
        variant = distilled(work, PRUNE, epochs=4)
        assert "learned from the original alone, as there are no labels or no loss" in variant.notes
        assert gap(work, variant.module) < gap(work, lab.apply(work, lab.Recipe([PRUNE])).module)
    assert distilled(work_of(), PRUNE, hard=0.0).notes.count("learned from the original alone") == 1


def test_labels_are_weighted_by_hard():
    wrong = [(x, (y + 1) % 4) for x, y in data()]
    agreeing = []
    for hard in (0.0, 1.0):
        variant = distilled(work_of(train=wrong), epochs=6, learning_rate=0.03, hard=hard)
        agreeing.append(right(variant.module, wrong))
    assert agreeing[0] < 0.2 and agreeing[1] > 0.8


def test_a_folded_model_can_be_distilled():
    work = work_of()
    assert gap(work, distilled(work, "fold", PRUNE, epochs=4).module) < gap(
        work, lab.apply(work, lab.Recipe(["fold", PRUNE])).module
    )


class Batchwise:
    """Train data that are not a list, but iterated like a loader."""

    def __iter__(self):
        yield from data()


def test_outputs_for_loader_data_are_computed_anew_each_epoch():
    work = work_of(train=Batchwise())
    variant = distilled(work, PRUNE, epochs=4)
    assert not any("kept in memory" in note for note in variant.notes)
    assert gap(work, variant.module) < gap(work, lab.apply(work, lab.Recipe([PRUNE])).module)


def test_a_finished_distillation_is_taken_from_the_cache(monkeypatch):
    first = distilled(work_of(), PRUNE, seed=41)
    monkeypatch.setattr(run.Run, "_train_on", lambda *args: pytest.fail("it is trained again"))
    again = distilled(work_of(), PRUNE, seed=41)
    assert again.weights_hash == first.weights_hash
    assert (
        "taken from the cache, where an earlier run kept its end; nothing was trained anew"
        in again.notes
    )


def nudged() -> nn.Module:
    """The original with one weight changed."""
    model = Staged()
    model.load_state_dict(taught())
    with torch.no_grad():
        model.head.bias[0] += 1e-6
    return model


@pytest.mark.parametrize(
    ("other", "options"),
    [
        ({"train": data(4)}, {}),
        ({"train": [*data()[:4], (data()[4][0], data()[4][1].flip(0))]}, {}),
        ({"loss": lambda scores, target: 0.5 * F.cross_entropy(scores, target)}, {}),
        ({"model": nudged}, {}),
        ({}, {"temperature": 3.0}),
    ],
    ids=["fewer data", "other labels", "loss", "model", "options"],
)
def test_another_training_is_trained(other, options):
    distilled(work_of(), PRUNE, seed=42)
    work = work_of(**{name: value() if name == "model" else value for name, value in other.items()})
    assert not any(
        "cache" in note for note in distilled(work, PRUNE, **{"seed": 42} | options).notes
    )


def test_projections_are_trained_along_and_dropped(monkeypatch):
    seen = []

    def watched(*args, extra=None, **options):
        seen.append(
            (extra, weights_hash(extra), [tuple(weight.shape) for weight in extra.parameters()])
        )
        return train(*args, extra=extra, **options)

    monkeypatch.setattr("paifuser_lab.steps.training_step.train", watched)
    variant = distilled(work_of(), PRUNE, features=["far"], seed=46)
    ((extra, before, shapes),) = seen
    assert shapes == [(16, 6), (16,)] and weights_hash(extra) != before
    assert not any("Projection" in type(module).__name__ for module in variant.module.modules())


def test_a_stopped_recipe_resumes_exactly():
    whole = distilled(work_of(), seed=43, weight_decay=0.02)
    work, steps = work_of(), iter(range(100))
    with_features = lab.Recipe(
        [{"distill": {"epochs": 3, "learning_rate": 0.01, "seed": 43, "features": "auto"}}]
    )
    with pytest.raises(
        StoppedError,
        match=(
            r"^Step 'distill 3 epochs' stopped after step 2 of 5 in epoch 2 of 3; start it again "
            r"to go on"
        ),
    ):
        lab.apply(work, with_features, should_stop=lambda: next(steps) >= 7)
    variant = lab.apply(work, with_features)
    assert "went on from step 7, where an earlier run ended" in variant.notes
    fresh = lab.apply(work_of(), with_features)
    assert fresh.weights_hash == variant.weights_hash != whole.weights_hash


def test_a_training_on_blends_resumes_exactly():
    recipe = lab.Recipe(
        [{"distill": {"epochs": 2, "seed": 47, "blend": True, "features": ["far"]}}]
    )
    work, steps = work_of(), iter(range(100))
    with pytest.raises(StoppedError):
        lab.apply(work, recipe, should_stop=lambda: next(steps) >= 4)
    variant, fresh = lab.apply(work, recipe), lab.apply(work_of(), recipe)
    assert (
        "each batch was blended with itself in another order, and the original asked anew"
        in variant.notes
    )
    assert fresh.weights_hash == variant.weights_hash


@given(seed=st.integers(0, 99))
def test_a_blend_is_between_two_examples_and_so_is_its_loss(seed):
    torch.manual_seed(seed)
    inputs, labels, scores = (
        Inputs((torch.randn(6, 3), torch.arange(6))),
        torch.arange(6) % 4,
        torch.randn(6, 4),
    )
    blend = blend_of(inputs)
    pictures, numbers = blend(inputs).args
    first, second = inputs.args[0], inputs.args[0][blend.order]
    assert torch.allclose(
        pictures, blend.share * first + (1 - blend.share) * second
    ) and torch.equal(numbers, inputs.args[1])
    expected = blend.share * F.cross_entropy(scores, labels) + (1 - blend.share) * F.cross_entropy(
        scores, labels[blend.order]
    )
    assert torch.allclose(blend.loss(F.cross_entropy, scores, labels), expected)


def test_a_stopped_session_undoes_the_step_and_a_redo_resumes(monkeypatch):
    work = work_of()  # trained at its first use, before steps are counted
    held, steps = threading.Event(), []
    learn = run.Run._train_on

    def slowly(self, batch):
        learn(self, batch)
        steps.append(1)
        if len(steps) == 3:
            held.set()
            deadline.wait(PATIENCE)

    deadline = threading.Event()
    monkeypatch.setattr(run.Run, "_train_on", slowly)
    session = Session(work, rounds=1, seconds=0.1)
    try:
        session.wait(PATIENCE)
        session.choose({"distill": {"epochs": 2, "seed": 44}})
        assert held.wait(PATIENCE)
        session.stop()
        deadline.set()
        state = session.wait(PATIENCE)
        assert state.error is None and not len(state.recipe) and state.can_redo and len(steps) == 3
        session.redo()
        state = session.wait(PATIENCE)
        assert (
            state.error is None
            and state.variant.recipe.label == "distill 2 epochs"
            and len(steps) == 10
        )
        assert any("went on from step 3" in note for note in state.variant.notes)
    finally:
        session.close()
        session.wait(PATIENCE)


@pytest.mark.parametrize(
    ("model", "target", "answers", "kinds"),
    [
        ((2, 5), torch.zeros(2, dtype=torch.long), "auto", {"": 1}),
        ((2, 5), torch.zeros(2, 5), "auto", {"": None}),
        ((2, 5), None, "auto", {"": None}),
        ((2, 5), None, "classes", {"": 1}),
        ((2, 5), torch.zeros(2, dtype=torch.long), "values", {"": None}),
        ((2, 6, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long), "auto", {"": 1}),
        ((2, 6, 4, 4), None, "classes", {"": 1}),
        ((2, 7, 9), torch.zeros(2, 7, dtype=torch.int32), "auto", {"": 2}),
        ((2, 7, 9), torch.zeros(2, 9, dtype=torch.long), "auto", {"": 1}),
        ((2, 1), torch.zeros(2, dtype=torch.long), "auto", {"": None}),
    ],
    ids=str,
)
def test_the_kinds_of_tensors_that_are_compared(model, target, answers, kinds):
    assert kinds_of(torch.zeros(model), target, answers) == kinds


def test_named_logits_are_classes_and_integers_are_ignored():
    output = {
        "logits": torch.zeros(2, 3),
        "states": (torch.zeros(2, 7), None),
        "ids": torch.zeros(2, dtype=torch.long),
    }
    assert kinds_of(output, None, "auto") == {".logits": 1}
    assert kinds_of(output, None, "values") == {".logits": None, ".states.0": None}
    with pytest.raises(StepError, match="no tensor of floating-point numbers"):
        kinds_of(torch.zeros(2, dtype=torch.long), None, "auto")
    with pytest.raises(StepError, match="say answers: values"):
        kinds_of(torch.zeros(2, 1), None, "classes")


def test_dict_outputs_are_distilled():
    ids = torch.randint(0, 11, (4, 5))
    work = lab.Workload(Mapped().eval(), {"ids": ids}, train=[({"ids": ids}, None)] * 4)
    variant = distilled(work, epochs=1)
    assert "learned from the original: logits as classes" in variant.notes


def test_dense_outputs_are_distilled_at_each_position():
    dense = [(x, torch.zeros(12, 4, 4, dtype=torch.long)) for x, _ in data(2)]
    variant = distilled(work_of(Staged(nn.Conv2d(16, 5, 1)), train=dense), PRUNE, epochs=1)
    assert "learned from the original: its outputs as classes" in variant.notes


def test_the_divergence_is_the_textbooks():
    own, taught = torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    p, q = (taught / 3).softmax(1), (own / 3).softmax(1)
    expected = float((p * (p.log() - q.log())).sum(1).mean() * 9)
    assert float(divergence(own, taught, 1, 3.0)) == pytest.approx(expected, rel=1e-5)


@given(st.integers(0, 10_000), st.floats(0.5, 20), st.integers(1, 3))
def test_the_divergence_is_positive_and_zero_for_shifted_scores(seed, temperature, dimension):
    generator = torch.Generator().manual_seed(seed)
    own, taught = (torch.randn(2, 3, 4, 5, generator=generator) for _ in range(2))
    assert float(divergence(own, taught, dimension, temperature)) > 0
    moved = own + torch.randn(1, generator=generator)
    assert float(divergence(own, moved, dimension, temperature)) == pytest.approx(0, abs=1e-4)


@given(st.integers(0, 10_000), st.floats(0.1, 10))
def test_an_attention_map_is_invariant_to_scale_and_channel_order(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(2, 6, 3, 3, generator=generator)
    known = attention_map(output, 1)
    assert known.shape == (2, 9) and torch.allclose(known.norm(dim=1), torch.ones(2))
    assert torch.allclose(
        attention_map(scale * output[:, torch.randperm(6, generator=generator)], 1),
        known,
        atol=1e-5,
    )
    assert (
        float(attention_distance(nn.Identity(), {"a": output}, {"a": output[:, :3]}, ["a"])) > 1e-3
    )
    assert float(attention_distance(nn.Identity(), {"a": output}, {"a": -output}, ["a"])) < 1e-9


def test_stages_end_where_the_size_changes():
    assert stages(Staged(), Inputs.of(images(size=8))) == ["near.1.2", "far.0.2"]
    resnet = lab.load("resnet18-tiny")
    assert stages(resnet.model, resnet.inputs) == [f"layer{index}.1" for index in (1, 2, 3, 4)]
    swin = lab.load("swin-t-tiny")
    assert len(stages(swin.model, swin.inputs)) == 3 and all(
        "attention" not in name for name in stages(swin.model, swin.inputs)
    )
    plain = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    ).eval()
    assert stages(plain, Inputs.of(images(size=8))) == ["1", "2"]
    waves = nn.Sequential(
        *(nn.Conv1d(1, 8, 3, padding=1), nn.MaxPool1d(2)),
        *(nn.Conv1d(8, 8, 3, padding=1), nn.MaxPool1d(2)),
    ).eval()
    assert stages(waves, Inputs.of(torch.rand(2, 1, 16))) == ["0", "2", "3"]


def test_features_are_projected_only_where_the_channels_differ():
    own = {"near": torch.randn(2, 5, 4, 4), "far": torch.randn(2, 3, 8)}
    taught = {"near": torch.randn(2, 7, 4, 4), "far": torch.randn(2, 3, 8)}
    model = nn.ModuleDict({"near": nn.Identity(), "far": nn.Identity()})
    state = torch.get_rng_state()
    projections = Projections(model, own, taught, 0)
    assert torch.equal(torch.get_rng_state(), state) and list(projections) == ["near"]
    assert (
        projections.project("near", own["near"]).shape == (2, 7, 4, 4)
        and projections.project("far", own["far"]) is own["far"]
    )
    weight, bias = projections["near"].weight, projections["near"].bias
    assert torch.allclose(
        projections.project("near", own["near"]),
        F.conv2d(own["near"], weight[:, :, None, None], bias),
        atol=1e-6,
    )
    assert float(feature_distance(projections, taught, taught, ["far"])) == 0
    for wrong in (torch.randn(2, 5, 3, 3), torch.randn(2, 5, 4)):
        with pytest.raises(
            StepError,
            match=r"layer 'near' .Identity. outputs shape .* only channels may differ",
        ):
            Projections(model, {"near": wrong}, taught, 0)


def test_layer_outputs_are_recorded_only_within_the_context():
    model = Staged()
    with answers_of(model, ["near", "far.0"]) as outputs:
        model(images())
    assert {name: tuple(output.shape[:2]) for name, output in outputs.items()} == {
        "near": (2, 8),
        "far.0": (2, 16),
    }
    assert not any(module._forward_hooks for module in model.modules())


def test_a_teacher_caches_small_outputs_of_fixed_batches(monkeypatch):
    work, calls = work_of(), []
    work.model.register_forward_hook(lambda *args: calls.append(1))
    batches, teacher = Batches(work.train, work.device), Teacher(work.model, ["near"])
    first = [teacher.teach(batch) for batch in batches.epoch(0, 0)]
    again = [teacher.teach(batch) for batch in batches.epoch(0, 0)]
    assert len(calls) == teacher.kept == 5
    assert all(
        first_batch.target.answers[""] is second_batch.target.answers[""]
        for first_batch, second_batch in zip(first, again, strict=True)
    )
    assert torch.equal(first[0].target.answers[""], work.model(first[0].inputs.args[0]))
    assert (
        first[0].target.layers["near"].shape == (12, 8, 8, 8)
        and not first[0].target.answers[""].requires_grad
    )
    monkeypatch.setattr("paifuser_lab.training.distillation.MOST_BYTES", 100)
    forgetful = Teacher(work.model)
    assert [forgetful.teach(batch).target.target.shape for batch in batches.epoch(0, 0)] == [
        (12,)
    ] * 5 and forgetful.kept == 0


@pytest.mark.parametrize(
    ("before", "options", "message"),
    [
        (
            [{"precision": {"default": "int8-weights"}}],
            {},
            "has no gradients; put 'distill' before precision, or use qat",
        ),
        (
            [{"qat": {"epochs": 1}}],
            {},
            "has no gradients; put 'distill' before precision, or use qat",
        ),
        (
            [{"precision": {"default": "bf16"}}],
            {},
            "is bfloat16, in which small steps are lost; put 'distill' before precision",
        ),
        ([], {"features": ["nobody.*"]}, "distill: pattern 'nobody"),
        (
            [],
            {"blend": True},
            "integers or single examples, which cannot be blended; leave `blend` out",
        ),
        (
            [],
            {"attention": ["head"]},
            "layer 'head' .Linear. outputs channels alone, without positions; leave it out of "
            "attention",
        ),
    ],
)
def test_models_that_cannot_be_distilled_are_refused(before, options, message):
    work = work_of(train=[(x[:1], y[:1]) for x, y in data()]) if "blend" in options else work_of()
    with pytest.raises((StepError, RecipeError), match=message):
        distilled(work, *before, **options)


def test_a_model_in_16_bits_is_distilled_once_a_step_puts_it_into_fp32():
    train = [(x.bfloat16(), y) for x, y in data(2)]
    model, inputs = Staged().bfloat16(), images(size=8).bfloat16()
    work = lab.Workload(model, inputs, loss=F.cross_entropy, train=train)
    with pytest.raises(StepError, match=r'is bfloat16, .* put {"precision": "fp32"} before'):
        distilled(work)
    variant = distilled(work, {"precision": "fp32"})
    assert {weight.dtype for weight in variant.module.parameters()} == {torch.float32}


def test_a_last_batch_of_one_example_is_not_blended():
    (x, y), *rest = data()
    variant = distilled(work_of(train=[*rest, (x[:1], y[:1])]), blend=True)
    assert gap(work_of(), variant.module) > 0


def test_a_model_without_stages_needs_named_layers():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    with pytest.raises(
        StepError,
        match="auto finds no stage, as no layer outputs channels at several positions; name layers",
    ):
        distilled(work_of(flat), features="auto")


def test_a_workload_without_train_data_is_refused():
    with pytest.raises(
        StepError,
        match=(
            r"Step 'distill 2 epochs' cannot be applied to small: it has no train data; "
            r"give .* train="
        ),
    ):
        distilled(lab.Workload(Small(), images(), name="small"))


def test_a_failing_loss_is_reported():
    def loss(scores, target):
        raise KeyError("weights")

    with pytest.raises(
        StepError, match=r"the loss fails on the train data .KeyError: 'weights'.; correct it"
    ):
        distilled(work_of(loss=loss))


def test_its_options_are_read_checked_and_written():
    recipe = lab.Recipe(
        [
            {
                "distill": {
                    "epochs": 3,
                    "temperature": 2.5,
                    "features": "auto",
                    "attention": ["layer4"],
                    "why": "accuracy",
                }
            }
        ]
    )
    assert lab.Recipe.from_text(recipe.to_text()) == recipe and recipe.label == "distill 3 epochs"
    assert recipe.steps[0].plan.epochs == 3
    joined = recipe.with_step({"distill": {"epochs": 5}})
    assert len(joined) == 1 and joined.steps[0].epochs == 5 and joined.steps[0].temperature == 2.5
    for wrong in (
        {"hard": 1.5},
        {"temperature": 0},
        {"epochs": 0},
        {"optimizer": "adam"},
        {"featurs": "auto"},
    ):
        with pytest.raises(RecipeError, match=f"step 'distill'.*{next(iter(wrong))}"):
            lab.Recipe([{"distill": wrong}])


@pytest.mark.parametrize(
    "step",
    [
        {"prune": {"ratio": 0.5, "importance": "taylor"}},
        {"distill": {"epochs": 1}},
        {"qat": {"epochs": 1}},
        {"precision": {"default": "int8", "compensate": ["equalise", "rounding"]}},
    ],
    ids=lambda step: next(iter(step)),
)
def test_steps_under_inference_mode_give_equal_weights(step, monkeypatch, tmp_path):
    recipe = lab.Recipe([step])
    expected = weights_hash(lab.apply(work_of(), recipe).module)
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))  # where nothing was trained before
    with torch.inference_mode():
        there = lab.apply(
            work_of(), recipe
        )  # and the model, the data and the inputs were made there
        assert torch.is_inference_mode_enabled()
    assert weights_hash(there.module) == expected
    assert not any(weight.is_inference() for weight in there.module.parameters())
