"""The training loop: deterministic for a seed, interrupted anywhere, resumed exactly; only the
model is changed.
"""

from __future__ import annotations

import copy
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from paifuser_lab.errors import StepError, StoppedError
from paifuser_lab.training import Batches, CheckpointFile, Training, loop
from paifuser_lab.training.fingerprints import data_fingerprint
from paifuser_lab.training.learner import Learner
from paifuser_lab.workload import QUIET
from tests.support.models import Scribbling, Tied
from tests.support.training_runs import (
    COUNT,
    CPU,
    SOURCES,
    Own,
    dicey,
    everything,
    loader,
    pairs,
    plan,
    stopping_after,
    surprise,
    trained,
)

pytestmark = pytest.mark.usefixtures("one_thread")

PATIENCE_S = 60.0


def test_a_model_learns():
    model, result = trained(options={"epochs": 30})
    assert result.last_loss < 0.8 * result.first_loss
    assert (
        len(result.losses) == 30 * COUNT
        and result.began_at == 0
        and not result.is_kept
        and not result.notes
    )
    assert float(model.seen) == 30 * COUNT


@pytest.mark.parametrize("source", SOURCES)
def test_equal_seeds_give_equal_weights_and_other_seeds_others(source):
    torch.manual_seed(11)
    weights = everything(trained(SOURCES[source]())[0])
    torch.manual_seed(12)
    assert everything(trained(SOURCES[source]())[0]) == weights
    assert everything(trained(SOURCES[source](), options={"seed": 1})[0]) != weights


def random_states(generator):
    return (
        torch.get_rng_state().tolist(),
        generator.get_state().tolist(),
        numpy.random.get_state()[1].tolist(),
        random.getstate(),
    )


def test_random_state_modes_and_gradients_are_as_before():
    model = dicey()
    model.norm.eval()
    model.last.bias.requires_grad_(False)
    model.first.weight.grad = torch.ones(8, 4)
    modes = [module.training for module in model.modules()]
    generator = torch.Generator().manual_seed(5)
    before = random_states(generator)
    bias, mean = model.last.bias.clone(), model.norm.running_mean.clone()
    with torch.no_grad():
        trained(loader(generator=generator), model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model.last.bias, bias) and not model.last.bias.requires_grad, (
        "what is frozen stays"
    )
    assert not torch.equal(model.norm.running_mean, mean), "it was trained in training mode"
    assert torch.equal(model.first.weight.grad, torch.ones(8, 4)) and model.last.weight.grad is None
    assert random_states(generator) == before


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        *((source, 4) for source in SOURCES),
        *((source, steps) for source in list(SOURCES)[:3] for steps in (0, COUNT, 2 * COUNT + 1)),
    ],
)
def test_a_stopped_training_resumes_exactly(source, steps):
    whole, result = trained(SOURCES[source]())
    checkpoint_file = CheckpointFile("stopped", source, str(steps))
    with pytest.raises(
        StoppedError, match=r"^stopped after .*; start it again to go on from there\.$"
    ):
        trained(
            SOURCES[source](), checkpoint_file=checkpoint_file, should_stop=stopping_after(steps)
        )
    torch.manual_seed(99)
    model, again = trained(SOURCES[source](), checkpoint_file=checkpoint_file)
    assert again.began_at == steps and again.losses == result.losses
    assert everything(model) == everything(whole)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd"},
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"schedule": "constant", "clip": None},
        {"schedule": "cosine", "warm_up": 0.5, "weight_decay": 0.0},
    ],
    ids=str,
)
def test_training_resumes_exactly_with_any_options(options):
    whole, _ = trained(options=options)
    checkpoint_file = CheckpointFile("options", str(options))
    with pytest.raises(StoppedError):
        trained(checkpoint_file=checkpoint_file, options=options, should_stop=stopping_after(8))
    model, result = trained(checkpoint_file=checkpoint_file, options=options)
    assert result.began_at == 8 and everything(model) == everything(whole)


KILLED = """
import time, torch
from paifuser_lab.training import CheckpointFile
from tests.support.training_runs import trained
from paifuser_lab.training import run
run.SAVE_EVERY_S = 0.0
torch.set_num_threads(1)
steps = iter(range(100))
def before_step(done):
    print(next(steps), flush=True)
    if done > 0.5:
        time.sleep(60)
trained(checkpoint_file=CheckpointFile("killed"), before_step=before_step)
"""


