"""Attention to a part of the keys: with all blocks it equals torch's, with some it equals torch's
under a mask of them.
"""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from paifuser_lab.attention import Sparsity, attention, make_dense
from paifuser_lab.kernels.block_gather import BLOCK, blocks_of, compose
from paifuser_lab.measure import output_error
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.workload import Inputs
from tests.support.attention_models import KINDS, MODELS, seen_tokens, sparse, text, vision_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors"
)  # torch's own encoder, as it was
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_attention_to_all_blocks_equals_dense_attention(name, kind, monkeypatch):
    """Not by taking the short way: every block is listed, and the lists are attended to."""
    monkeypatch.setattr(attention, "is_all", lambda key, sparsity: False)
    model, args, kwargs = MODELS[name]()
    inputs = Inputs(args, kwargs)
    sparse_model = sparse(model, inputs, Sparsity(kind, 1.0))
    with torch.no_grad():
        expected, output = (
            seen_tokens(kwargs, inputs.clone()(module)) for module in (model, sparse_model)
        )
    assert output_error(expected, output)[0] < 1e-5
    assert sparse_model.state_dict().keys() == model.state_dict().keys() and weights_hash(
        sparse_model
    ) == weights_hash(model)


@pytest.mark.parametrize(
    "name", ["the zoo's ViT", "torch's layer, causal", "GPT-2, padded on the left", "BERT, padded"]
)
def test_sparse_attention_differs_and_make_dense_restores_the_output(name):
    model, args, kwargs = MODELS[name]()
    inputs = Inputs(args, kwargs)
    sparse_model = sparse(model, inputs, Sparsity("topk", 0.25))
    with torch.no_grad():
        expected, output = (
            seen_tokens(kwargs, inputs.clone()(module)) for module in (model, sparse_model)
        )
        assert 1e-4 < output_error(expected, output)[0] < 1
        make_dense(sparse_model)
        assert output_error(expected, seen_tokens(kwargs, inputs.clone()(sparse_model)))[0] < 1e-5


def pairs_of(kept, queries, keys):
    """The query-key pairs of lists of blocks: (batch, heads, queries, keys)."""
    seen = torch.zeros(*kept.shape[:2], queries, keys, dtype=torch.bool)
    for batch, head, row in torch.cartesian_prod(
        *(torch.arange(size) for size in kept.shape[:3])
    ).tolist():
        for block in kept[batch, head, row].tolist():
            if block >= 0:
                seen[
                    batch,
                    head,
                    row * BLOCK : (row + 1) * BLOCK,
                    block * BLOCK : (block + 1) * BLOCK,
                ] = True
    return seen


def best_of(query, key, count, shown, is_causal=False):
    """The blocks of the highest product of means, among those with a visible pair; the own block
    first if its queries see different keys.
    """
    rows, columns = blocks_of(query.shape[2]), blocks_of(key.shape[2])
    kept = torch.full((*query.shape[:2], rows, count), -1)
    for batch, head, row in torch.cartesian_prod(
        *(torch.arange(size) for size in kept.shape[:3])
    ).tolist():
        query_mean = query[batch, head, row * BLOCK : (row + 1) * BLOCK].mean(0)
        scores = {}
        for column in range(columns):
            near = slice(column * BLOCK, (column + 1) * BLOCK)
            if shown is None or shown[batch, head, row * BLOCK : (row + 1) * BLOCK, near].any():
                is_own = row == column and (
                    is_causal or (shown is not None and differs(shown[batch, head], row))
                )
                scores[column] = (
                    float("inf") if is_own else float(query_mean @ key[batch, head, near].mean(0))
                )
        best = sorted(sorted(scores, key=scores.__getitem__, reverse=True)[:count])
        kept[batch, head, row, : len(best)] = torch.tensor(best)
    return kept


def differs(shown, row):
    """Whether the queries of a block see different keys of their own block."""
    own = slice(row * BLOCK, (row + 1) * BLOCK)
    return bool((shown[own, own] != shown[own, own][0]).any())


def under_a_mask(query, key, value, seen):
    """torch's attention to the visible keys; zeros for queries that see none."""
    blind = ~seen.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen | blind).masked_fill(
        blind, 0.0
    )


