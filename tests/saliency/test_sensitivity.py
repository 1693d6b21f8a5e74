"""How much each layer matters: right numbers, in every awkward model, with nothing left changed."""

from __future__ import annotations

import copy
import re
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.model.formats import rounded
from paifuser_lab.records import Sensitivity
from paifuser_lab.saliency import estimate_layers, estimation, probes
from paifuser_lab.saliency.methods import ESTIMATORS
from paifuser_lab.saliency.methods.fisher import one_by_one
from paifuser_lab.saliency.subject import Batch
from paifuser_lab.workload import Inputs
from tests.support.models import Mapped, Small, Tied, ids, images, state_of

pytestmark = pytest.mark.usefixtures("one_thread")

SCORED = [name for name in ESTIMATORS if name not in ("eigenvalues", "density")]


class Narrow(nn.Module):
    """Rounds its input to bf16."""

    def forward(self, x: Tensor) -> Tensor:
        return x.bfloat16()


def classes(
    model: nn.Module | None = None, *, batches: int = 5, size: int = 6, **options: Any
) -> lab.Workload:
    """A small classifier with data."""
    torch.manual_seed(1)
    model = model or nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    data = [(torch.randn(size, 4), torch.randint(0, 3, (size,))) for _ in range(batches)]
    return lab.Workload(
        model, data[0][0], **({"name": "classes", "loss": F.cross_entropy, "train": data} | options)
    )


def test_every_method_gives_an_estimate_and_an_error_for_each_layer_and_format():
    work = classes()
    before = state_of(work.model)
    seen = lab.sensitivity(
        work, formats=("bf16", "int8", "int2-weights"), methods=tuple(ESTIMATORS), error=0.5
    )
    assert (
        [row.layer for row in seen.rows] == ["0", "2", "4"]
        and seen.unit == "loss"
        and seen.method == "quadratic"
    )
    for row in seen.rows:
        assert set(row.scores) == {"bf16", "int8", "int2-weights"}
        for by_method in row.scores.values():
            assert set(by_method) == set(SCORED)
            assert all(
                estimate.error is not None and estimate.error >= 0 and estimate.samples >= 4
                for estimate in by_method.values()
            )
        assert row.curvature is not None and row.curvature.trace is not None
        assert abs(row.curvature.top_eigenvalues[0]) >= abs(row.curvature.top_eigenvalues[-1])
        assert sum(share for _, share in row.curvature.density) == pytest.approx(1)
    assert {method.name for method in seen.methods} == set(ESTIMATORS)
    assert set(seen.methods[0].agreement) <= {"bf16", "int8", "int2-weights"}
    assert state_of(work.model) == before


