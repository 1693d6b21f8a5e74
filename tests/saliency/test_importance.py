"""How much each channel matters: right numbers by every way of judging, in every awkward layer,
with nothing left changed.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Importance, LayerImportance
from paifuser_lab.saliency.channels import CHANNEL_ESTIMATORS
from paifuser_lab.saliency.channels.output_channels import channel_count, like_rows, rows_of
from paifuser_lab.saliency.subject import Layer
from tests.support.models import Tied, ids, state_of

pytestmark = pytest.mark.usefixtures("one_thread")

NEED_LOSS = [name for name, one in CHANNEL_ESTIMATORS.items() if one.needs == "loss"]


class Net(nn.Module):
    """Two convolutions with batch-norms, one of them behind a ReLU and so of nobody, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, bias=False)
        self.norm = nn.BatchNorm2d(3)
        self.second = nn.Conv2d(3, 6, 3)
        self.late = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 3)
        for norm in (self.norm, self.late):
            nn.init.normal_(norm.weight)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.second(torch.tanh(self.norm(self.first(images))))
        return self.head(self.late(torch.relu(hidden)).mean((2, 3)))


def classes(
    model: nn.Module | None = None, *, batches: int = 4, size: int = 5, **options: Any
) -> lab.Workload:
    """A small classifier of images with data."""
    data = [(torch.randn(size, 2, 7, 7), torch.randint(0, 3, (size,))) for _ in range(batches)]
    return lab.Workload(
        model or Net().eval(),
        data[0][0],
        **({"name": "net", "loss": F.cross_entropy, "train": data} | options),
    )


def loss_without(work: lab.Workload, batch: Any, layer: str, channel: int, gate: Tensor) -> Tensor:
    """The loss with a channel's weights multiplied by a gate."""
    weight = work.model.get_submodule(layer).weight.detach()
    factors = torch.ones(weight.shape[0]).index_put((torch.tensor(channel),), gate)
    changed = {f"{layer}.weight": weight * factors.reshape(-1, *(1,) * (weight.ndim - 1))}
    return work.loss(torch.func.functional_call(work.model, changed, (batch[0],)), batch[1])


@pytest.mark.parametrize("method", CHANNEL_ESTIMATORS)
def test_every_method_gives_a_value_per_channel_and_does_not_change_the_model(method):
    work = classes(Net().train())
    work.model.first.weight.requires_grad_(False)
    work.model.head.weight.grad = torch.ones_like(work.model.head.weight)
    before = state_of(work.model)
    seen = lab.importance(work, method)
    assert state_of(work.model) == before
    assert [(row.layer, row.channels) for row in seen.rows] == [
        ("first", 3),
        ("second", 6),
        ("head", 3),
    ]
    assert seen.method == method and seen.notes == () and seen.unit.endswith(".")
    for row in seen.rows:
        assert len(row.values) == (0 if "no batch-norm" in (row.note or "") else row.channels)
        assert all(value >= 0 for value in row.values)
        assert len(row.errors) == (
            0 if CHANNEL_ESTIMATORS[method].needs == "nothing" else row.channels
        )
    assert [row.is_answer for row in seen.rows] == [False, False, True] and seen.kept(99)[
        "head"
    ] == 3
    assert seen.examples == (0 if CHANNEL_ESTIMATORS[method].needs == "nothing" else 20)
    assert lab.importance(work, method).rows == seen.rows, "the same seed gives the same"


def test_taylor_is_slope_times_weight_added_up_and_its_error_is_that_of_the_mean():
    work = classes(
        nn.Sequential(nn.Flatten(), nn.Linear(98, 3)),
        batches=3,
        loss=lambda answer, target: answer.sum(1).square().mean(),
    )
    weight = work.model[1].weight.detach()
    expected = []
    for images, _ in work.train:
        total = work.model(images).detach().sum(1)
        slope = (2 * total[:, None] * images.flatten(1)).mean(
            0
        )  # the same for each channel of the sum
        expected.append((slope * weight).sum(1).abs())
    row = lab.importance(work, "taylor")["1"]
    assert row.values == pytest.approx(torch.stack(expected).mean(0).tolist(), rel=1e-5)
    assert row.errors == pytest.approx((torch.stack(expected).std(0) / 3**0.5).tolist(), rel=1e-4)