shapes = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 2),
        "heads": st.integers(1, 2),
        "tokens": st.integers(65, 330),
        "count": st.integers(1, 4),
    }
)


@settings(max_examples=25, deadline=None)
@example(
    seed=0, shape={"batch": 1, "heads": 1, "tokens": 300, "count": 3}, kind="window", rule="causal"
)
@example(
    seed=0, shape={"batch": 1, "heads": 1, "tokens": 65, "count": 1}, kind="topk", rule="causal"
)
@given(
    seed=st.integers(0, 99),
    shape=shapes,
    kind=st.sampled_from(["topk", "window"]),
    rule=st.sampled_from(["none", "causal", "mask", "added"]),
)
def test_sparse_attention_equals_torchs_under_a_block_mask(seed, shape, kind, rule):
    torch.manual_seed(seed)
    tokens, count = shape["tokens"], min(shape["count"], blocks_of(shape["tokens"]))
    query, key, value = torch.randn(3, shape["batch"], shape["heads"], tokens, 16).unbind(0)
    mask = (torch.rand(shape["batch"], 1, tokens, tokens) < 0.3) | torch.eye(
        tokens, dtype=torch.bool
    )
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    shown = {"none": None, "causal": causal.expand(*query.shape[:2], -1, -1)}.get(
        rule, mask.expand(*query.shape[:2], -1, -1)
    )
    sparsity = Sparsity(kind, count) if count > 1 else Sparsity(kind, 1 / blocks_of(tokens))
    given_mask = {
        "mask": mask,
        "added": torch.zeros(mask.shape).masked_fill(~mask, float("-inf")),
    }.get(rule)
    output = attention.attend(
        query, key, value, given_mask, 0.0, rule == "causal", sparsity=sparsity
    )
    kept = (
        best_of(query, key, count, shown, rule == "causal")
        if kind == "topk"
        else around(query, count, rule == "causal")
    )
    seen = pairs_of(kept, tokens, tokens) & (torch.ones_like(causal) if shown is None else shown)
    torch.testing.assert_close(output, under_a_mask(query, key, value, seen), rtol=1e-4, atol=1e-5)


def around(query, count, is_causal):
    """`count` blocks around each block, or up to it, within the text."""
    rows = blocks_of(query.shape[2])
    kept = torch.full((rows, count), -1)
    for row in range(rows):
        first = min(max(0, row - (count - 1 if is_causal else count // 2)), rows - count)
        listed = [block for block in range(first, first + count) if block <= row or not is_causal]
        kept[row, : len(listed)] = torch.tensor(listed)
    return kept.expand(*query.shape[:2], -1, -1)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99),
    shape=shapes,
    missing=st.integers(1, 60),
    is_left=st.booleans(),
    kind=st.sampled_from(["topk", "window"]),
)
def test_attention_to_a_padded_text_equals_that_to_the_text_alone(
    seed, shape, missing, is_left, kind
):
    """As many blocks as are kept of the padded text; blocks of padding alone do not count."""
    torch.manual_seed(seed)
    tokens, count = shape["tokens"], min(shape["count"], blocks_of(shape["tokens"]))
    query, key, value = torch.randn(3, 1, shape["heads"], tokens, 16).unbind(0)
    there = slice(missing, None) if is_left else slice(0, tokens - missing)
    visible = torch.zeros(1, 1, 1, tokens, dtype=torch.bool)
    visible[..., there] = True
    sparsity = Sparsity(kind, count) if count > 1 else Sparsity(kind, 1 / blocks_of(tokens))
    output = attention.attend(query, key, value, visible, sparsity=sparsity)[:, :, there]
    parts = [tensor[:, :, there] for tensor in (query, key, value)]
    if count >= blocks_of(tokens):
        expected = F.scaled_dot_product_attention(*parts)
    else:
        most = min(count, blocks_of(tokens - missing))
        kept = best_of(*parts[:2], most, None) if kind == "topk" else around(parts[0], most, False)
        expected = under_a_mask(*parts, pairs_of(kept, tokens - missing, tokens - missing))
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


def test_grouped_query_attention_equals_repeated_heads():
    query, key, value = (
        torch.randn(1, 4, 200, 16),
        torch.randn(1, 2, 200, 16),
        torch.randn(1, 2, 200, 16),
    )
    sparsity = Sparsity("topk", 0.5)
    output = attention.attend(query, key, value, enable_gqa=True, sparsity=sparsity)
    repeated = [tensor.repeat_interleave(2, 1) for tensor in (key, value)]
    torch.testing.assert_close(
        output, attention.attend(query, *repeated, sparsity=sparsity), rtol=0, atol=0
    )


def hiding(shape, shown):
    """A mask that shows some keys."""
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[..., shown] = True
    return mask


def sparse_mask():
    """Each query sees a key in a hundred, and the first."""
    return (torch.rand(1, 1, 200, 520) < 0.01) | (torch.arange(520) == 0)


def added(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))