def test_the_quadratic_prediction_is_the_measured_rise_for_small_changes():
    work = classes(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
    seen = lab.sensitivity(
        work, formats=("int8", "int8-weights"), methods=("quadratic", "ablation"), error=1e-6
    )
    for row in seen.rows:
        for name in seen.formats:
            predicted, measured = seen.predicted(row.layer, name), seen.measured(row.layer, name)
            assert predicted.value == pytest.approx(measured.value, rel=0.1, abs=2e-6)
            assert predicted.samples == measured.samples == 5


def test_the_curvature_alone_leaves_the_slope_out():
    """A loss that is linear in a layer has no bend there, however steep it is."""
    work = classes(nn.Sequential(nn.Linear(4, 3)), loss=lambda answer, target: answer.sum())
    (row,) = lab.sensitivity(
        work, formats=("int2-weights",), methods=("quadratic", "quadratic-curvature")
    ).rows
    assert (
        row.scores["int2-weights"]["quadratic-curvature"].value
        == 0
        != row.scores["int2-weights"]["quadratic"].value
    )
    work.loss = lambda answer, target: answer.square().sum() + 100 * answer.sum()
    (row,) = lab.sensitivity(
        work, formats=("int2-weights",), methods=("quadratic-curvature",), error=1e-9
    ).rows
    change = rounded(work.model[0].weight, "int2-weights") - work.model[0].weight.detach()
    expected = sum(float((x @ change.T).square().sum()) for x, _ in work.train) / len(work.train)
    assert row.scores["int2-weights"]["quadratic-curvature"].value == pytest.approx(
        expected, rel=1e-4
    )


def test_the_ablation_is_the_loss_with_the_layer_rounded():
    work = classes()
    seen = lab.sensitivity(work, formats=("int3-weights",), methods=("ablation",), error=1e-9)
    changed = copy.deepcopy(work.model)
    with torch.no_grad():
        changed[2].weight.copy_(rounded(changed[2].weight, "int3-weights"))
        rises = torch.stack(
            [
                F.cross_entropy(changed(x), y) - F.cross_entropy(work.model(x), y)
                for x, y in work.train
            ]
        )
    measured = seen.measured("2", "int3-weights")
    assert measured.value == pytest.approx(float(rises.mean()), abs=1e-6)
    assert measured.error == pytest.approx(float(rises.std()) / 5**0.5, abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(widths=st.lists(st.integers(1, 9), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_a_layer_in_full_precision_costs_nothing_by_any_method(widths, seed):
    torch.manual_seed(seed)
    sizes = [4, *widths, 3]
    model = nn.Sequential(*(nn.Linear(width, next_width) for width, next_width in pairwise(sizes)))
    seen = lab.sensitivity(
        classes(model, batches=2),
        formats=("fp32",),
        methods=("ablation", "quadratic", "fisher", "output"),
    )
    assert {estimate.value for row in seen.rows for estimate in row.scores["fp32"].values()} == {
        0.0
    }


def test_the_trace_is_the_exact_one_where_each_probe_is_exact():
    """A layer with a single weight, and one whose block of the Hessian is diagonal."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    data = [(torch.tensor([[2.0]]), torch.tensor([[1.0]]))]
    work = lab.Workload(model, data[0][0], loss=F.mse_loss, train=data)
    row = lab.sensitivity(work, formats=("int2-weights",), methods=("trace", "eigenvalues"))["0"]
    assert row.curvature.trace.value == pytest.approx(
        8.0
    ) and row.curvature.trace.error == pytest.approx(0)
    assert row.curvature.top_eigenvalues == pytest.approx((8.0,))


def test_the_empirical_fisher_is_half_the_mean_of_squared_gradients_times_changes():
    work = classes(batches=1)
    seen = lab.sensitivity(work, formats=("int2-weights",), methods=("fisher",))
    (x, y), weight = work.train[0], work.model[4].weight
    squares = [
        torch.autograd.grad(
            F.cross_entropy(work.model(x[i : i + 1].clone()), y[i : i + 1]), weight
        )[0]
        ** 2
        for i in range(6)
    ]
    change = rounded(weight, "int2-weights") - weight.detach()
    expected = (torch.stack(squares).mean(0) * change**2).sum() / 2
    assert seen.predicted("4", "int2-weights").value == pytest.approx(float(expected), rel=1e-4)


def test_a_batch_is_cut_into_its_examples_keyword_arguments_and_targets_alike():
    batch = Batch(
        Inputs.of({"ids": ids(3), "scale": torch.tensor(2.0)}),
        {"of": torch.arange(3), "names": "abc"},
        0,
    )
    cut = one_by_one(batch)
    assert [example.target["of"].tolist() for example in cut] == [[0], [1], [2]]
    assert cut[1].inputs.kwargs["ids"].tolist() == batch.inputs.kwargs["ids"][1:2].tolist()
    assert cut[1].inputs.kwargs["scale"] == 2 and cut[1].target["names"] == "abc"


class Awkward(nn.Module):
    """Frozen, unused, shared and doubly called layers, an in-place ReLU, a dict for an answer, a
    keyword, dice, and a buffer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.again = nn.Linear(6, 6)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.head = nn.Linear(6, 3)
        self.head.weight = nn.Parameter(self.head.weight.detach().clone())
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, *, scale: float = 1.0) -> dict[str, Any]:
        self.calls += 1
        hidden = torch.relu_(self.first(input=x) * scale)
        hidden = torch.relu_(self.again(self.again(hidden)))
        hidden = F.dropout(self.frozen(hidden), 0.2, training=True)
        return {"logits": self.head(hidden), "kind": "awkward"}


def test_awkward_models_work_and_are_not_changed():
    model = Awkward().train()
    model.head.weight.grad = torch.ones(3, 6)
    data = [({"x": torch.randn(5, 4), "scale": 2.0}, torch.randint(0, 3, (5,))) for _ in range(2)]
    work = lab.Workload(
        model,
        data[0][0],
        name="awkward",
        train=data,
        loss=lambda answer, target: F.cross_entropy(answer["logits"], target),
    )
    before, random_state = state_of(model), torch.get_rng_state()
    seen = lab.sensitivity(work, formats=("int8", "int2-weights"), methods=tuple(SCORED))
    assert state_of(model) == before and torch.equal(torch.get_rng_state(), random_state)
    assert "never ran" in seen["unused"].note and not seen["unused"].scores
    for name in ("first", "again", "frozen", "head"):
        scores = seen[name].scores["int2-weights"]
        assert all(estimate.value != 0 for estimate in scores.values()), name
    repeat = lab.sensitivity(
        work, formats=("int8", "int2-weights"), methods=("quadratic", "ablation")
    )
    assert repeat["first"].scores["int8"]["ablation"] == seen["first"].scores["int8"]["ablation"]


def test_of_tied_weights_each_use_is_rounded_alone():
    work = lab.Workload(
        Tied(),
        ids(),
        loss=lambda answer, target: answer.square().mean(),
        train=[(ids(), 0), (ids(), 0)],
    )
    seen = lab.sensitivity(work, formats=("int2-weights",), methods=("quadratic", "ablation"))
    assert seen.measured("table", "int2-weights") != seen.measured("head", "int2-weights")
    assert work.model.head.weight is work.model.table.weight


def test_attention_is_estimated_by_its_slow_path_and_bypassed_layers_are_reported():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).requires_grad_(False)
    data = [(torch.randn(2, 3, 8), torch.randn(2, 3, 8)) for _ in range(2)]
    seen = lab.sensitivity(
        lab.Workload(model, data[0][0], loss=F.mse_loss, train=data),
        formats=("int4-weights", "int8"),
        methods=("quadratic", "ablation"),
    )
    assert "never ran" in seen["layers.0.self_attn.out_proj"].note
    for name in seen.formats:
        assert seen.predicted("layers.1.linear1", name).value == pytest.approx(
            seen.measured("layers.1.linear1", name).value, rel=0.3, abs=1e-5
        )


def test_without_a_loss_or_data_the_output_error_is_used_and_reported():
    for work in (
        lab.Workload(Small(), images()),
        lab.Workload(Mapped(), {"ids": ids()}, loss=F.cross_entropy),
    ):
        seen = lab.sensitivity(work, formats=("int4-weights",))
        assert (
            seen.unit == "output error" and seen.method == "output" and "instead" in seen.notes[0]
        )
        assert all(0 < seen.predicted(row.layer, "int4-weights").value < 1 for row in seen.rows)


def test_test_data_are_used_where_there_are_no_others():
    work = classes()
    work.test, work.train = work.train[:2], None
    seen = lab.sensitivity(work, formats=("int8",))
    assert seen.notes[0] == "estimated on the test data" and seen.examples == 12


def test_resuming_a_record_recomputes_nothing(monkeypatch):
    work = classes(batches=8)
    whole = lab.sensitivity(work, formats=("int8",), methods=("ablation",), error=1e-9)
    part = lab.sensitivity(work, formats=("int8",), methods=("ablation",), error=1e-9, batches=3)
    joined = lab.sensitivity(
        work, formats=("int8",), methods=("ablation",), error=1e-9, resume=part
    )
    assert part.measured("0", "int8").samples == 3
    for row in whole.rows:
        assert joined[row.layer].scores["int8"]["ablation"].value == pytest.approx(
            row.scores["int8"]["ablation"].value
        )
        assert joined[row.layer].scores["int8"]["ablation"].error == pytest.approx(
            row.scores["int8"]["ablation"].error
        )
    monkeypatch.setattr(
        estimation.Estimation, "_round", lambda *_: pytest.fail("it was known already")
    )
    again = lab.sensitivity(
        work, formats=("int8",), methods=("ablation",), error=1e-9, resume=joined
    )
    assert again.rows == joined.rows


def test_a_trace_that_goes_on_draws_other_probes(monkeypatch):
    drawn: list[list[float]] = []
    signs = probes.signs

    def noted(like: Tensor, generator: torch.Generator) -> Tensor:
        vector = signs(like, generator)
        drawn.append(vector.flatten().tolist())
        return vector

    monkeypatch.setattr(probes, "signs", noted)
    work, part = classes(batches=1), None
    options = {"formats": ("int8",), "methods": ("trace",), "layers": "0"}
    for samples in (1, 2, 3):
        part = lab.sensitivity(work, **options, resume=part, should_stop=lambda: True)
        assert part["0"].curvature.trace.samples == samples
    assert len(drawn) == 3 * 2 * probes.PILOT_PROBES
    assert len(set(map(tuple, drawn))) == len(drawn)


def test_methods_and_layers_are_added_to_an_earlier_record():
    work = classes()
    first = lab.sensitivity(work, formats=("int8",), methods=("ablation",), layers="0")
    both = lab.sensitivity(work, formats=("bf16",), methods=("trace",), layers=["4"], resume=first)
    assert [row.layer for row in both.rows] == ["0", "4"] and both.formats == ("int8", "bf16")
    assert both["0"].scores == first["0"].scores and set(both["4"].scores) == {"bf16"}
    assert [method.name for method in both.methods] == ["ablation", "trace"]


def test_an_interrupt_keeps_the_estimates_so_far_and_raises_without_any():
    work = classes()
    before = state_of(work.model)
    calls = iter(range(100))
    seen = lab.sensitivity(
        work,
        formats=("int8",),
        methods=("ablation", "quadratic"),
        should_stop=lambda: next(calls) == 6,
    )
    assert seen.is_interrupted and [method.samples for method in seen.methods] == [3]
    assert state_of(work.model) == before

    def interrupt(answer: Tensor, target: Tensor) -> Tensor:
        raise KeyboardInterrupt

    resumed = lab.sensitivity(
        work, formats=("int8",), methods=("quadratic",), resume=seen, should_stop=lambda: True
    )
    assert resumed.is_interrupted and [method.name for method in resumed.methods] == [
        "ablation",
        "quadratic",
    ]
    work.loss = interrupt
    with pytest.raises(KeyboardInterrupt):
        lab.sensitivity(work)
    assert state_of(work.model) == before


def test_when_the_time_is_over_every_layer_has_one_sample(monkeypatch):
    seen = lab.sensitivity(
        classes(), formats=("int8",), methods=("ablation", "quadratic"), seconds=1e-9, error=1e-9
    )
    assert [method.samples for method in seen.methods] == [1, 1]
    assert all(set(row.scores["int8"]) == {"ablation", "quadratic"} for row in seen.rows)
    limit, uncertain, _ = seen.notes
    assert limit.startswith("the limit of 1e-09 s was reached: sensitivity(work, resume=…)")
    assert "3 of 3 means are less certain" in uncertain


def test_the_time_that_later_methods_leave_goes_to_the_earlier_ones(monkeypatch):
    now, samples = 0.0, ESTIMATORS["ablation"].samples

    def slow(self, batch, keys):
        nonlocal now
        for sample in samples(self, batch, keys):
            now += 1.0
            yield sample

    monkeypatch.setattr(ESTIMATORS["ablation"], "samples", slow)
    for module in (estimate_layers, estimation):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))
    seen = lab.sensitivity(
        classes(), formats=("int8",), methods=("ablation", "quadratic"), seconds=16, error=1e-9
    )
    assert [method.samples for method in seen.methods] == [5, 5]
    assert now == 3 * 5 and not any("the limit of" in note for note in seen.notes)