def test_a_killed_run_resumes_exactly():
    whole, _ = trained()
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == COUNT * 3 // 2 + 1:  # it sleeps in the step after the half
            break
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    model, result = trained(checkpoint_file=CheckpointFile("killed"))
    assert result.began_at == COUNT * 3 // 2 + 1 and everything(model) == everything(whole)


def test_a_finished_training_is_not_repeated():
    checkpoint_file = CheckpointFile("finished")
    first, result = trained(checkpoint_file=checkpoint_file)
    again, known = trained(
        checkpoint_file=CheckpointFile("finished"),
        objective=lambda *args: pytest.fail("it is trained again"),
    )
    assert (
        everything(again) == everything(first) and known.is_kept and known.losses == result.losses
    )
    leftover = checkpoint_file.path.with_name(f".{checkpoint_file.path.name[:40]}.0a1b2c3d")
    leftover.mkdir()  # by a kill after the last save
    names = {name.partition("/")[0] for name in CheckpointFile("finished").load().tensors}
    assert not leftover.exists()
    assert names == {"model"}, "a training that is over needs no optimizer"


def test_a_damaged_checkpoint_is_ignored_with_a_note():
    first, _ = trained(checkpoint_file=CheckpointFile("damaged"))
    path = CheckpointFile("damaged").path
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    model, result = trained(checkpoint_file=CheckpointFile("damaged"))
    assert result.began_at == 0 and everything(model) == everything(first)
    assert result.notes == (
        "the checkpoint of an earlier run is damaged and was ignored (it does not have the hash "
        "that was stored with it)",
    )
    path.write_bytes(b"no tensors")
    assert "damaged" in trained(checkpoint_file=CheckpointFile("damaged"))[1].notes[0]


def test_a_checkpoint_of_another_model_is_ignored_with_a_note():
    trained(checkpoint_file=CheckpointFile("other"))
    model = nn.Sequential(nn.Linear(4, 3))
    assert trained(model=model, checkpoint_file=CheckpointFile("other"))[1].notes == (
        "the checkpoint of an earlier run is of another model (its tensors have other names, "
        "shapes or dtypes) and was ignored",
    )


