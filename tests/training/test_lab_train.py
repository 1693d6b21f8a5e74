"""`lab.train` changes a workload's model, records every step, and resumes to the bit."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import FileError, PaifuserError, StepError, StoppedError
from paifuser_lab.records import TrainingRun
from paifuser_lab.training import resume, workloads
from paifuser_lab.training.rates import reaction
from tests.support.training_runs import (
    COUNT,
    SOURCES,
    Dicey,
    dicey,
    everything,
    pairs,
    stopping_after,
    work,
)

pytestmark = pytest.mark.usefixtures("one_thread")
RATE = {"learning_rate": 0.05, "epochs": 3}


def test_it_trains_the_model_in_place_and_records_every_step():
    subject = work(test=pairs(2), metric=lambda predict, test: float(len(test)))
    before = everything(subject.model)
    record = lab.train(subject, **RATE)
    steps = 3 * COUNT
    assert everything(subject.model) != before
    assert record.last_loss < record.first_loss
    assert all(len(getattr(record, name)) == steps for name in ("losses", "rates", "scales"))
    assert len(record.frame) == steps and record.epoch_ends == (6, 12, 18)
    assert record.examples == 5 * steps and record.throughput_per_s > 0
    assert 0 <= record.wait_share <= 1 and (record.peak_bytes or 1) > 0
    assert (record.metric_before, record.metric) == (2.0, 2.0)
    assert set(record.scales) == {1.0} and not any(record.is_skipped)
    assert record.layers == ("first", "norm", "last") and not record.dead_layers
    assert record.ranges[0].step == 0 and len(record.ranges) == steps
    counts = [sum(row) for row in record.ranges[0].counts]
    assert counts == [4 * 8 + 8, 16, 8 * 3 + 3]


def test_a_loader_of_no_known_length_is_read_in_each_epoch():
    stream = SOURCES["a loader of no known length"]()
    assert len(lab.train(work(train=stream), **RATE).losses) == 3 * COUNT
    assert lab.find_rate(work(train=stream), steps=8).losses


def test_the_record_is_saved_read_and_printed(tmp_path):
    record = lab.train(work(), **RATE)
    assert TrainingRun.load(record.save(tmp_path / "run.json")) == record
    assert [row["steps"] for row in record.table()] == ["6", "6", "6"]
    assert "dicey" in str(record) and "<table" in record._repr_html_()


def test_gradients_are_put_into_bins_of_powers_of_two():
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    data = [(torch.tensor([[2.0**-10, 0.0]]), torch.ones(1, 1))]
    subject = lab.Workload(model, data[0][0], loss=lambda out, y: (out * y).sum(), train=data)
    (row,) = lab.train(subject, epochs=1, clip=1e-9).ranges
    zeros, *bins = row.counts[0]
    # 2^-10 = 0.5 · 2^-9: its exponent is -9, in the bin of -10 and -9
    assert zeros == 1 and bins.index(1) == (40 - 10) // 2 and sum(bins) == 1


def test_a_layer_without_gradient_is_named():
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.cut = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x) + 0 * self.cut(x)

    record = lab.train(work(Cut()), **RATE)
    assert record.dead_layers == ("cut",) and "layers without gradient cut" in str(record)


@given(steps=st.integers(0, 3 * COUNT), fails=st.booleans())
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_run_that_ends_at_any_step_goes_on_to_the_same_losses(tmp_path, steps, fails):
    options = {**RATE, "react": "adaptive", "react_window": 2, "precision": "bf16", "fp32_until": 8}
    whole = work()
    losses = lab.train(whole, **options)
    path = tmp_path / f"{steps}{fails}.safetensors"
    path.unlink(missing_ok=True)
    calls = iter(range(10**6))

    def stop():
        if next(calls) >= steps:
            if fails:
                raise RuntimeError("killed")
            return True
        return False

    if steps < 3 * COUNT:
        with pytest.raises(RuntimeError if fails else StoppedError):
            lab.train(work(), checkpoint=path, save_every_s=0, should_stop=stop, **options)
    again = work()
    torch.manual_seed(steps)
    resumed = lab.train(again, checkpoint=path, save_every_s=0, **options)
    assert resumed.losses == losses.losses and resumed.rates == losses.rates
    assert resumed.events == losses.events and resumed.is_lower == losses.is_lower
    assert resumed.gradient_norms == losses.gradient_norms
    assert [row.counts for row in resumed.ranges] == [row.counts for row in losses.ranges]
    assert resumed.began_at == (steps if steps < 3 * COUNT else 0)
    assert everything(again.model) == everything(whole.model)


def test_the_rate_of_each_step_is_what_the_losses_before_it_call_for():
    options = {**RATE, "react": "adaptive", "react_window": 2, "schedule": "constant"}
    record = lab.train(work(), **options)
    reactions = (reaction("adaptive", record.losses[:step], 2) for step in range(3 * COUNT))
    expected = [0.05 * adapted.factor for adapted in reactions]
    assert list(record.rates) == expected and len(set(expected)) > 1


def test_a_training_in_fp16_goes_on_with_its_loss_scale(tmp_path):
    options = {**RATE, "precision": "fp16", "loss_scale": 2.0**30, "react": "adaptive"}
    whole = lab.train(work(), **options)
    path = tmp_path / "run.safetensors"
    with pytest.raises(StoppedError):
        lab.train(work(), checkpoint=path, should_stop=stopping_after(8), **options)
    resumed = lab.train(work(), checkpoint=path, **options)
    assert whole.scales[8] < 2.0**30 and resumed.began_at == 8
    assert resumed.scales == whole.scales and resumed.is_skipped == whole.is_skipped
    assert resumed.losses == whole.losses and resumed.rates == whole.rates


def test_a_finished_run_is_not_repeated(tmp_path):
    path = tmp_path / "run.safetensors"
    record = lab.train(work(), checkpoint=path, **RATE)
    again = lab.train(work(), checkpoint=path, **RATE)
    assert again.losses == record.losses and "nothing was trained anew" in again.notes[0]


def test_a_loss_that_refuses_made_up_outputs_is_trained_with_a_checkpoint(tmp_path):
    def loss(scores, labels):
        assert scores.requires_grad, "they are not the model's"
        return F.cross_entropy(scores, labels)

    record = lab.train(work(loss=loss), checkpoint=tmp_path / "run.safetensors", **RATE)
    assert len(record.losses) == 3 * COUNT


@pytest.fixture
def stopped(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(StoppedError):
        lab.train(work(), checkpoint=path, should_stop=stopping_after(4), **RATE)
    return path


def test_a_truncated_checkpoint_is_refused(stopped):
    stopped.write_bytes(stopped.read_bytes()[:-40])
    subject = work()
    before = everything(subject.model)
    with pytest.raises(FileError, match=r"^run.safetensors is no checkpoint of a training or was"):
        lab.train(subject, checkpoint=stopped, **RATE)
    assert everything(subject.model) == before


def test_a_checkpoint_with_a_flipped_bit_is_refused(stopped):
    data = bytearray(stopped.read_bytes())
    data[-3] ^= 1
    stopped.write_bytes(data)
    with pytest.raises(FileError, match=r"does not have the hash"):
        lab.train(work(), checkpoint=stopped, **RATE)


def test_a_checkpoint_of_another_model_other_options_or_other_data_is_refused(stopped):
    wide = nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 3))
    with pytest.raises(FileError, match=r"it was made with model 'Dicey', not 'Sequential'"):
        lab.train(work(wide), checkpoint=stopped, **RATE)
    with pytest.raises(FileError, match=r"it was made with epochs 3, not 4, and would not go on"):
        lab.train(work(), checkpoint=stopped, **RATE | {"epochs": 4})
    with pytest.raises(FileError, match=r"it was made with batches 6, not 5"):
        lab.train(work(count=5), checkpoint=stopped, **RATE)
    larger = dicey()
    larger.last = nn.Linear(8, 4)
    with pytest.raises(FileError, match=r"it was made with other layers, and would not go on"):
        lab.train(work(larger), checkpoint=stopped, **RATE)
    larger = dicey()
    larger.more = nn.Parameter(torch.zeros(1))  # a printed model does not show it
    with pytest.raises(FileError, match=r"is of another model .its tensors have other names"):
        lab.train(work(larger), checkpoint=stopped, **RATE)


def other_labels():
    *first, (inputs, labels) = pairs()
    return work(train=[*first, (inputs, labels.flip(0))])


def other_images():
    *first, (inputs, labels) = pairs()
    return work(train=[*first, (inputs + 1, labels)])


def other_activation():
    model = dicey()
    model.drop = nn.Dropout(0.4)
    return work(model)


def smooth(scores, labels):
    return F.cross_entropy(scores, labels, label_smoothing=0.1)


def of_the_same_name():
    smooth.__qualname__ = "cross_entropy"
    return work(loss=smooth)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (other_labels, "it was made with other train data"),
        (other_images, "it was made with other train data"),
        (other_activation, "it was made with other layers"),
        (lambda: work(loss=F.multi_margin_loss), "made with loss 'cross_entropy', not 'multi_mar"),
        (of_the_same_name, "it was made with other values of the loss"),
        (lambda: work(Dicey()), "began from other weights than this model has; give another file"),
    ],
)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_checkpoint_goes_on_for_the_same_training_alone(tmp_path, other, message, is_done):
    path = tmp_path / "run.safetensors"
    if is_done:
        lab.train(work(), checkpoint=path, **RATE)
    else:
        with pytest.raises(StoppedError):
            lab.train(work(), checkpoint=path, should_stop=stopping_after(4), **RATE)
    torch.manual_seed(2)
    subject = other()
    before = everything(subject.model)
    with pytest.raises(FileError, match=message):
        lab.train(subject, checkpoint=path, **RATE)
    assert everything(subject.model) == before


@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_a_stopped_model_goes_on_with_the_weights_that_it_reached(tmp_path, weights):
    options = RATE | {"weights": weights, "rounding": "kahan"} if weights == "bf16" else RATE
    whole, path = lab.train(work(), **options), tmp_path / "run.safetensors"
    subject = work()
    for steps in (4, 3):
        with pytest.raises(StoppedError):
            lab.train(subject, checkpoint=path, should_stop=stopping_after(steps), **options)
    assert lab.train(subject, checkpoint=path, **options).losses == whole.losses
    for finished in (subject, work()):  # with the last weights, and with those of the beginning
        (note,) = lab.train(finished, checkpoint=path, **options).notes
        assert "nothing was trained anew" in note


def test_of_large_data_a_checkpoint_knows_the_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(workloads, "HASHED_BYTES", 3 * 5 * (4 * 4 + 8))
    path, read = tmp_path / "run.safetensors", []

    class Counted(list):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    lab.train(work(train=Counted(pairs())), checkpoint=path, **RATE)
    before_training = len(read) - 3 * COUNT
    assert 3 <= before_training < COUNT
    data = pairs()
    unread = (set(range(COUNT)) - set(read[:before_training])).pop()
    data[unread] = (data[unread][0] + 1, data[unread][1])
    assert lab.train(work(train=data), checkpoint=path, **RATE).began_at == 3 * COUNT


def test_a_checkpoint_of_another_torch_is_refused(stopped, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "3.0.0")
    with pytest.raises(FileError, match=r"it was made with torch '2\S+', not '3.0.0'"):
        lab.train(work(), checkpoint=stopped, **RATE)


def test_a_named_checkpoint_that_cannot_be_written_is_noted_with_what_to_do(tmp_path, monkeypatch):
    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(resume, "write_tensors", full)
    (note,) = lab.train(work(), checkpoint=tmp_path / "run.safetensors", **RATE).notes
    assert "no space left" in note and note.endswith("; name a file that can be written")
    assert "PAIFUSER_CACHE" not in note


def test_a_checkpoint_of_another_form_is_refused(stopped, monkeypatch):
    monkeypatch.setattr(resume, "VERSION", resume.VERSION + 1)
    with pytest.raises(FileError, match=r"it is stored in form \d+, and this version reads"):
        lab.train(work(), checkpoint=stopped, **RATE)


def test_weights_of_another_kind_are_no_checkpoint(tmp_path):
    path = tmp_path / "weights.safetensors"
    from paifuser_lab.model.weights import save_weights

    save_weights(dicey(), path)
    with pytest.raises(FileError, match=r"weights.safetensors"):
        lab.train(work(), checkpoint=path, **RATE)
    path.write_text(json.dumps({}))
    with pytest.raises(FileError, match=r"is no checkpoint of a training or was cut short"):
        lab.train(work(), checkpoint=path, **RATE)


def test_it_stops_early_when_the_mean_loss_no_longer_falls(tmp_path):
    options = {"epochs": 9, "learning_rate": 1e-12, "patience": 2, "schedule": "constant"}
    path = tmp_path / "run.safetensors"
    record = lab.train(work(), checkpoint=path, **options)
    assert len(record.losses) < 9 * COUNT and len(record.losses) % COUNT == 0
    assert record.events[-1].what == "stopped early: the mean loss has not fallen in 2 epochs"
    again = lab.train(work(), checkpoint=path, **options)
    assert again.losses == record.losses and "nothing was trained anew" in again.notes[0]
    planned = lab.train(work(), **options | {"epochs": len(record.epoch_ends)})
    assert planned.losses == record.losses
    assert not planned.events, "as many epochs as were planned are no early end"


def test_it_stops_early_when_the_metric_no_longer_rises_and_resumes_to_the_same_end(tmp_path):
    def subject(figures):
        asked = iter(figures)  # before the training, after each epoch, at the end
        metric = lambda predict, test: (predict(test[0][0]).dtype == torch.float32) * next(asked)
        return work(test=pairs(2), metric=metric)

    options = {"epochs": 9, "patience": 2, "stop_on": "metric", "learning_rate": 0.05}
    options |= {"weights": "bf16", "precision": "bf16"}
    whole = lab.train(subject([0.0, 0.3, 0.5, 0.4, 0.5, 0.4]), **options)
    assert whole.metrics == (0.3, 0.5, 0.4, 0.5) and whole.metric == 0.4
    assert whole.events[-1].what == "stopped early: the metric has not risen in 2 epochs"
    path = tmp_path / "run.safetensors"
    with pytest.raises(StoppedError):
        lab.train(
            subject([0.0, 0.3, 0.5]),
            checkpoint=path,
            should_stop=stopping_after(2 * COUNT + 1),
            **options,
        )
    resumed = lab.train(subject([0.0, 0.4, 0.5, 0.4]), checkpoint=path, **options)
    assert resumed.metrics == whole.metrics and resumed.losses == whole.losses
    assert TrainingRun.load(resumed.save(tmp_path / "run.json")).metrics == whole.metrics


def test_it_stops_early_when_a_metric_that_is_better_when_smaller_no_longer_falls():
    asked = iter([9.0, 8.0, 7.0, math.inf, 7.0, 7.0])
    metric = lambda predict, test: next(asked)
    metric.smaller_is_better = True
    subject = work(test=pairs(2), metric=metric)
    record = lab.train(subject, epochs=9, patience=2, stop_on="metric", learning_rate=0.05)
    assert record.metrics == (8.0, 7.0, math.inf, 7.0)
    assert record.events[-1].what == "stopped early: the metric has not fallen in 2 epochs"


def test_stopping_on_a_metric_that_there_is_not_is_refused():
    with pytest.raises(StepError, match="has no metric on test data to stop on; give the workload"):
        lab.train(work(), stop_on="metric", patience=1)


class Overflowing(nn.Module):
    """Its second layer gives values past fp16 in some steps."""

    def __init__(self, bad=()) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 8), nn.Linear(8, 3), nn.BatchNorm1d(3)
        self.bad, self.calls = set(bad), 0

    def forward(self, x):
        if self.training:
            self.calls += 1
            if self.calls - 1 in self.bad:
                x = x * 1e7
        return self.norm(self.second(self.first(x)))


def test_a_nan_loss_in_fp16_lowers_the_scale_and_is_skipped():
    model = Overflowing(bad=[3])
    record = lab.train(work(model), precision="fp16", loss_scale=1024.0, **RATE)
    assert math.isnan(record.losses[3]) and record.is_skipped[3]
    assert record.scales[3:5] == (1024.0, 512.0)
    assert sum(record.is_skipped) == 1 and math.isfinite(record.losses[4])
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
    assert "skipped steps 1" in str(record)


def test_a_loss_that_stays_nan_ends_the_training_and_names_the_layer():
    model = Overflowing(bad=range(5, 99))
    with pytest.raises(StepError, match=r"in layer 'first' \(Linear\)\.$"):
        lab.train(work(model), precision="fp16", loss_scale=1024.0, bad_steps=3, **RATE)
    assert model.calls == 5 + 4 + 1, (
        "three are skipped, the fourth ends it, one looks for the layer"
    )
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())


def test_a_forced_overflow_of_the_gradient_halves_the_scale():
    record = lab.train(work(), precision="fp16", loss_scale=2.0**30, **RATE)
    first = next(index for index, skipped in enumerate(record.is_skipped) if skipped)
    assert record.overflow_shares[first] > 0
    assert record.scales[first + 1] == record.scales[first] / 2
    assert record.scales[first] == 2.0**30 and first == 0


def test_a_small_scale_lets_gradients_underflow():
    low, high = (
        lab.train(work(), precision="fp16", loss_scale=scale, **RATE) for scale in (2**-8, 2**10)
    )
    assert low.underflow_shares[0] > high.underflow_shares[0]


def test_an_infinite_gradient_is_traced_to_its_layer():
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.second(self.first(x)) + (0 * self.first.weight).sum().sqrt()

    with pytest.raises(StepError, match=r"it began in the gradient of layer 'first' \(Linear\)\.$"):
        lab.train(work(Root()), **RATE)


def test_a_checkpointed_layer_gives_the_same_losses():
    torch.manual_seed(3)
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)) for _ in range(3)]
    model = nn.Sequential(*blocks, nn.Linear(4, 3))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    calls = []
    model[0][0].register_forward_hook(lambda *call: calls.append(1))
    plain, count = lab.train(work(model), **RATE), len(calls)
    trained = everything(model)
    model.load_state_dict(state)
    record = lab.train(work(model), checkpointed=("0", "1"), **RATE)
    assert record.losses == plain.losses and everything(model) == trained
    assert len(calls) - 2 * count == 3 * COUNT, "it ran once more in each step"
    assert "forward" not in vars(model[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"epochs=0 is no option of a training"),
        ({"rate": 1}, r"rate=1 is no option of a training: .*; there are epochs, learning_rate"),
        ({"checkpointed": ("nowhere",)}, r"checkpointed: 'nowhere' is no layer of this Dicey"),
        ({"formats": {"nowhere": "bf16"}}, r"formats: 'nowhere' matches no layer"),
        ({"fp32_until": -1}, r"fp32_until.*=-1 is no option of a training"),
        ({"watch_every": -1}, r"watch_every=-1 is not possible; give an integer of 0 or more"),
        ({"monitor_every_s": "a"}, r"seconds='a' leaves no time"),
        ({"log": __file__}, r"test_lab_train.py is a file; give a folder for TensorBoard's logs"),
    ],
)
def test_invalid_options_are_refused_and_change_nothing(options, message):
    subject = work()
    before = everything(subject.model)
    with pytest.raises(PaifuserError, match=message):
        lab.train(subject, **options)
    assert everything(subject.model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_16_bits_are_refused_with_what_to_do(dtype):
    data = [(inputs.to(dtype), labels) for inputs, labels in pairs()]
    subject = lab.Workload(
        nn.Sequential(nn.Linear(4, 3)).to(dtype), data[0][0], loss=F.cross_entropy, train=data
    )
    with pytest.raises(StepError, match=r"^'0.weight' is b?float16, .*; train model.float\(\)"):
        lab.train(subject, **RATE)


def test_a_workload_without_loss_or_data_is_refused():
    with pytest.raises(StepError, match=r"dicey has no loss; give the workload both"):
        lab.train(work(loss=None))
    with pytest.raises(StepError, match=r"dicey has no loss and no train"):
        lab.train(work(loss=None, train=None))


def test_variants_of_the_weights_before_are_forgotten():
    subject = work()
    lab.apply(subject, lab.Recipe([{"precision": {"default": "bf16"}}]))
    assert subject.variants
    lab.train(subject, **RATE)
    assert not subject.variants


def test_outputs_in_bf16_are_cast_before_the_loss():
    seen = set()

    def loss(output, target):
        seen.add(output.dtype)
        return F.cross_entropy(output, target)

    record = lab.train(work(loss=loss), precision="bf16", **RATE)
    assert seen == {torch.float32} and all(record.is_lower)


def test_the_monitor_sees_the_record_grow_and_the_whole_at_the_end():
    seen = []
    record = lab.train(work(), monitor=seen.append, monitor_every_s=0, **RATE)
    assert [len(row.losses) for row in seen] == [*range(1, 3 * COUNT + 1), 3 * COUNT]
    assert all(row.is_running for row in seen[:-1]) and seen[-1] == record


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_monitor_sees_at_last_that_an_interrupted_training_runs_no_more(error):
    seen = []

    def stop():
        if len(seen) == 4:
            raise error
        return False

    with pytest.raises(error):
        lab.train(work(), monitor=seen.append, monitor_every_s=0, should_stop=stop, **RATE)
    assert [row.is_running for row in seen] == [True] * 4 + [False]


def test_the_monitor_sees_the_peak_of_memory_so_far(monkeypatch):
    peaks = iter(range(2**50, 2**51, 1000))
    monkeypatch.setattr(workloads, "restart_peak", lambda: True)
    monkeypatch.setattr(workloads, "resident_bytes", lambda: 1000)
    monkeypatch.setattr(workloads, "peak_resident_bytes", lambda: next(peaks))
    seen = []
    record = lab.train(work(), monitor=seen.append, monitor_every_s=0, **RATE)
    known = [row.peak_bytes for row in seen]
    assert known == [2**50 + 1000 * (step - 1) for step in range(len(seen))]
    assert "peak memory" in seen[0].facts and record.peak_bytes == known[-1]


def test_the_rate_finder_leaves_the_model_alone_and_suggests_a_rate_below_divergence():
    subject = work()
    before = everything(subject.model)
    curve = lab.find_rate(subject, steps=40, highest=100.0)
    assert everything(subject.model) == before
    assert len(curve.rates) == len(curve.losses) == len(curve.smooth)
    assert list(curve.rates) == sorted(curve.rates) and curve.rates[0] == pytest.approx(1e-6)
    assert 1e-6 <= curve.suggested < 1.0
    assert lab.find_rate(subject, steps=40, highest=100.0) == curve
    assert "suggested" in curve.reason and "0" in str(curve)


@pytest.mark.parametrize("options", [{"lowest": 0.0}, {"lowest": 2.0}, {"steps": 3}])
def test_a_range_of_rates_that_is_none_is_refused(options):
    with pytest.raises(StepError, match=r"lowest=|steps=3"):
        lab.find_rate(work(), **options)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            {"loss": lambda scores, labels: F.cross_entropy(scores, labels, reduction="none")},
            r"^the loss has shape \(5,\); let it be one number",
        ),
        (
            {"loss": lambda scores, labels: F.cross_entropy(scores.detach(), labels)},
            r"^the loss does not depend on any weight",
        ),
        ({"train": [(torch.zeros(5, 4), torch.arange(5))]}, r"^step 1 of 8 fails \(IndexError: "),
    ],
)
def test_the_rate_finder_refuses_a_step_that_fails_as_training_does(known, message):
    with pytest.raises(StepError, match=message):
        lab.find_rate(work(**known), steps=8)
    with pytest.raises(StepError, match=message.replace("step 1 of 8", "epoch 1, step 1 of 1")):
        lab.train(work(**known), **RATE)


def test_a_loss_below_zero_has_not_diverged():
    below = work(loss=lambda scores, labels: F.cross_entropy(scores, labels) - 100)
    assert len(lab.find_rate(below, steps=20, highest=1e-3).rates) == 20


def test_data_that_give_nothing_a_second_time_end_the_search_for_a_rate():
    class Once:
        items = iter([(torch.zeros(5, 4), torch.zeros(5, dtype=torch.long))])

        def __iter__(self):
            return self.items

    with pytest.raises(StepError, match="gone through only once"):
        lab.find_rate(work(train=Once()), steps=8)


def test_tensorboard_reads_what_was_logged(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = lab.train(work(), log=tmp_path, monitor_every_s=0, **RATE)
    events = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    losses = events.Scalars("loss")
    assert [event.step for event in losses] == [*range(3 * COUNT)]
    assert [event.value for event in losses] == pytest.approx(record.losses, rel=1e-6)
    sizes = events.Histograms("gradient sizes/first")[0].histogram_value
    assert sizes.num == sum(record.ranges[0].counts[0][1:])