def test_there_is_a_limit_of_seconds_and_progress_shows_what_is_left(monkeypatch):
    shown: list[str] = []

    class Shown:
        def advance(self, count: int = 1, doing: str = "") -> None:
            shown.append(doing)

    monkeypatch.setattr(estimation, "progress", lambda what, total: nullcontext(Shown()))
    unlimited = lab.sensitivity(classes(), formats=("int8",), seconds=None)
    assert shown[0] == "0 int8" and not any("limit" in note for note in unlimited.notes)
    shown.clear()
    limited = lab.sensitivity(classes(), formats=("int8",))
    assert re.fullmatch(r"0 int8, at most (59|60) s left", shown[0])
    assert limited.rows == unlimited.rows


def test_precise_means_are_not_sampled_further():
    seen = lab.sensitivity(
        classes(batches=30), formats=("int2-weights",), methods=("output",), error=0.5
    )
    assert {
        estimate.samples for row in seen.rows for estimate in row.scores["int2-weights"].values()
    } == {4}


def test_a_format_that_breaks_a_layer_has_an_infinite_cost():
    model = nn.Sequential(nn.Linear(4, 3))
    with torch.no_grad():
        model[0].weight[0, 0] = 1e30
    seen = lab.sensitivity(
        classes(model, loss=F.mse_loss, train=[(torch.ones(2, 4) * 1e-30, torch.zeros(2, 3))]),
        formats=("fp16",),
        methods=("quadratic", "ablation"),
    )
    assert {estimate.value for estimate in seen["0"].scores["fp16"].values()} == {float("inf")}
    assert Sensitivity.model_validate_json(seen.model_dump_json()) == seen