def test_checkpoint_files_are_private_and_bounded(monkeypatch, tmp_path):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    for name in ("oldest", "older", "newest"):
        trained(checkpoint_file=CheckpointFile("bounded", name))
        time.sleep(0.02)
    size = CheckpointFile("bounded", "newest").path.stat().st_size
    assert CheckpointFile("bounded", "oldest").load() is not None, (
        "what was used last is the newest"
    )
    time.sleep(0.02)
    monkeypatch.setattr("paifuser_lab.training.resume.MOST_BYTES", 5 * size // 2)
    CheckpointFile("bounded", "last").save(CheckpointFile("bounded", "oldest").load())
    exists = {
        name: CheckpointFile("bounded", name).path.is_file()
        for name in ("oldest", "older", "newest", "last")
    }
    assert exists == {"oldest": True, "older": False, "newest": False, "last": True}
    assert CheckpointFile("bounded", "last").path.parent.stat().st_mode & 0o077 == 0
    assert not [
        file
        for file in CheckpointFile("bounded", "last").path.parent.iterdir()
        if file.name.startswith(".")
    ]


def test_training_continues_if_the_cache_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "file"))
    model, result = trained(checkpoint_file=CheckpointFile("nowhere"))
    assert everything(model) == everything(trained()[0])
    assert (
        len(result.notes) == 1
        and "could not be written" in result.notes[0]
        and "PAIFUSER_CACHE" in result.notes[0]
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_restores_the_last_valid_epoch(bad):
    def objective(model, inputs, target):
        loss = surprise(model, inputs, target)
        return loss * bad if float(model.seen) > 2 * COUNT + 3 else loss

    states = []
    model = dicey()
    result = (
        f"the loss became {bad} in epoch 3, step 4 of {COUNT}, and what was learned until after 2 "
        "epochs is kept"
    )
    checkpoint_file = CheckpointFile("broken", str(bad))
    with pytest.raises(StepError, match=result):
        trained(
            model=model,
            objective=objective,
            checkpoint_file=checkpoint_file,
            before_step=lambda _: states.append(everything(model)),
        )
    assert everything(model) == states[2 * COUNT], "the weights are those of the last good epoch"
    assert checkpoint_file.load().epoch == 2 and all(
        bool(tensor.isfinite().all()) for tensor in checkpoint_file.load().tensors.values()
    )


def test_a_gradient_that_is_not_finite_is_not_applied():
    def objective(model, inputs, target):
        root = (
            model.first.weight.sum() * 0
            if float(model.seen) < 4
            else (model.first.weight * 0).sum().sqrt()
        )
        return surprise(model, inputs, target) + root

    model = dicey()
    with pytest.raises(
        StepError,
        match=(
            "the gradient became infinite in epoch 1, step 5 of 6, and nothing of it is kept; try "
            "a learning_rate below"
        ),
    ):
        trained(model=model, objective=objective)
    assert everything(model) == everything(dicey())


def test_a_first_loss_that_is_not_finite_points_to_the_data():
    with pytest.raises(
        StepError, match="in the first step; look for a NaN or an infinity in the train data"
    ):
        trained([(torch.full((5, 4), float("nan")), torch.arange(5) % 3)])


class Failing(Dataset):
    """Fails at one example while `is_broken`."""

    def __init__(self) -> None:
        self.is_broken = True

    def __len__(self) -> int:
        return COUNT * 5

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.is_broken and index == 17:
            raise OSError("the disk is gone")
        return torch.full((4,), float(index)), index % 3


def test_failing_data_are_reported_with_the_batch_and_progress_is_kept():
    examples = Failing()
    source = DataLoader(examples, batch_size=5)
    with pytest.raises(
        StepError,
        match=(
            r"^the train data fail at batch 3 \(OSError: the disk is gone\); correct them and "
            r"apply it again"
        ),
    ):
        trained(source, checkpoint_file=CheckpointFile("data"))
    examples.is_broken = False
    model, result = trained(source, checkpoint_file=CheckpointFile("data"))
    assert result.began_at == 3 and everything(model) == everything(trained(source)[0])


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ([], "hold no batch"),
        (5, "are a int; give a list"),
        ((pair for pair in pairs()), "can be iterated only once"),
        ([torch.zeros(5, 4)], "batch 0 of the train data is a Tensor; let it be"),
        ([(torch.zeros(5, 4),) * 3], "batch 0 of the train data is a tuple of 3; let it be"),
        ([(torch.zeros(5, 9), torch.arange(5) % 3)], "epoch 1, step 1 of 1 fails .RuntimeError"),
    ],
)
def test_unsupported_data_are_refused(source, result):
    with pytest.raises(StepError, match=result):
        trained(source)


@pytest.mark.parametrize(
    ("objective", "result"),
    [
        (
            lambda model, inputs, target: inputs(model).sum(0),
            "the loss has shape .3,.; let it be one number",
        ),
        (lambda model, inputs, target: 1.0, "the loss is a float; let it be one number"),
        (
            lambda model, inputs, target: inputs(model).sum().detach(),
            "does not depend on any weight",
        ),
    ],
)
def test_an_unsupported_loss_is_refused(objective, result):
    with pytest.raises(StepError, match=result):
        trained(objective=objective)


def test_a_model_without_weights_to_train_is_refused():
    with pytest.raises(StepError, match="none of its weights can be trained; set requires_grad"):
        trained(model=dicey().requires_grad_(False))


def test_an_interrupt_restores_the_last_checkpoint():
    model, states = dicey(), []

    def before_step(done):
        if done > 0.5:
            raise KeyboardInterrupt
        states.append(everything(model))

    with pytest.raises(
        KeyboardInterrupt,
        match=r"^stopped after 1 of 3 epochs; start it again to go on from there\.$",
    ):
        trained(
            model=model,
            checkpoint_file=CheckpointFile("interrupted"),
            before_step=before_step,
        )
    assert everything(model) == states[COUNT]
    assert everything(trained(checkpoint_file=CheckpointFile("interrupted"))[0]) == everything(
        trained()[0]
    )


