"""Attention to chosen blocks: their choice, torch's path, and what lists may hold."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from paifuser_lab.bench.kernels.cases import exact
from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import attend_to_blocks, choose_blocks, errors_by_density
from paifuser_lab.kernels.block_gather import BLOCK, blocks_of
from paifuser_lab.kernels.compile import shipped
from paifuser_lab.model.flops import counter
from tests.support.kernel_checks import arithmetic, built, emulator_for_cpu, needs_compiler
from tests.support.kernel_table import BLOCK_SPARSE, draw_lists, lists, masked

KERNEL = BLOCK_SPARSE.kernel


def emulated(inputs):
    with emulator_for_cpu(KERNEL, BLOCK_SPARSE.entries) as launches:
        output = torch.ops.paifuser.block_sparse_attention(*inputs)
    assert launches
    return output


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_torchs_path_equals_float64_at_every_shape(data):
    inputs = lists(**draw_lists(data.draw))
    tensors = (tensor.double() for tensor in inputs[:3])
    torch.testing.assert_close(
        attend_to_blocks(
            *tensors, inputs[3], lengths=inputs[4], is_causal=inputs[5], scale=inputs[6]
        ),
        masked(inputs),
    )


def test_long_sequences_are_gathered_in_parts():
    inputs = lists(heads=1, tokens=(2048, 2048), most=9, ends=(3, 0), is_causal=True)
    torch.testing.assert_close(exact(KERNEL, inputs), masked(inputs))


@needs_compiler
def test_listed_blocks_that_do_not_exist_are_never_read():
    inputs = lists(most=3, lengths=[170])
    inputs[3][0, 0, 0] = torch.tensor([1, 7, 2_000_000_000])
    inputs[3][0, 1, 1] = torch.tensor([-5, 0, 1])
    query, key, value, kept, *_ = inputs
    launch = KERNEL.plan(KERNEL.empty(*inputs), *inputs)
    built(shipped(KERNEL.name), (launch.entry,), "bounds")(launch)
    output = launch.arguments[5]
    assert (output[0, 1, BLOCK : 2 * BLOCK] == 0).all()
    valid = kept.clone()
    valid[0, 0, 0, 1:] = -1
    torch.testing.assert_close(
        output[0, 0, :BLOCK].double(),
        masked((query, key, value, valid, *inputs[4:]))[0, 0, :BLOCK],
        rtol=0,
        atol=0.05,
    )
    torch.testing.assert_close(KERNEL.compose(*inputs).float(), output.float(), rtol=0, atol=0.05)


@needs_compiler
def test_the_padding_may_hold_anything():
    inputs = lists(most=4, lengths=[100])
    expected = masked(inputs)
    for tokens in inputs[1:3]:
        tokens[:, :, 100:] = float("nan")
    output = emulated(inputs)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=0.03)


@needs_compiler
def test_nan_propagates_only_to_queries_that_see_it():
    inputs = lists(most=1)
    inputs[3][..., 0] = torch.tensor([0, 1, 0])
    inputs[1][0, 0, 70, 5] = float("nan")
    output = emulated(inputs)
    assert output[0, 0, 64:128].isnan().all()
    assert (
        not output[0, 0, :64].isnan().any()
        and not output[0, 0, 128:].isnan().any()
        and not output[0, 1].isnan().any()
    )


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.sampled_from([1, 64, 130, 400]),
    keep=st.integers(1, 9),
    is_causal=st.booleans(),
    length=st.one_of(st.none(), st.integers(0, 400)),
)
def test_lists_are_ascending_visible_and_as_long_as_requested(tokens, keep, is_causal, length):
    query, key = torch.randn(2, 1, 2, tokens, 8)
    lengths = None if length is None else torch.tensor([length], dtype=torch.int32)
    kept = choose_blocks(query, key, keep=keep, is_causal=is_causal, lengths=lengths)
    count = blocks_of(tokens)
    present = count if length is None else min(count, blocks_of(length))
    assert kept.shape == (1, 2, count, min(keep, count)) and kept.dtype == torch.int32
    for head in kept[0]:
        for block, row in enumerate(head.tolist()):
            listed = [index for index in row if index >= 0]
            assert row == sorted(set(listed)) + [-1] * (len(row) - len(listed))
            assert len(listed) == min(keep, present, block + 1 if is_causal else count)
            assert all(index < present for index in listed)
            assert not is_causal or (
                max(listed, default=-1) <= block and (block in listed or block >= present)
            )


def test_the_best_blocks_are_those_of_the_highest_mean_products():
    query, key = torch.randn(2, 1, 1, 256, 16)
    means = [tokens.unflatten(2, (4, 64)).mean(3) for tokens in (query, key)]
    expected = (means[0] @ means[1].transpose(-1, -2)).topk(2).indices.sort(-1).values
    assert choose_blocks(query, key, density=0.5).equal(expected.int())


def test_padding_does_not_affect_the_choice():
    query, key = torch.randn(2, 1, 1, 200, 16)
    lengths = torch.tensor([100], dtype=torch.int32)
    corrupted = key.clone()
    corrupted[:, :, 100:] = float("nan")
    assert choose_blocks(query, corrupted, keep=1, lengths=lengths).equal(
        choose_blocks(query, key, keep=1, lengths=lengths)
    )


@pytest.mark.parametrize(
    ("length", "listed"), [(0, [-1, -1]), (1, [0, -1]), (64, [0, -1]), (65, [0, 1]), (128, [0, 1])]
)
def test_a_block_that_begins_where_the_keys_end_is_not_listed(length, listed):
    query, key = torch.randn(1, 1, 10, 8), torch.randn(1, 1, 128, 8)
    kept = choose_blocks(query, key, keep=2, lengths=torch.tensor([length], dtype=torch.int32))
    assert kept.flatten().tolist() == listed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either `keep` or"),
        ({"keep": 1, "density": 0.5}, "either `keep` or"),
        ({"density": 0.0}, "above 0"),
        ({"keep": 0}, "at least one"),
    ],
)
def test_an_invalid_choice_is_refused(options, words):
    with pytest.raises(KernelError, match=words):
        choose_blocks(torch.zeros(1, 1, 9, 8), torch.zeros(1, 1, 9, 8), **options)


@pytest.mark.parametrize("is_causal", [False, True])
def test_all_blocks_equal_full_attention_and_fewer_have_a_larger_error(is_causal):
    walk = torch.randn(3, 1, 2, 512, 32).cumsum(3) / 8  # neighbours are similar
    errors = errors_by_density(*walk, is_causal=is_causal)
    assert errors[1.0] < 1e-5
    assert errors[1.0] < errors[0.5] < errors[0.25] < errors[0.1]
    kept = choose_blocks(*walk[:2], density=1.0, is_causal=is_causal)
    torch.testing.assert_close(
        attend_to_blocks(*walk, kept, is_causal=is_causal),
        F.scaled_dot_product_attention(*walk, is_causal=is_causal),
    )


def test_full_lists_are_attended_to_as_lists_with_ends():
    query, key, value = (torch.randn(1, 2, 256, 16) for _ in range(3))
    lengths = torch.tensor([256], dtype=torch.int32)
    # of four blocks
    for kept in (torch.tensor([0, 3]), torch.tensor([3, 0]), torch.tensor([0, 9])):
        lists = kept.int().expand(1, 2, 4, 2)
        torch.testing.assert_close(
            attend_to_blocks(query, key, value, lists),
            attend_to_blocks(query, key, value, lists, lengths=lengths),
        )


@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_the_gradient_can_be_traced(mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    query, key, value = (torch.randn(1, 2, 128, 16) for _ in range(3))
    kept = torch.zeros(1, 2, 2, 1, dtype=torch.int32)

    def gradient(query):
        leaf = query.detach().requires_grad_()
        return torch.autograd.grad(attend_to_blocks(leaf, key, value, kept).sum(), leaf)[0]

    traced = make_fx(gradient, tracing_mode=mode, _allow_non_fake_inputs=True)(query)
    torch.testing.assert_close(traced(query), gradient(query))


def test_nested_counters_count_once():
    inputs = (
        *(torch.randn(1, 2, 256, 16) for _ in range(3)),
        torch.zeros(1, 2, 4, 1, dtype=torch.int32),
    )
    with counter() as outer:
        inner = arithmetic(attend_to_blocks, inputs)
    assert outer.get_total_flops() == inner == 4 * 2 * 256 * 64 * 16
