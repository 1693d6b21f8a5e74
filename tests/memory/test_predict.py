"""The predicted peak: what it adds up from, against what torch allocates, and what it refuses."""

from __future__ import annotations

import functools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

import paifuser_lab as lab
from benchmarks.memory_peak import measured_bytes
from paifuser_lab.errors import MeasureError
from paifuser_lab.memory import Predictor, predicted_peak
from paifuser_lab.memory.predict import predictor as predicting
from paifuser_lab.memory.predict.predictor import fake_model
from paifuser_lab.records import StepOptions
from tests.support.models import Counting, Mapped, Perceptron, Small, images

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = ("resnet18-tiny", "vit-s-tiny", "swin-t-tiny")
WIDTH, DEPTH = 16, 4


class Stack(nn.Module):
    """Blocks in a row."""

    def __init__(self, depth: int = DEPTH) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Perceptron(WIDTH) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


@functools.cache
def loaded(name: str) -> lab.Workload:
    return lab.load(name)


def workload(model: nn.Module | None = None, inputs: object = None) -> lab.Workload:
    example = torch.randn(2, WIDTH) if inputs is None else inputs
    return lab.Workload(model or Stack(), example, name="small")


# Against what torch's allocator really gives out.


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("train", [False, True], ids=["call", "training"])
def test_the_peak_is_within_a_tenth_of_the_measured_one(name, train):
    options = StepOptions(train=train)
    measured = measured_bytes(loaded(name), options, 4)
    assert predicted_peak(loaded(name), train, batch=4).peak_bytes == pytest.approx(
        measured, rel=0.1
    )