def test_random_numbers_differ_at_each_step_and_repeat_for_a_seed():
    def objective(model, inputs, target):
        drawn.append((float(torch.rand(())), float(numpy.random.rand()), random.random()))
        return surprise(model, inputs, target)

    drawn: list[tuple[float, ...]] = []
    for _ in range(2):
        trained(objective=objective)
    steps = 3 * COUNT
    assert drawn[:steps] == drawn[steps:] and all(
        len(set(column)) == steps for column in zip(*drawn[:steps], strict=True)
    )


def test_each_step_is_told_the_share_that_is_done():
    shares = []
    trained(before_step=shares.append)
    assert shares == pytest.approx([index / (3 * COUNT) for index in range(3 * COUNT)])


@pytest.mark.parametrize("schedule", ["one-cycle", "cosine"])
def test_the_learning_rate_is_set_at_every_step_by_the_share_of_all_steps(schedule, monkeypatch):
    rates = []
    take_step = Learner.take_step

    def noted(self, loss, rate):
        done = take_step(self, loss, rate)
        rates.extend({group["lr"] for group in self.optimizer.param_groups})
        return done

    monkeypatch.setattr(Learner, "take_step", noted)
    trained(options={"schedule": schedule})
    reference = plan(schedule=schedule)
    assert rates == pytest.approx(
        [reference.rate_at(index / (3 * COUNT)) for index in range(3 * COUNT)]
    )
    assert len(set(rates)) > 2 * COUNT, "it changes within an epoch"


def test_an_extra_module_is_trained_and_resumed_too():
    def objective(model, inputs, target):
        return F.cross_entropy(extra(inputs(model)), target)

    extra = nn.Linear(3, 3)
    start = copy.deepcopy(extra.state_dict())
    trained(objective=objective, extra=extra)
    whole = everything(extra)
    extra.load_state_dict(start)
    assert everything(extra) != whole
    with pytest.raises(StoppedError):
        trained(
            objective=objective,
            extra=extra,
            checkpoint_file=CheckpointFile("extra"),
            should_stop=stopping_after(5),
        )
    extra.load_state_dict(start)
    trained(objective=objective, extra=extra, checkpoint_file=CheckpointFile("extra"))
    assert everything(extra) == whole


def test_matrices_decay_and_vectors_do_not():
    model, before = dicey(), dicey()
    trained(
        model=model,
        objective=lambda model, inputs, target: 0 * inputs(model).sum(),
        options={"weight_decay": 0.1},
    )
    assert model.first.weight.norm() < 0.99 * before.first.weight.norm()
    assert torch.equal(model.first.bias, before.first.bias) and torch.equal(
        model.norm.weight, before.norm.weight
    )


def test_tied_weights_stay_tied():
    source = [(torch.arange(6).reshape(2, 3), torch.arange(6).reshape(2, 3)) for _ in range(3)]

    def objective(model, inputs, target):
        return F.cross_entropy(inputs(model).flatten(0, 1), target.flatten())

    model = Tied()
    with pytest.raises(StoppedError):
        trained(
            source,
            model,
            objective,
            checkpoint_file=CheckpointFile("tied"),
            should_stop=stopping_after(4),
        )
    trained(source, model, objective, checkpoint_file=CheckpointFile("tied"))
    assert model.head.weight is model.table.weight


def test_a_model_that_writes_into_its_input_leaves_the_data_alone():
    source = [(torch.zeros(2, 4), torch.zeros(2, 4))]
    trained(source, Scribbling(), lambda model, inputs, target: F.mse_loss(inputs(model), target))
    assert not source[0][0].any()


def test_another_thread_gets_its_turn_between_two_steps(monkeypatch):
    done, turns = [], []

    def take_turn():
        with QUIET:
            turns.append(len(done))

    class BetweenSteps:
        def advance(self, count=1, doing=""):
            if doing and not turns:
                waiter = threading.Thread(target=take_turn, daemon=True)
                waiter.start()
                waiter.join(PATIENCE_S)

    monkeypatch.setattr(loop, "progress", lambda *_: nullcontext(BetweenSteps()))
    trained(before_step=done.append)
    assert turns == [1] and len(done) == 3 * COUNT, "it need not wait for the end"


