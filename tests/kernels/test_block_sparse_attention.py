"""Attention to chosen blocks: the CUDA source, run on the CPU, and torch's path, both against
masked attention in float64.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import attend_to_blocks, choose_blocks, errors_by_density
from paifuser_lab.kernels.block_gather import BLOCK, blocks_of
from paifuser_lab.kernels.block_sparse_attention import KERNEL
from paifuser_lab.kernels.launch import DeclinedError
from paifuser_lab.measure.flops import counter
from tests.support.cuda_on_cpu.emulator import source_of
from tests.support.kernel_cases.block_sparse_attention import (
    ENTRIES,
    TYPES,
    assert_exact,
    exact,
    inputs_of,
)
from tests.support.kernel_checks import (
    arithmetic,
    built,
    check_caught,
    check_clean,
    check_operator,
    check_tiles,
    emulated,
    emulator_for_cpu,
    needs_compiler,
    planned,
)


def as_double(inputs):
    return tuple(
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in inputs
    )


@st.composite
def some_inputs(draw, kinds=tuple(TYPES), sizes=(64, 128)):
    queries, keys = (
        draw(st.sampled_from([1, 40, 64, 65, 150])),
        draw(st.sampled_from([1, 63, 64, 129, 200])),
    )
    most = draw(st.integers(1, blocks_of(keys)))
    batch = draw(st.integers(1, 2))
    return inputs_of(
        draw(st.sampled_from(kinds)),
        draw(st.sampled_from(sizes)),
        batch=batch,
        heads=draw(st.integers(1, 2)),
        queries=queries,
        keys=keys,
        most=most,
        ends=draw(st.lists(st.integers(0, most), max_size=3)),
        is_causal=draw(st.booleans()),
        lengths=draw(
            st.one_of(
                st.none(), st.lists(st.integers(-1, keys + 9), min_size=batch, max_size=batch)
            )
        ),
        scale=draw(st.sampled_from([0.05, 0.125, 1.0])),
        is_ascending=draw(st.booleans()),
    )


@needs_compiler
@settings(max_examples=20, deadline=None)
@given(inputs=some_inputs(), order=st.integers(0, 9))
def test_the_kernel_equals_float64_at_every_shape(inputs, order):
    assert_exact(emulated(KERNEL, ENTRIES, inputs, order=order), inputs)


@needs_compiler
@pytest.mark.parametrize("size", [64, 128])
def test_every_tile_gives_the_same_output(size):
    torch.manual_seed(0)
    inputs = inputs_of(
        size=size,
        heads=1,
        queries=130,
        keys=300,
        most=5,
        ends=(9, 2, 4),
        is_causal=size == 64,
        lengths=[290],
    )
    check_tiles(KERNEL, inputs, KERNEL.tiles, assert_exact)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize("sizes", [(2, 2, 1, 0, 2), (1, 3, 0, 1, 3), (2, 4, 0, 1, 2)])
def test_the_sanitizers_find_nothing_in_other_tiles(sizes, check):
    tile = dict(zip(KERNEL.tiles.choices, sizes, strict=True))
    check_clean(
        KERNEL,
        inputs_of(heads=1, most=4, ends=(4, 1), is_causal=True, lengths=[150]),
        check,
        tile=tile,
    )


@settings(max_examples=40, deadline=None)
@given(inputs=some_inputs())
def test_torchs_path_equals_float64_at_every_shape(inputs):
    doubled = as_double(inputs)
    torch.testing.assert_close(
        attend_to_blocks(*doubled[:4], lengths=doubled[4], is_causal=doubled[5], scale=doubled[6]),
        exact(inputs),
    )


def test_long_sequences_are_gathered_in_parts():
    inputs = inputs_of(heads=1, queries=2048, keys=2048, most=9, ends=(3, 0), is_causal=True)
    torch.testing.assert_close(KERNEL.compose(*as_double(inputs)), exact(inputs))


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
def test_the_sanitizers_find_nothing(check):
    check_clean(KERNEL, inputs_of(most=4, is_causal=True, lengths=[150]), check)


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "planted", "words"),
    [
        (
            "races",
            "__syncthreads();                                     // all keys of this stage",
            "//",
            "data race.*the.cu",
        ),
        ("bounds", "chunk, row < there);", "chunk, true);", "heap-buffer-overflow"),
        ("bounds", "if (row < queries)", "", "heap-buffer-overflow.*the.cu"),
        ("none", "    await_copies<GROUPS * (STAGES - 2) + GROUPS - 1>();", "", "never waited for"),
        (
            "none",
            "PITCH = SIZE + 8",
            "PITCH = SIZE + 16",
            "bytes of shared memory, the kernel takes",
        ),
    ],
)
def test_planted_mistakes_are_caught(check, text, planted, words):
    check_caught(KERNEL, inputs_of(size=128, most=4), check, text, planted, f"(?s){words}")


@needs_compiler
def test_queries_that_are_not_waited_for_give_nan():
    source = source_of("block_sparse_attention")
    text = "await_copies<GROUPS * (STAGES - 1)>();               // of the queries"
    assert source.count(text) == 1
    out, launch = planned(KERNEL, inputs_of(most=4), tile=KERNEL.tiles.default)
    built(source.replace(text, "//"), (launch.entry,))(launch)
    assert out.isnan().any()


@needs_compiler
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize(
    ("check", "text", "planted", "words"),
    [
        (
            "none",
            "      await_copies<GROUPS * (STAGES - 1)>();",
            "await_copies<GROUPS * (STAGES - 1) + 1>();",
            "never waited for",
        ),
        (
            "races",
            "__syncthreads();                                   // all values",
            "//",
            "data race.*the.cu",
        ),
    ],
)
def test_values_that_are_read_too_early_are_caught(check, text, planted, words, stages):
    tile = {**KERNEL.tiles.default, "stages": stages, "late": 1}
    check_caught(KERNEL, inputs_of(most=4), check, text, planted, f"(?s){words}", tile=tile)


@needs_compiler
def test_listed_blocks_that_do_not_exist_are_never_read():
    inputs = inputs_of(most=3, lengths=[170])
    inputs[3][0, 0, 0] = torch.tensor([1, 7, 2_000_000_000])
    inputs[3][0, 1, 1] = torch.tensor([-5, 0, 1])
    query, key, value, kept, *_ = inputs
    _, launch = planned(KERNEL, inputs)
    built(source_of("block_sparse_attention"), (launch.entry,), "bounds")(launch)
    output = launch.arguments[5]
    assert (output[0, 1, BLOCK : 2 * BLOCK] == 0).all()
    valid = kept.clone()
    valid[0, 0, 0, 1:] = -1
    torch.testing.assert_close(
        output[0, 0, :BLOCK].double(),
        exact((query, key, value, valid, *inputs[4:]))[0, 0, :BLOCK],
        rtol=0,
        atol=0.05,
    )
    torch.testing.assert_close(KERNEL.compose(*inputs).float(), output.float(), rtol=0, atol=0.05)


@needs_compiler
def test_the_padding_may_hold_anything():
    inputs = inputs_of(most=4, lengths=[100])
    expected = exact(inputs)
    for tokens in inputs[1:3]:
        tokens[:, :, 100:] = float("nan")
    output = emulated(KERNEL, ENTRIES, inputs)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=0.03)


@needs_compiler
def test_nan_propagates_only_to_queries_that_see_it():
    inputs = inputs_of(most=1)
    inputs[3][..., 0] = torch.tensor([0, 1, 0])
    inputs[1][0, 0, 70, 5] = float("nan")
    output = emulated(KERNEL, ENTRIES, inputs)
    assert output[0, 0, 64:128].isnan().all()
    assert (
        not output[0, 0, :64].isnan().any()
        and not output[0, 0, 128:].isnan().any()
        and not output[0, 1].isnan().any()
    )


@needs_compiler
def test_the_operator_is_sound():
    check_operator(
        KERNEL, ENTRIES, inputs_of(heads=1, queries=70, keys=70, is_causal=True, lengths=[66])
    )


@needs_compiler
def test_permuted_and_misaligned_tokens_are_accepted():
    inputs = inputs_of("float16", lengths=[150])
    query, key, value, kept, lengths, is_causal, scale = inputs
    misaligned = torch.cat([key.new_zeros(3), key.flatten()])[3:].view_as(key)
    assert misaligned.data_ptr() % 16 == 6
    rows_first = query.transpose(1, 2).contiguous().transpose(1, 2)
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        output = attend_to_blocks(
            rows_first,
            misaligned,
            value,
            kept.flip(-1).flip(-1),
            lengths=lengths,
            is_causal=is_causal,
            scale=scale,
        )
    assert len(launches) == 1
    assert_exact(output, inputs)


def test_unsupported_inputs_are_declined():
    for changes, words in [
        ({"size": 32}, "a head of 128, 64, not 32"),
        ({"scale": -1.0}, "a scale above 0, not -1.0"),
    ]:
        inputs = inputs_of(**changes)
        with pytest.raises(DeclinedError, match=words):
            KERNEL.plan(KERNEL.empty(*inputs), *inputs)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (1, torch.zeros(1, 2, 100, 64), "queries, keys and values as"),
        (0, torch.zeros(1, 4, 130, 64), "repeat the keys of shared heads"),
        (3, torch.zeros(1, 2, 3, 1), "in int32, not .* `choose_blocks` returns them"),
        (3, torch.zeros(1, 2, 2, 1, dtype=torch.int32), r"\(1, 2, 3\) × most in int32"),
        (4, torch.zeros(2, dtype=torch.int32), r"lengths as \(1,\) in int32"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(index, value, words):
    inputs = list(inputs_of())
    inputs[index] = value
    with pytest.raises(KernelError, match=words):
        torch.ops.paifuser.block_sparse_attention(*inputs)


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