class Context(nn.Module):
    """The mean of an image, normed and spread over it, as segmentation heads do."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.norm = nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(16)
        self.sharp = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.sharp(nn.functional.interpolate(self.norm(self.mean(x)), size=x.shape[-2:]))


def test_a_normed_image_of_one_pixel_is_predicted_in_the_layout_that_torch_computes():
    example = torch.randn(2, 16, 32, 32).to(memory_format=torch.channels_last)
    work = workload(Context().eval(), example)
    assert predicted_peak(work).peak_bytes == measured_bytes(work, StepOptions(), 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"train": True},
        {"train": True, "implementation": "foreach"},
        {"train": True, "implementation": "fused"},
        {"train": True, "optimizer": "sgd"},
        {"train": True, "optimizer": "sgd", "momentum": 0.0},
        {"train": True, "optimizer": "sgd", "implementation": "fused"},
        {"train": True, "checkpoint": ("blocks.0", "blocks.1", "blocks.2")},
        {"precision": "bf16"},
        {"precision": "amp-bf16"},
        {"train": True, "precision": "amp-bf16"},
    ],
    ids=lambda options: str(StepOptions(**options)),
)
def test_every_option_is_predicted_as_it_is_measured(options, processor):
    work, options = workload(), StepOptions(**options)
    if options.precision != "fp32":  # else oneDNN multiplies copies in fp32, not predicted
        processor.needs_bf16_units()
    # a product in bf16 has scratch of its own, which counts where all else is small
    batch, tolerance = (64, 0.02) if options.precision == "fp32" else (1024, 0.1)
    predicted = Predictor(work, options).peak(batch).peak_bytes
    assert predicted == pytest.approx(measured_bytes(work, options, batch), rel=tolerance)


def test_the_gradient_of_a_large_depthwise_convolution_in_bf16_is_predicted():
    """oneDNN keeps it dense in fp32, and once more in bf16."""

    class Depthwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixed = nn.Conv2d(32, 32, 7, padding=3, groups=32)

        def forward(self, x: Tensor) -> Tensor:
            return self.mixed(x.to(memory_format=torch.channels_last))

    work = workload(Depthwise(), torch.randn(2, 32, 8, 8))
    for precision in ("amp-bf16", "fp32"):
        options = StepOptions(train=True, precision=precision)
        measured = measured_bytes(work, options, 2)
        predicted = predicted_peak(work, True, batch=2, precision=precision).peak_bytes
        assert predicted == pytest.approx(measured, rel=0.1)


def test_a_loss_and_a_target_are_part_of_a_training_step():
    work = loaded("resnet18-digits-tiny")
    peak = predicted_peak(work, train=True, batch=8)
    _, target = work.train[0]
    assert peak.held.inputs_bytes == work.inputs.tensors[0][:1].nbytes * 8 + target[:1].nbytes * 8
    options = StepOptions(train=True)
    assert peak.peak_bytes == pytest.approx(measured_bytes(work, options, 8), rel=0.1)


# Against the library's tracker, which looks after each operator only.


@pytest.mark.parametrize("name", ["resnet18-tiny", "vit-s-tiny"])
def test_without_workspace_the_peak_is_that_of_the_memory_tracker(name, monkeypatch):
    monkeypatch.setattr(predicting, "workspace_of", lambda *call: 0)
    work = loaded(name)
    mode = FakeTensorMode()
    model, inputs = fake_model(work.model, mode).eval(), work.inputs.map(mode.from_tensor)
    tracker = MemTracker()
    tracker.track_external(model, *inputs.tensors)
    with mode, torch.no_grad(), tracker:
        inputs(model)
    (theirs,) = tracker.get_tracker_snapshot("peak").values()
    assert predicted_peak(work).peak_bytes == theirs["Total"]


# Categories.


def test_weights_gradients_and_optimizer_state_are_counted_to_the_byte():
    weights = sum(weight.nbytes for weight in Stack().parameters())
    count = len(list(Stack().parameters()))
    call = predicted_peak(workload()).held
    assert (call.weights_bytes, call.gradients_bytes, call.optimizer_state_bytes) == (weights, 0, 0)
    assert call.inputs_bytes == 2 * WIDTH * 4
    held = predicted_peak(workload(), train=True).held
    assert held.weights_bytes == held.gradients_bytes == weights
    assert held.optimizer_state_bytes == 2 * weights + 4 * count
    sgd = predicted_peak(workload(), train=True, optimizer="sgd").held
    assert sgd.optimizer_state_bytes == weights


def test_the_optimizers_temporaries_are_workspace_and_a_fused_one_has_none():
    wide = nn.Linear(256, 256)  # the weight is what counts
    work = workload(wide, torch.randn(1, 256))
    by_loop = predicted_peak(work, train=True)
    assert by_loop.moment == "the optimizer's step"
    assert by_loop.held.workspace_bytes >= wide.weight.nbytes
    assert predicted_peak(work, train=True, implementation="fused").held.workspace_bytes == 0


# Invariants.


@functools.cache
def predictor(options: StepOptions) -> Predictor:
    return Predictor(workload(), options)


OPTIONS = st.builds(
    StepOptions,
    train=st.booleans(),
    precision=st.sampled_from(["fp32", "bf16", "amp-bf16"]),
    optimizer=st.sampled_from(["adamw", "sgd"]),
    implementation=st.sampled_from([None, "for-loop", "foreach", "fused"]),
    checkpoint=st.sampled_from([(), ("blocks.1",), ("blocks.0", "blocks.3")]),
)


@settings(max_examples=12, deadline=None)
@given(OPTIONS, st.integers(1, 300), st.integers(0, 300))
def test_the_peak_holds_the_weights_grows_with_the_batch_and_is_the_sum_of_its_parts(
    options, batch, more
):
    small, large = (predictor(options).peak(count) for count in (batch, batch + more))
    assert small.peak_bytes <= large.peak_bytes
    for peak in (small, large):
        held = peak.held
        assert peak.peak_bytes == sum(held.by_category.values()) == held.total_bytes
        assert peak.peak_bytes >= held.weights_bytes + held.inputs_bytes
        assert held.weights_bytes == small.held.weights_bytes
        if not options.train:
            assert held.gradients_bytes == held.optimizer_state_bytes == 0


def test_nothing_of_the_model_is_run_or_changed():
    seen = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(WIDTH, WIDTH)
            self.norm = nn.BatchNorm1d(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(type(x))
            return self.norm(self.line(x))

    work = workload(Watched().train())
    del seen[:]
    before = {name: value.clone() for name, value in work.model.state_dict().items()}
    state = torch.get_rng_state()
    predicted_peak(work, train=True, batch=2**30)
    assert set(seen) == {FakeTensor}, "a batch of a thousand million allocates nothing"
    assert torch.equal(state, torch.get_rng_state()) and work.model.training
    assert all(torch.equal(before[name], work.model.state_dict()[name]) for name in before)
    assert all(weight.grad is None for weight in work.model.parameters())


@pytest.mark.parametrize("rebinds", [False, True])
def test_a_model_that_changes_its_buffers_is_predicted(rebinds):
    work = workload(Counting(rebinds=rebinds), torch.randn(2, 4))
    assert predicted_peak(work).peak_bytes > 80
    assert float(work.model.calls) == 0


def test_keyword_inputs_and_channels_last_keep_their_layout(processor):
    processor.is_of("AVX512")
    work = lab.Workload(Mapped(), {"ids": torch.zeros(6, 3, dtype=torch.long)}, name="mapped")
    assert predicted_peak(work, batch=12).held.inputs_bytes == 12 * 3 * 8
    last = images(2).to(memory_format=torch.channels_last)
    plain = lab.Workload(Small(), images(2), name="small")
    changed = lab.Workload(Small().to(memory_format=torch.channels_last), last, name="small")
    assert predicted_peak(changed, batch=64).peak_bytes < predicted_peak(plain, batch=64).peak_bytes


# What cannot be predicted.


class Peeking(nn.Module):
    """Reads a value, which a fake tensor does not have."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.sum())


class Frozen(nn.Module):
    """Has no output with a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x).argmax(1)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Peeking(), {}, "cannot be predicted without running it"),
        (Frozen(), {"train": True}, "no output depends on a weight that can be trained"),
        (nn.ReLU(), {"train": True}, "none of its weights can be trained"),
        (Stack(), {"batch": 0}, "batch=0 is not possible"),
        (Stack(), {"precision": "int8"}, "precision='int8' is no option of a step"),
        (Stack(), {"optimiser": "sgd"}, "optimiser='sgd' is no option of a step"),
        (Stack(), {"momentum": 1.0}, "momentum=1.0"),
        (Stack(), {"checkpoint": ("blocks.9",)}, "checkpoint='blocks.9' is no layer"),
        (Stack(), {"checkpoint": ("",)}, "its blocks are blocks.0, blocks.1"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_a_sentence(model, options, message):
    with pytest.raises(MeasureError, match=re.escape(message)) as caught:
        predicted_peak(workload(model), **options)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_a_failure_of_the_model_names_the_batch():
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(2, WIDTH) * 2

    assert predicted_peak(workload(Fixed())).batch == 2
    with pytest.raises(MeasureError, match="small at a batch of 3 cannot be predicted"):
        predicted_peak(workload(Fixed()), batch=3)