def test_gradients_past_fp16_are_skipped_and_counted():
    def objective(model, inputs, target):
        return surprise(model, inputs, target) * (1e5 if float(model.seen) < 3 else 1)

    _, result = trained(objective=objective, options={"precision": "fp16"})
    assert result.skipped > 0 and result.last_loss < 10


def test_a_step_whose_norm_alone_overflows_is_skipped_in_fact():
    layer = nn.Linear(4, 1)
    before = layer.weight.detach().clone()
    learner = Learner(layer, None, plan(precision="fp16"), CPU)
    scale = learner.scale
    assert not learner.take_step(1e25 * layer.weight.sum(), 0.1)
    assert all(bool(weight.grad.isfinite().all()) for weight in [layer.weight])
    assert torch.equal(layer.weight, before) and learner.skipped == 1
    assert learner.scale == scale / 2
    learner.optimizer.zero_grad()
    assert learner.take_step(layer.weight.sum(), 0.1) and not torch.equal(layer.weight, before)


@given(
    st.sampled_from(["one-cycle", "cosine", "constant"]),
    st.one_of(st.none(), st.floats(0, 0.9)),
    st.floats(1e-6, 10),
)
def test_the_learning_rate_rises_to_its_highest_and_never_past_it(schedule, warm_up, highest):
    training = Training(schedule=schedule, warm_up=warm_up, learning_rate=highest)
    rise = training.warm_up if warm_up is not None else {"one-cycle": 0.3}.get(schedule, 0.0)
    rates = [training.rate_at(index / 100) for index in range(101)]
    assert all(0 <= rate <= highest * (1 + 1e-9) for rate in rates)
    assert training.rate_at(rise) == pytest.approx(highest)
    top = next(index for index in range(101) if index / 100 >= rise)
    assert all(before <= after for before, after in pairwise(rates[:top]))
    assert all(before >= after for before, after in pairwise(rates[top:]))
    assert rates[-1] == pytest.approx(highest if schedule == "constant" else 0, abs=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"warm_up": 1.0},
        {"clip": 0.0},
        {"rate": 1},
    ],
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Training(**options)


def test_a_list_is_shuffled_each_epoch_and_batches_are_numbered_only_in_a_fixed_list():
    batches = Batches(pairs(), CPU)
    orders = [[batch.number for batch in batches.epoch(0, epoch)] for epoch in range(3)]
    assert (
        all(sorted(order) == list(range(COUNT)) for order in orders)
        and len({tuple(order) for order in orders}) == 3
    )
    assert [batch.number for batch in batches.epoch(0, 1, 4)] == orders[1][4:]
    assert [batch.number for batch in Batches(Own(pairs()), CPU).epoch(0, 0)] == [None] * COUNT


@given(
    index=st.integers(0, 3),
    offset=st.integers(0, (6 << 20) - 1),
    part=st.sampled_from(["inputs", "target"]),
)
@settings(max_examples=5, deadline=None)
def test_the_data_fingerprint_covers_all_data(index, offset, part):
    """Each batch has 24 MB, so that no limit on the bytes that are hashed goes unnoticed."""
    before = data_fingerprint(Batches(LARGE, CPU))
    assert data_fingerprint(Batches(LARGE, CPU)) == before
    changed = (
        LARGE[index][0].view(-1)[offset : offset + 1]
        if part == "inputs"
        else LARGE[index][1][offset % 4 : offset % 4 + 1]
    )
    value = changed.clone()
    changed += 1
    assert data_fingerprint(Batches(LARGE, CPU)) != before
    changed.copy_(value)
    assert data_fingerprint(Batches(LARGE, CPU)) == before


LARGE = [(torch.zeros(4, (6 << 20) // 4), torch.arange(4)) for _ in range(4)]


def test_the_data_fingerprint_covers_numpy_targets():
    targets = numpy.arange(4)
    before = data_fingerprint(Batches([(torch.zeros(4), targets)], CPU))
    targets[3] = 9
    assert data_fingerprint(Batches([(torch.zeros(4), targets)], CPU)) != before


def test_fingerprinting_large_data_can_be_stopped():
    with pytest.raises(StoppedError, match="was stopped while its data were read"):
        data_fingerprint(Batches(LARGE, CPU), lambda: True)