def detached(answer: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(answer.detach(), target)


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float("nan")


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"methods": ("quadratc",)}, r"'quadratc' is no method; .*did you mean quadratic\?"),
    ({}, {"formats": ("int9",)}, r"'int9' is no format; .*did you mean int8"),
    ({}, {"formats": "int8"}, "are lists; write"),
    ({}, {"layers": "layer9.*"}, "pattern 'layer9.*' matches no layer"),
    ({}, {"batches": 0}, "0 batches are nothing to judge on"),
    ({"train": []}, {}, "the train data of classes hold no batch"),
    ({"train": [torch.ones(2, 4)]}, {}, r"is a Tensor; let it be \(inputs, target\)"),
    ({"train": [(torch.ones(2, 5), torch.zeros(2).long())]}, {}, "fails on batch 0 of its data"),
    ({}, {"error": 0}, "never reached; set one above 0"),
    ({}, {"seconds": 0}, "leave no time"),
    ({"loss": detached}, {}, "has no gradient in its weights"),
    ({"loss": lambda answer, target: answer.mean() * float("nan")}, {}, "is nan on batch"),
    (
        {"model": nn.Sequential(nn.Linear(4, 3), Broken())},
        {"methods": ("output",)},
        "outputs NaN on batch .*layer '1' .Broken",
    ),
    ({"loss": lambda answer, target: answer}, {}, r"has shape \(6, 3\); let it return one number"),
    ({"loss": lambda answer: answer}, {}, "it is called as loss"),
    (
        {"model": nn.Sequential(nn.LayerNorm(4))},
        {},
        "has no layer with a weight that can be rounded",
    ),
    ({"model": nn.Sequential(Narrow(), nn.Linear(4, 3).bfloat16())}, {}, "in bfloat16 already"),
    (
        {"loss": F.mse_loss, "train": [(torch.ones(2, 4), torch.ones(2, 3))]},
        {"methods": ("divergence",)},
        "not classes",
    ),
]