HIDDEN = {  # queries, keys, mask, whether causal
    "causal, fewer queries than keys": (130, 520, None, True),
    "causal, more queries than keys": (520, 130, None, True),
    "padding, as many queries as keys": (520, 520, hiding((1, 1, 1, 520), slice(0, 70)), False),
    "padding, fewer queries than keys": (200, 520, hiding((1, 1, 1, 520), slice(0, 70)), False),
    "padding on the left, added": (520, 520, added(hiding((1, 1, 1, 520), slice(450, 520))), False),
    "few keys for each query": (200, 520, sparse_mask(), False),
    "few keys for each query, added": (200, 520, added(sparse_mask()), False),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HIDDEN)
def test_every_query_that_sees_keys_keeps_some(name, kind):
    queries, keys, mask, is_causal = HIDDEN[name]
    torch.manual_seed(0)
    query, key = torch.randn(1, 2, queries, 16), torch.randn(1, 2, keys, 16)
    fixed = torch.tensor([[[6, 7]] * blocks_of(520)] * 2).int()  # the last ones of the keys
    output = attention.attend(
        query, key, key, mask, is_causal=is_causal, sparsity=Sparsity(kind, 2), fixed=fixed
    )
    whole = F.scaled_dot_product_attention(query, key, key, mask, is_causal=is_causal)
    assert whole.abs().sum(-1).min() > 0 and output.abs().sum(-1).min() > 0