def change_of(work: lab.Workload, batch: Any, layer: str, channel: int) -> float:
    """What torch.func says of removing a channel: along its gate, from 1 to 0, to second order."""

    def loss(gate: Tensor) -> Tensor:
        return loss_without(work, batch, layer, channel, gate)

    gate = torch.tensor(1.0)
    return float((torch.func.hessian(loss)(gate) / 2 - torch.func.grad(loss)(gate)).detach())


def test_the_second_order_of_few_channels_is_that_of_torch_func():
    work = classes(batches=2)
    row = lab.importance(work, "taylor2")["head"]
    for channel in range(3):
        expected = sum(change_of(work, batch, "head", channel) for batch in work.train) / 2
        assert row.values[channel] == pytest.approx(abs(expected), rel=1e-4)


def test_the_second_order_of_many_channels_is_right_on_average_over_signs():
    work = classes(batches=1)
    row = lab.importance(work, "taylor2", batches=work.train * 100)["second"]
    for channel in range(6):
        expected = abs(change_of(work, work.train[0], "second", channel))
        assert row.values[channel] == pytest.approx(expected, abs=5 * row.errors[channel] + 1e-6)


def test_fisher_is_half_the_squared_slope_of_a_gate_over_examples():
    work = classes(batches=1, size=4)
    (images, target), row = work.train[0], lab.importance(work, "fisher")["second"]
    for channel in range(6):
        slopes = [
            slope_of(work, (images[at : at + 1], target[at : at + 1]), channel) for at in range(4)
        ]
        assert row.values[channel] == pytest.approx(
            sum(one**2 for one in slopes) / 8, rel=1e-3, abs=1e-9
        )


def test_the_examples_of_fisher_are_those_that_it_took():
    work = classes(batches=2, size=12)
    assert lab.importance(work, "fisher").examples == 16
    assert lab.sensitivity(work, formats=("int4-weights",), methods=("fisher",)).examples % 8 == 0


def slope_of(work: lab.Workload, batch: Any, channel: int) -> float:
    """The slope along the gate of a channel of the second layer."""
    return float(
        torch.func.grad(lambda gate: loss_without(work, batch, "second", channel, gate))(
            torch.tensor(1.0)
        ).detach()
    )


def test_batch_norm_takes_the_scale_of_the_norm_that_reads_the_layer():
    work = classes()
    seen = lab.importance(work, "batch-norm")
    assert seen["first"].values == pytest.approx(work.model.norm.weight.detach().abs().tolist())
    assert seen["second"].values == () and "no batch-norm" in seen["second"].note, (
        "between them stands a ReLU"
    )
    assert "no batch-norm" in seen["head"].note


def test_magnitude_and_activation_match_their_definitions():
    work = classes(batches=2)
    assert lab.importance(work, "magnitude")["first"].values == pytest.approx(
        work.model.first.weight.flatten(1).norm(dim=1).tolist()
    )
    outputs = [work.model.first(images).abs().mean((0, 2, 3)) for images, _ in work.train]
    assert lab.importance(work, "activation")["first"].values == pytest.approx(
        torch.stack(outputs).mean(0).tolist(), rel=1e-5
    )


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.ConvTranspose1d(4, 5, 3),
        nn.Linear(4, 3),
        nn.Conv1d(4, 2, 1),
        nn.Conv3d(4, 2, 1),
    ],
    ids=lambda module: repr(module).split("(", maxsplit=1)[0],
)
def test_a_channel_without_its_weights_outputs_only_its_bias(module):
    dimension = 1 if "Transpose" in type(module).__name__ else 0
    layer = Layer("one", module, dimension)
    places = len(getattr(module, "kernel_size", ()))
    x = torch.randn(2, 4, *(5,) * places)
    count = module(x).shape[1]
    assert channel_count(layer) == count == rows_of(layer, layer.weight).shape[0]
    for channel in range(count):
        gates = torch.ones(count)
        gates[channel] = 0
        gated = torch.func.functional_call(
            module,
            {"weight": layer.weight * like_rows(layer, gates), "bias": torch.zeros(count)},
            x,
        )
        assert not gated[:, channel].any() and all(
            gated[:, other].any() for other in range(count) if other != channel
        )
        assert torch.equal(
            rows_of(layer, layer.weight * like_rows(layer, gates))[channel],
            torch.zeros_like(rows_of(layer, layer.weight)[0]),
        )