@pytest.mark.parametrize(
    ("changes", "options", "message"), BAD, ids=[message[:40] for *_, message in BAD]
)
def test_bad_arguments_raise_one_sentence_and_change_nothing(changes, options, message):
    changes = dict(changes)
    work = classes(changes.pop("model", None))
    for name, value in changes.items():
        setattr(work, name, value)
    before = state_of(work.model)
    with pytest.raises(MeasureError, match=message):
        lab.sensitivity(work, **options)
    assert state_of(work.model) == before


def test_a_record_of_other_weights_or_another_seed_cannot_be_resumed():
    work = classes()
    seen = lab.sensitivity(work, formats=("int8",), methods=("output",))
    with pytest.raises(MeasureError, match="with seed=0; continue with that seed"):
        lab.sensitivity(work, resume=seen, seed=1)
    with torch.no_grad():
        work.model[0].weight += 1
    with pytest.raises(MeasureError, match="are not those of the earlier record"):
        lab.sensitivity(work, resume=seen)
    with pytest.raises(MeasureError, match="is of classes, not of other"):
        lab.sensitivity(classes(name="other"), resume=seen)


def test_an_uncertain_order_is_reported():
    seen = lab.sensitivity(
        classes(), formats=("int8", "int2-weights"), methods=("ablation", "quadratic")
    )
    assert (
        sum(
            note.startswith("int8: what was measured is more than twice its error in")
            for note in seen.notes
        )
        == 1
    )
    exact = lab.sensitivity(classes(), formats=("int8",), methods=("ablation",), batches=1)
    assert not [note for note in exact.notes if "twice its error" in note]


def test_a_network_with_data_is_estimated_and_the_record_displays_it():
    work = lab.load("resnet18-digits-tiny", trained=False)
    seen = lab.sensitivity(
        work,
        formats=("int2-weights", "int8"),
        methods=("quadratic", "ablation"),
        layers="layer1",
        batches=[(x[:4], y[:4]) for x, y in work.train[:2]],
    )
    assert (
        len(seen.rows) == 4
        and seen.examples == 8
        and set(seen.methods[0].agreement) == {"int2-weights", "int8"}
    )
    for text in (str(seen), seen._repr_html_()):
        assert all(
            word in text
            for word in ("layer1.0.conv1", "int2-weights", "quadratic", "loss", "agree")
        )
    assert list(seen.frame.columns) == ["kind", "parameters", "int2-weights", "int8"]


@pytest.mark.parametrize(
    "is_created_inside", [False, True], ids=["called inside", "created inside"]
)
def test_inference_mode_does_not_change_the_estimates(
    is_created_inside: bool,
) -> None:
    expected, importance = lab.sensitivity(classes(), formats=("int8",)), lab.importance(classes())
    existing = None if is_created_inside else classes()
    with torch.inference_mode():
        work = existing or classes()
        assert lab.sensitivity(work, formats=("int8",)).rows == expected.rows
        assert lab.importance(work).rows == importance.rows