def test_lists_for_more_keys_fall_back_on_the_nearest_of_fewer():
    query, key = torch.randn(1, 1, 512, 16), torch.randn(1, 1, 200, 16)
    fixed = torch.tensor([[[0, 5]] * 4 + [[6, 7]] * 4]).int()
    output = attention.attend(query, key, key, sparsity=Sparsity("block", 2), fixed=fixed)
    kept = torch.tensor([[[[0, -1]] * 4 + [[1, 2], [1, 2], [2, 3], [2, 3]]]])
    torch.testing.assert_close(
        output, under_a_mask(query, key, key, pairs_of(kept, 512, 200)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_does_not_make_causal_attention_look_ahead(kind):
    query, key, value = torch.randn(3, 1, 2, 200, 16).unbind(0)
    call = {"attn_mask": hiding((1, 1, 1, 200), slice(0, 190)), "is_causal": True}
    output = attention.attend(
        query, key, value, **call, sparsity=Sparsity(kind, 3), fixed=torch.zeros(2, 4, 1).int()
    )
    assert (
        output[:, :, 0] - value[:, :, 0]
    ).abs().max() < 1e-5  # the first query sees the first key, and no other
    assert "a mask and is_causal at once" in attention.why_dense(
        query, key, value, call["attn_mask"], True
    )


PLAIN = {  # a call, and the same call with its arguments repeated
    "one padding for all keys": lambda q, k, v: (
        (q, k, v, torch.ones(2, 1, 1, 1, dtype=torch.bool)),
        (q, k, v),
    ),
    "one number for all keys": lambda q, k, v: (
        (q, k, v, torch.ones(1, 1, 200, 1)),
        (q, k, v, torch.ones(1, 1, 200, 200)),
    ),
    "keys of one head": lambda q, k, v: (
        (q, k[:, :1], v[:, :1]),
        (q, *(tensor[:, :1].repeat(1, 2, 1, 1) for tensor in (k, v))),
    ),
    "keys of one batch": lambda q, k, v: (
        (q, k[:1], v[:1]),
        (q, *(tensor[:1].repeat(2, 1, 1, 1) for tensor in (k, v))),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_arguments_that_torch_broadcasts_are_broadcast(name):
    call, repeated = PLAIN[name](*torch.randn(3, 2, 2, 200, 16).unbind(0))
    output, expected = (
        attention.attend(*args, sparsity=Sparsity("topk", 3)) for args in (call, repeated)
    )
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    assert (
        output_error(F.scaled_dot_product_attention(*repeated), output)[0] > 1e-4
    )  # and to a part it is


def test_dropout_drops_and_the_rest_is_scaled():
    query = torch.randn(1, 2, 200, 16)
    kept = torch.arange(4, dtype=torch.int32).expand(1, 2, 4, 4)
    ones = torch.ones(1, 2, 200, 16)
    output = compose(query, query, ones, kept, None, False, 0.25, dropout=0.5)
    assert output.std() > 0.01 and abs(output.mean() - 1) < 0.1  # without dropout each would be 1


@pytest.mark.parametrize("name", ["the zoo's ViT", "BERT, padded", "GPT-2"])
def test_gradients_with_all_blocks_equal_those_of_dense_attention(name, monkeypatch):
    monkeypatch.setattr(attention, "is_all", lambda key, sparsity: False)
    model, args, kwargs = MODELS[name]()
    inputs = Inputs(args, kwargs)
    sparse_model = sparse(model, inputs, Sparsity("topk", 1.0))
    for module in (model, sparse_model):
        seen_tokens(kwargs, inputs.clone()(module)).square().mean().backward()
    for (layer_name, weight), other in zip(
        model.named_parameters(), sparse_model.parameters(), strict=True
    ):
        if weight.grad is not None:
            torch.testing.assert_close(
                other.grad, weight.grad, rtol=1e-3, atol=1e-5, msg=layer_name
            )


@pytest.mark.parametrize(
    "name", ["the zoo's ViT", "the zoo's BERT, padded", "torch's layer, causal"]
)
def test_a_sparse_model_compiles_as_one_graph_and_exports(name):
    model, args, kwargs = MODELS[name]()
    sparse_model = sparse(model, Inputs(args, kwargs), Sparsity("topk", 0.5))
    with torch.no_grad():
        expected = seen_tokens({}, sparse_model(*args, **kwargs))
        compiled = torch.compile(sparse_model, fullgraph=True, backend="eager")
        assert output_error(expected, seen_tokens({}, compiled(*args, **kwargs)))[0] < 1e-5
        program = torch.export.export(sparse_model, args, kwargs)
        assert output_error(expected, seen_tokens({}, program.module()(*args, **kwargs)))[0] < 1e-5
        assert not [
            node for node in program.graph.nodes if "paifuser" in str(node.target)
        ]  # any runtime can run it


def test_copies_and_pickles_attend_to_the_same():
    model, args, _ = vision_model()
    sparse_model = sparse(model, Inputs(args), Sparsity("block", 0.4))
    with torch.no_grad():
        for other in (copy.deepcopy(sparse_model), pickle.loads(pickle.dumps(sparse_model))):
            torch.testing.assert_close(other(*args), sparse_model(*args), rtol=0, atol=0)


def test_batch_and_length_may_change():
    model, _, _ = text()
    models = {
        kind: sparse(model, Inputs((torch.randint(0, 50, (2, 200)),)), Sparsity(kind, 0.5))
        for kind in KINDS
    }
    with torch.no_grad():
        for kind, sparse_model in models.items():
            assert sparse_model(torch.randint(0, 50, (3, 130)))["last_hidden_state"].shape == (
                3,
                130,
                32,
            )
            short = torch.randint(0, 50, (1, 60))
            assert output_error(model(short), sparse_model(short))[0] < 1e-6, (
                kind
            )  # one block is all there is
        with pytest.warns(
            UserWarning,
            match=(
                "Lists of blocks for 2 heads of 256 tokens do not fit 2 heads of 257; this layer "
                "attends"
            ),
        ):
            attention.attend(
                *torch.randn(3, 1, 2, 257, 16),
                sparsity=Sparsity("block", 2),
                fixed=torch.zeros(2, 4, 2).int(),
            )