def test_an_embedding_s_channels_are_its_width_and_a_shared_weight_counts_where_it_is_used():
    tied = Tied()
    data = [(ids(), ids()) for _ in range(2)]
    work = lab.Workload(
        tied,
        data[0][0],
        name="tied",
        loss=lambda answer, target: F.cross_entropy(answer.flatten(0, 1), target.flatten()),
        train=data,
    )
    for method in CHANNEL_ESTIMATORS:
        seen = lab.importance(work, method)
        assert [row.channels for row in seen.rows] == [4, 4, 7]
    taylor = lab.importance(work, "taylor")
    assert taylor["table"].values != taylor["head"].values[:4]
    assert tied.head.weight is tied.table.weight


@pytest.mark.parametrize(
    ("options", "missing"),
    [({"loss": None}, "loss"), ({"train": None, "test": None}, "data")],
    ids=["no loss", "no data"],
)
@pytest.mark.parametrize("method", NEED_LOSS)
def test_without_data_or_loss_magnitude_is_used_and_reported(options, missing, method):
    work = classes(**options)
    seen = lab.importance(work, method)
    assert seen.method == "magnitude" and seen.rows == lab.importance(work, "magnitude").rows
    assert seen.notes == (
        f"net has no {missing}, which {method} needs: estimated by magnitude instead",
    )
    assert seen.notes[0] in str(seen)


def test_test_data_is_used_where_there_is_no_other_and_reported():
    work = classes(train=None, test=[(torch.randn(3, 2, 7, 7), torch.randint(0, 3, (3,)))])
    assert lab.importance(work).notes == ("estimated on the test data",)
    assert lab.importance(classes(loss=None), "activation").method == "activation"


def test_layers_that_cannot_be_estimated_have_a_reason():
    class Idle(Net):
        def __init__(self) -> None:
            super().__init__()
            self.idle = nn.Linear(2, 2)
            self.rounded = nn.Linear(2, 2).half()
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 5))

    seen = lab.importance(classes(Idle().eval()))
    assert (
        "never ran" in seen["idle"].note
        and "float16" in seen["rounded"].note
        and "computed from others" in seen["normed"].note
    )
    assert seen["normed"].channels == 5 and seen["idle"].values == ()
    assert lab.importance(classes(Idle().eval()), layers="first").rows[0].layer == "first"
    with pytest.raises(
        MeasureError, match="none of the requested layers of net can be estimated; 'idle': it never"
    ):
        lab.importance(classes(Idle().eval()), layers=["idle"])


def test_an_infinite_weight_is_reported_in_a_note():
    work = classes()
    with torch.no_grad():
        work.model.head.weight[0, 0] = torch.inf
    seen = lab.importance(work, "magnitude")
    assert "not finite" in seen["head"].note and seen["first"].note is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda work: lab.importance(work, "tailor"),
            r"'tailor' is no method; there are taylor, .* \(did you mean taylor\?\)",
        ),
        (
            lambda work: lab.importance(work, layers="nobody"),
            "'nobody' matches no layer with output channels",
        ),
        (
            lambda work: lab.importance(lab.Workload(nn.ReLU(), torch.ones(1))),
            "no layer with output channels",
        ),
        (
            lambda work: lab.importance(classes(loss=lambda answer, target: answer.detach().sum())),
            "or for channels method='magnitude'",
        ),
    ],
)
def test_bad_arguments_raise_one_sentence(call, sentence):
    work = classes()
    with pytest.raises(lab.PaifuserError, match=sentence):
        call(work)


