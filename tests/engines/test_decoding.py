"""Calls of a language model that are replayed with the length of the cache as a variable."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.engines.decoding import FEW_TOKENS, ReplayDecoder
from paifuser_lab.engines.tape import Tape
from paifuser_lab.errors import StepError
from paifuser_lab.workload import Inputs
from paifuser_lab.workload.generation import TorchDecoder, greedy
from tests.support.models import random_llama

transformers = pytest.importorskip("transformers")
FORMATS = ["fp32", "bf16", "int8-weights", "int4-weights"]


@pytest.fixture(scope="module")
def models():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 40}  # of a group for int4
    work = lab.Workload(
        random_llama(heads=4, num_key_value_heads=2, **sizes),
        {"input_ids": torch.ones(1, 8).long()},
    )
    recipes = {form: lab.Recipe([{"precision": {"default": form}}]) for form in FORMATS}
    return {form: lab.apply(work, recipe).model for form, recipe in recipes.items()}


@settings(max_examples=12, deadline=None)
@given(
    form=st.sampled_from(FORMATS),
    parts=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6),
    forgotten=st.integers(0, 3),
)
def test_replayed_calls_give_the_models_own_logits(models, form, parts, forgotten):
    eager, replay = TorchDecoder(models[form], 48), ReplayDecoder(models[form], 48)
    start = torch.Generator().manual_seed(len(parts))
    for count, every in [(4, False), *parts]:
        tokens = torch.randint(40, (count,), generator=start).tolist()
        expected, own = (each.feed(tokens, every=every) for each in (eager, replay))
        assert own.equal(expected) and own.shape == expected.shape
        assert replay.known == eager.known
        for each in (eager, replay):
            each.keep(max(1, each.known - forgotten))
    assert replay.replays and all(replay.replays.values())
    for count, every in list(replay.replays):
        eager.reset(), replay.reset()  # no token is known
        tokens = torch.randint(40, (count,), generator=start).tolist()
        assert replay.feed(tokens, every=every).equal(eager.feed(tokens, every=every))


def test_no_code_of_the_model_runs_once_a_call_is_recorded(models, monkeypatch):
    decoder = ReplayDecoder(models["fp32"], 32)
    expected = greedy(decoder, [1, 2, 3], 8)
    decoder.keep(3)
    monkeypatch.setattr(models["fp32"].model, "forward", pytest.fail)
    for token, following in pairwise(expected):
        assert int(decoder.feed([token]).argmax()) == following


def test_at_the_end_of_the_cache_and_for_long_texts_the_model_runs(models):
    decoder, eager = (kind(models["fp32"], 5) for kind in (ReplayDecoder, TorchDecoder))
    for tokens in ([1, 2, 3], [4], [5]):  # a recording writes two rows past its own
        assert decoder.feed(tokens).equal(eager.feed(tokens)) and not decoder.replays
    decoder = ReplayDecoder(models["fp32"], 64)
    decoder.feed([1])
    decoder.feed([1] * (FEW_TOKENS + 1))
    assert not decoder.replays
    decoder.feed([1] * FEW_TOKENS)
    assert decoder.replays[FEW_TOKENS, False]


class Turning(transformers.LlamaForCausalLM):
    """Runs another operator at every second length."""

    def forward(self, input_ids, past_key_values=None, **kwargs):
        output = super().forward(input_ids, past_key_values=past_key_values, **kwargs)
        if past_key_values is not None and past_key_values.get_seq_length() % 2:
            output.logits = output.logits.neg()
        return output


def test_a_model_whose_operators_change_with_the_length_is_not_replayed(models):
    model = Turning(models["fp32"].config).eval()
    eager, replay = TorchDecoder(model, 32), ReplayDecoder(model, 32)
    assert greedy(replay, [3, 1], 12) == greedy(eager, [3, 1], 12)
    assert replay.replays[1, False] is None


def test_a_model_of_attention_within_a_window_is_not_replayed_past_it(models, monkeypatch):
    monkeypatch.setattr(models["fp32"].config, "sliding_window", 16, raising=False)
    within, past = (ReplayDecoder(models["fp32"], context) for context in (16, 17))
    for decoder in (within, past):
        decoder.feed([1])
        decoder.feed([2])
    assert within.replays and not past.replays


class Rows(nn.Module):
    """Computes with a number of rows of its memory."""

    def __init__(self, memory, rows, compute):
        super().__init__()
        self.memory, self.rows, self.compute = memory, rows, compute

    def forward(self, x):
        return self.compute(self, x)


def tape(compute, length=5):
    at = partial(Rows, torch.arange(32.0), compute=compute)
    with torch.no_grad():
        return Tape.with_length(at, Inputs((torch.ones(1, 1),)), length), at


def test_integers_that_grow_with_the_length_follow_it_and_others_stay():
    made, at = tape(lambda own, x: own.memory[own.rows - 2 : own.rows + 3].sum() * 5 + x)
    x = torch.full((1, 1), 2.0)
    for length in (2, 5, 11):
        assert made.compiled()(x, length).equal(at(length)(x))


OTHERWISE = {
    "twice": lambda own, x: own.memory[: 2 * own.rows].sum() + x,
    "half": lambda own, x: own.memory[: own.rows // 2].sum() + x,
    "at most": lambda own, x: own.memory[: min(own.rows, 6)].sum() + x,
    "a factor": lambda own, x: x * float(own.rows),
    "a constant": lambda own, x: x + torch.tensor([1.0 * own.rows]),
    "fewer": lambda own, x: x.neg() if own.rows == 6 else x.neg().neg(),
    "more": lambda own, x: x.neg().neg() if own.rows == 6 else x.neg(),
    "another": lambda own, x: x.neg() if own.rows == 6 else x.abs(),
    "later": lambda own, x: x + 2 if own.rows == 7 else x + 1,
    "numpy": lambda own, x: x + float(x.numpy().sum()),
}


@pytest.mark.parametrize("compute", OTHERWISE.values(), ids=OTHERWISE)
def test_what_depends_on_the_length_in_another_way_is_refused(compute):
    with pytest.raises(StepError, match=r"length|torch|reads"):
        tape(compute)