def test_the_time_limit_and_a_stop_keep_the_batches_so_far():
    work = classes(batches=4)
    assert lab.importance(work, seconds=1e-9).examples == 5, "one batch at least"
    stops = iter([False, True])
    stopped = lab.importance(work, should_stop=lambda: next(stops))
    assert stopped.is_interrupted and stopped.examples == 10 and "stopped early" in stopped.title
    before = state_of(work.model)
    calls = []

    def fail(answer: Tensor, target: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return F.cross_entropy(answer, target)

    work.loss = fail
    assert lab.importance(work).examples == 5 and state_of(work.model) == before
    with pytest.raises(KeyboardInterrupt):
        lab.importance(work)


ROW = LayerImportance(
    layer="a", kind="Linear", channels=4, values=(1.0, 4.0, 2.0, 1.0), errors=(0.1, 0.2, 0.3, 0.4)
)


def record(*rows: LayerImportance, **more: Any) -> Importance:
    return Importance(
        **{
            "workload": "net",
            "machine": "a machine",
            "method": "taylor",
            "unit": "A sentence.",
            "examples": 8,
        }
        | more,
        rows=rows,
    )


def test_a_layer_s_values_are_compared_by_its_mean_and_counted_above_a_threshold():
    assert ROW.mean == 2 and ROW.normalised.tolist() == [0.5, 2, 1, 0.5]
    assert [ROW.kept(threshold) for threshold in (0, 0.5, 0.6, 1, 1.5, 9)] == [4, 4, 2, 2, 1, 1], (
        "one channel stays"
    )
    unknown = LayerImportance(layer="b", kind="Linear", channels=3, note="why")
    assert unknown.kept(9) == 3
    assert LayerImportance(layer="c", kind="Linear", channels=2, values=(0.0, 0.0)).kept(1) == 2, (
        "nothing tells them apart"
    )


def test_one_threshold_for_all_layers_is_converted_to_ratios_to_remove():
    seen = record(ROW, LayerImportance(layer="b", kind="Linear", channels=2, values=(3.0, 1.0)))
    assert seen.channels == 6
    assert seen.kept(0.6) == {"a": 2, "b": 1}
    assert seen.ratios({"a": 1, "b": 2}) == {"a": 0.75}
    with pytest.raises(KeyError, match="no layer 'z'"):
        seen["z"]


def test_the_record_is_saved_loaded_and_displayed(tmp_path):
    seen = record(
        ROW,
        LayerImportance(layer="<b>", kind="Linear", channels=3, note="why"),
        notes=("noted",),
        is_interrupted=True,
    )
    assert lab.Record.load(seen.save(tmp_path / "seen.json")) == seen
    assert list(seen.frame.columns) == ["value", "error", "normalised"] and len(seen.frame) == 4
    assert seen.frame.loc[("a", 1), "normalised"] == 2
    text = str(seen)
    assert (
        "net on a machine · importance of channels by taylor · 8 examples · stopped early" in text
        and "noted" in text
    )
    assert "0.5 ×" in text and "2 ×" in text and "why" in text
    assert "<b>" not in seen._repr_html_()


@pytest.mark.parametrize("method", ["taylor", "magnitude"])
def test_the_record_says_how_the_step_prune_cuts_by_it(method):
    work = classes()
    shown = lab.importance(work, method)
    assert shown.cut_by.startswith(f"The step prune with importance: {method} removes the channels")
    assert "the lowest sum over the layers" in shown.cut_by
    assert shown.cut_by in str(shown) and shown.cut_by in shown._repr_html_()
    variant = lab.apply(
        work, lab.Recipe([{"prune": {"ratio": 0.5, "round_to": 1, "importance": method}}])
    )
    assert any(note.startswith(f"channels are chosen by {method} (") for note in variant.notes)


def test_a_variant_is_estimated_like_a_workload():
    variant = lab.apply(classes(), lab.Recipe(["fold"]))
    seen = lab.importance(variant)
    assert seen.workload == "net · fold batch-norm" and seen["first"].channels == 3
