"""Attention to a part of the keys: of all blocks it is torch's own, of some it is torch's under a mask of them; slower is said."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import session as room
from paifuser_lab.attending import Keeping, attention, find_attention, judging, make_dense, make_sparse
from paifuser_lab.attending.fixing import lists_for
from paifuser_lab.errors import FileError, MeasureError, RecipeError, StepError, StoppedError
from paifuser_lab.kernels.block_sparse_attention import BLOCK, blocks_of, compose
from paifuser_lab.measure import output_error
from paifuser_lab.session import Session
from paifuser_lab.steps import step_class
from paifuser_lab.weights import weights_hash
from paifuser_lab.workload import Inputs
from paifuser_lab.zoo.bert import Bert
from paifuser_lab.zoo.vit import VisionTransformer

pytestmark = pytest.mark.usefixtures("one_thread")
PATIENCE = 120.0
KINDS = ("topk", "block", "window")


class Attended(nn.Module):
    """torch's attention layer by itself, with the masks it takes."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 2, **options)

    def forward(self, x, *, is_causal=False, padding=None, need_weights=False):
        mask = nn.Transformer.generate_square_subsequent_mask(200) if is_causal else None
        options = {"attn_mask": mask, "key_padding_mask": padding, "need_weights": need_weights, "is_causal": is_causal}
        given = self.norm(x)
        return x + self.attention(given, given, given, **options)[0]


def sight():
    """A vision transformer of as many tokens as 16 × 16 patches and one are."""
    return VisionTransformer(side=64, patch=4, width=32, depth=2, heads=2, classes=5).eval(), (torch.randn(2, 3, 64, 64),), {}


def text():
    return Bert(vocabulary=50, length=256, width=32, depth=2, heads=2).eval(), (torch.randint(0, 50, (2, 200)),), {}


def padded_text(visible):
    model, args, _ = text()
    return model, args, {"attention_mask": visible}


def layer(**options):
    def make():
        return Attended(batch_first=True).eval(), (torch.randn(2, 200, 32),), options

    return make


def encoder():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2).eval()
    return model, (torch.randn(2, 200, 32),), {"src_key_padding_mask": ~right(2)}


def foreign(kind, **options):
    """A model of transformers, small and of random weights."""

    def make():
        transformers = pytest.importorskip("transformers")
        shared = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        if kind == "ViT":
            config = transformers.ViTConfig(image_size=64, patch_size=4, **shared)
            return transformers.ViTModel(config).eval(), (torch.randn(2, 3, 64, 64),), {}
        if kind == "GPT2":
            config = transformers.GPT2Config(
                vocab_size=50, n_positions=256, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False
            )
            return transformers.GPT2Model(config).eval(), (torch.randint(0, 50, (2, 200)),), options
        config = transformers.BertConfig(vocab_size=50, max_position_embeddings=256, **shared)
        return transformers.BertModel(config).eval(), (torch.randint(0, 50, (2, 200)),), options

    return make


def right(batch, tokens=200, missing=90):
    """Which tokens of a text that is padded on the right are there; the first of a batch is whole."""
    visible = torch.ones(batch, tokens, dtype=torch.bool)
    visible[1:, tokens - missing :] = False
    return visible


MODELS = {
    "the zoo's ViT": sight,
    "the zoo's BERT": text,
    "the zoo's BERT, padded": lambda: padded_text(right(2)),
    "the zoo's BERT, padded on the left": lambda: padded_text(right(2).flip(1)),
    "torch's layer": layer(),
    "torch's layer, causal": layer(is_causal=True),
    "torch's layer, padded": layer(padding=~right(2)),
    "torch's encoder": encoder,
    "BERT": foreign("BERT"),
    "BERT, padded": foreign("BERT", attention_mask=right(2).long()),
    "ViT": foreign("ViT"),
    "GPT-2": foreign("GPT2"),
    "GPT-2, padded on the left": foreign("GPT2", attention_mask=right(2).flip(1).long()),
}


def sparse(model, inputs, keeping):
    """A copy that attends to a part in every layer that can."""
    made = copy.deepcopy(model)
    seen = find_attention(model, inputs)
    for name, calls in seen.able.items():
        fixed = lists_for(calls, keeping) if keeping.kind == "block" else None
        make_sparse(made, name, keeping, fixed)
    assert len(seen.able) == len(seen.calls) >= 1
    return made


def seen_tokens(kwargs, answer):
    """The tokens of an answer that are no padding."""
    mask = kwargs.get("attention_mask")
    padding = kwargs.get("src_key_padding_mask", kwargs.get("padding"))
    visible = mask.bool() if mask is not None else None if padding is None else ~padding
    hidden = answer if isinstance(answer, torch.Tensor) else answer["last_hidden_state"]
    return hidden if visible is None else hidden[visible]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # torch's own encoder, as it was
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_all_blocks_are_the_attention_it_was(name, kind, monkeypatch):
    """Not by taking the short way: every block is listed, and the lists are attended to."""
    monkeypatch.setattr(attention, "is_all", lambda key, keeping: False)
    model, args, kwargs = MODELS[name]()
    inputs = Inputs(args, kwargs)
    made = sparse(model, inputs, Keeping(kind, 1.0))
    with torch.no_grad():
        wanted, found = (seen_tokens(kwargs, inputs.clone()(one)) for one in (model, made))
    assert output_error(wanted, found)[0] < 1e-5
    assert made.state_dict().keys() == model.state_dict().keys() and weights_hash(made) == weights_hash(model)


@pytest.mark.parametrize("name", ["the zoo's ViT", "torch's layer, causal", "GPT-2, padded on the left", "BERT, padded"])
def test_less_than_all_is_something_else_and_all_again_is_what_it_was(name):
    model, args, kwargs = MODELS[name]()
    inputs = Inputs(args, kwargs)
    made = sparse(model, inputs, Keeping("topk", 0.25))
    with torch.no_grad():
        wanted, found = (seen_tokens(kwargs, inputs.clone()(one)) for one in (model, made))
        assert 1e-4 < output_error(wanted, found)[0] < 1
        make_dense(made)
        assert output_error(wanted, seen_tokens(kwargs, inputs.clone()(made)))[0] < 1e-5


def pairs_of(kept, queries, keys):
    """Of lists of blocks, which query sees which key: (batch, heads, queries, keys)."""
    seen = torch.zeros(*kept.shape[:2], queries, keys, dtype=torch.bool)
    for batch, head, row in torch.cartesian_prod(*(torch.arange(one) for one in kept.shape[:3])).tolist():
        for block in kept[batch, head, row].tolist():
            if block >= 0:
                seen[batch, head, row * BLOCK : (row + 1) * BLOCK, block * BLOCK : (block + 1) * BLOCK] = True
    return seen


def best_of(query, key, count, shown):
    """The blocks of the highest product of means, one by one; of those with a pair that is shown, the own one first where there is a mask."""
    rows, columns = blocks_of(query.shape[2]), blocks_of(key.shape[2])
    kept = torch.full((*query.shape[:2], rows, count), -1)
    for batch, head, row in torch.cartesian_prod(*(torch.arange(one) for one in kept.shape[:3])).tolist():
        mine = query[batch, head, row * BLOCK : (row + 1) * BLOCK].mean(0)
        scores = {}
        for column in range(columns):
            near = slice(column * BLOCK, (column + 1) * BLOCK)
            if shown is None or shown[batch, head, row * BLOCK : (row + 1) * BLOCK, near].any():
                is_own = shown is not None and row == column and differs(shown[batch, head], row)
                scores[column] = float("inf") if is_own else float(mine @ key[batch, head, near].mean(0))
        best = sorted(sorted(scores, key=scores.__getitem__, reverse=True)[:count])
        kept[batch, head, row, : len(best)] = torch.tensor(best)
    return kept


def differs(shown, row):
    """Whether the queries of a block see different keys of their own block."""
    mine = slice(row * BLOCK, (row + 1) * BLOCK)
    return bool((shown[mine, mine] != shown[mine, mine][0]).any())


def under_a_mask(query, key, value, seen):
    """torch's attention to what is seen; zeros where that is nothing."""
    blind = ~seen.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen | blind).masked_fill(blind, 0.0)


shapes = st.fixed_dictionaries(
    {"batch": st.integers(1, 2), "heads": st.integers(1, 2), "tokens": st.integers(65, 330), "count": st.integers(1, 4)}
)


@settings(max_examples=25, deadline=None)
@example(seed=0, shape={"batch": 1, "heads": 1, "tokens": 300, "count": 3}, kind="window", rule="causal")
@given(
    seed=st.integers(0, 99),
    shape=shapes,
    kind=st.sampled_from(["topk", "window"]),
    rule=st.sampled_from(["none", "causal", "mask", "added"]),
)
def test_attention_to_a_part_is_torchs_under_a_mask_of_its_blocks(seed, shape, kind, rule):
    torch.manual_seed(seed)
    tokens, count = shape["tokens"], min(shape["count"], blocks_of(shape["tokens"]))
    query, key, value = torch.randn(3, shape["batch"], shape["heads"], tokens, 16).unbind(0)
    mask = (torch.rand(shape["batch"], 1, tokens, tokens) < 0.3) | torch.eye(tokens, dtype=torch.bool)
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    shown = {"none": None, "causal": causal.expand(*query.shape[:2], -1, -1)}.get(rule, mask.expand(*query.shape[:2], -1, -1))
    keeping = Keeping(kind, count) if count > 1 else Keeping(kind, 1 / blocks_of(tokens))
    given_mask = {"mask": mask, "added": torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))}.get(rule)
    found = attention.attend(query, key, value, given_mask, 0.0, rule == "causal", keeping=keeping)
    kept = best_of(query, key, count, shown) if kind == "topk" else around(query, count, rule == "causal")
    seen = pairs_of(kept, tokens, tokens) & (torch.ones_like(causal) if shown is None else shown)
    torch.testing.assert_close(found, under_a_mask(query, key, value, seen), rtol=1e-4, atol=1e-5)


def around(query, count, is_causal):
    """So many blocks around each one, or up to it, inside the text."""
    rows = blocks_of(query.shape[2])
    kept = torch.full((rows, count), -1)
    for row in range(rows):
        first = min(max(0, row - (count - 1 if is_causal else count // 2)), rows - count)
        listed = [one for one in range(first, first + count) if one <= row or not is_causal]
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
def test_a_padded_text_is_attended_to_as_the_text_without_its_padding(seed, shape, missing, is_left, kind):
    """As many blocks as are kept of the padded text; those that are nowhere else but in the padding do not count."""
    torch.manual_seed(seed)
    tokens, count = shape["tokens"], min(shape["count"], blocks_of(shape["tokens"]))
    query, key, value = torch.randn(3, 1, shape["heads"], tokens, 16).unbind(0)
    there = slice(missing, None) if is_left else slice(0, tokens - missing)
    visible = torch.zeros(1, 1, 1, tokens, dtype=torch.bool)
    visible[..., there] = True
    keeping = Keeping(kind, count) if count > 1 else Keeping(kind, 1 / blocks_of(tokens))
    found = attention.attend(query, key, value, visible, keeping=keeping)[:, :, there]
    mine = [one[:, :, there] for one in (query, key, value)]
    if count >= blocks_of(tokens):
        wanted = F.scaled_dot_product_attention(*mine)
    else:
        there_are = min(count, blocks_of(tokens - missing))
        kept = best_of(*mine[:2], there_are, None) if kind == "topk" else around(mine[0], there_are, False)
        wanted = under_a_mask(*mine, pairs_of(kept, tokens - missing, tokens - missing))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_shared_heads_are_attended_to_as_often_as_there_are_queries():
    query, key, value = torch.randn(1, 4, 200, 16), torch.randn(1, 2, 200, 16), torch.randn(1, 2, 200, 16)
    keeping = Keeping("topk", 0.5)
    found = attention.attend(query, key, value, enable_gqa=True, keeping=keeping)
    repeated = [one.repeat_interleave(2, 1) for one in (key, value)]
    torch.testing.assert_close(found, attention.attend(query, *repeated, keeping=keeping), rtol=0, atol=0)


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
def test_no_query_is_left_without_keys_that_sees_some(name, kind):
    queries, keys, mask, is_causal = HIDDEN[name]
    torch.manual_seed(0)
    query, key = torch.randn(1, 2, queries, 16), torch.randn(1, 2, keys, 16)
    fixed = torch.tensor([[[6, 7]] * blocks_of(520)] * 2).int()  # the last ones of the keys
    found = attention.attend(query, key, key, mask, is_causal=is_causal, keeping=Keeping(kind, 2), fixed=fixed)
    whole = F.scaled_dot_product_attention(query, key, key, mask, is_causal=is_causal)
    assert whole.abs().sum(-1).min() > 0 and found.abs().sum(-1).min() > 0


def test_lists_for_more_keys_fall_back_on_the_nearest_of_fewer():
    query, key = torch.randn(1, 1, 512, 16), torch.randn(1, 1, 200, 16)
    fixed = torch.tensor([[[0, 5]] * 4 + [[6, 7]] * 4]).int()
    found = attention.attend(query, key, key, keeping=Keeping("block", 2), fixed=fixed)
    kept = torch.tensor([[[[0, -1]] * 4 + [[1, 2], [1, 2], [2, 3], [2, 3]]]])
    torch.testing.assert_close(found, under_a_mask(query, key, key, pairs_of(kept, 512, 200)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_does_not_make_causal_attention_look_ahead(kind):
    query, key, value = torch.randn(3, 1, 2, 200, 16).unbind(0)
    call = {"attn_mask": hiding((1, 1, 1, 200), slice(0, 190)), "is_causal": True}
    found = attention.attend(query, key, value, **call, keeping=Keeping(kind, 3), fixed=torch.zeros(2, 4, 1).int())
    assert (found[:, :, 0] - value[:, :, 0]).abs().max() < 1e-5  # the first query sees the first key, and no other
    assert "a mask and is_causal at once" in attention.why_dense(query, key, value, call["attn_mask"], True)


PLAIN = {  # a call that is another one, said otherwise
    "one padding for all keys": lambda q, k, v: ((q, k, v, torch.ones(2, 1, 1, 1, dtype=torch.bool)), (q, k, v)),
    "one number for all keys": lambda q, k, v: ((q, k, v, torch.ones(1, 1, 200, 1)), (q, k, v, torch.ones(1, 1, 200, 200))),
    "keys of one head": lambda q, k, v: ((q, k[:, :1], v[:, :1]), (q, *(one[:, :1].repeat(1, 2, 1, 1) for one in (k, v)))),
    "keys of one batch": lambda q, k, v: ((q, k[:1], v[:1]), (q, *(one[:1].repeat(2, 1, 1, 1) for one in (k, v)))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_torch_repeats_is_repeated(name):
    given, same = PLAIN[name](*torch.randn(3, 2, 2, 200, 16).unbind(0))
    found, wanted = (attention.attend(*one, keeping=Keeping("topk", 3)) for one in (given, same))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert output_error(F.scaled_dot_product_attention(*same), found)[0] > 1e-4  # and to a part it is


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_a_scale_that_turns_the_best_into_the_worst_is_for_all_keys(scale):
    query, key, value = torch.randn(3, 1, 2, 200, 16).unbind(0)
    found = attention.attend(query, key, value, scale=scale, keeping=Keeping("topk", 2))
    torch.testing.assert_close(found, F.scaled_dot_product_attention(query, key, value, scale=scale), rtol=0, atol=0)
    assert attention.why_dense(query, key, value, scale=scale) == f"its scale is {scale}, not above 0"


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_is_answered_by_an_empty_one(kind):
    none = torch.randn(0, 2, 200, 16)
    fixed = torch.zeros(2, 4, 2).int()
    assert attention.attend(none, none, none, keeping=Keeping(kind, 2), fixed=fixed).shape == none.shape


def test_dropout_drops_and_the_rest_is_scaled():
    query = torch.randn(1, 2, 200, 16)
    kept = torch.arange(4, dtype=torch.int32).expand(1, 2, 4, 4)
    ones = torch.ones(1, 2, 200, 16)
    made = compose(query, query, ones, kept, None, False, 0.25, dropout=0.5)
    assert made.std() > 0.01 and abs(made.mean() - 1) < 0.1  # without dropout each would be 1


@pytest.mark.parametrize("name", ["the zoo's ViT", "BERT, padded", "GPT-2"])
def test_gradients_flow_and_are_those_of_attention_to_all_where_all_is_kept(name, monkeypatch):
    monkeypatch.setattr(attention, "is_all", lambda key, keeping: False)
    model, args, kwargs = MODELS[name]()
    inputs = Inputs(args, kwargs)
    made = sparse(model, inputs, Keeping("topk", 1.0))
    for one in (model, made):
        seen_tokens(kwargs, inputs.clone()(one)).square().mean().backward()
    for (layer_name, weight), other in zip(model.named_parameters(), made.parameters(), strict=True):
        if weight.grad is not None:
            torch.testing.assert_close(other.grad, weight.grad, rtol=1e-3, atol=1e-5, msg=layer_name)


@pytest.mark.parametrize("name", ["the zoo's ViT", "the zoo's BERT, padded", "torch's layer, causal", "BERT", "GPT-2"])
def test_it_compiles_whole_and_exports(name):
    model, args, kwargs = MODELS[name]()
    made = sparse(model, Inputs(args, kwargs), Keeping("topk", 0.5))
    with torch.no_grad():
        wanted = seen_tokens({}, made(*args, **kwargs))
        compiled = torch.compile(made, fullgraph=True, backend="eager")
        assert output_error(wanted, seen_tokens({}, compiled(*args, **kwargs)))[0] < 1e-5
        program = torch.export.export(made, args, kwargs)
        assert output_error(wanted, seen_tokens({}, program.module()(*args, **kwargs)))[0] < 1e-5
        assert not [node for node in program.graph.nodes if "paifuser" in str(node.target)]  # any runtime can run it


def test_copies_and_pickles_attend_to_the_same():
    model, args, _ = sight()
    made = sparse(model, Inputs(args), Keeping("block", 0.4))
    with torch.no_grad():
        for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            torch.testing.assert_close(other(*args), made(*args), rtol=0, atol=0)


def test_batch_and_length_may_change():
    model, _, _ = text()
    made = {kind: sparse(model, Inputs((torch.randint(0, 50, (2, 200)),)), Keeping(kind, 0.5)) for kind in KINDS}
    with torch.no_grad():
        for kind, one in made.items():
            assert one(torch.randint(0, 50, (3, 130)))["last_hidden_state"].shape == (3, 130, 32)
            short = torch.randint(0, 50, (1, 60))
            assert output_error(model(short), one(short))[0] < 1e-6, kind  # one block is all there is
        with pytest.warns(
            UserWarning, match="Lists of blocks for 2 heads of 256 tokens do not fit 2 heads of 257; this layer attends"
        ):
            attention.attend(*torch.randn(3, 1, 2, 257, 16), keeping=Keeping("block", 2), fixed=torch.zeros(2, 4, 2).int())


# The step.


@pytest.fixture
def times(monkeypatch):
    """What the timing says: milliseconds before and after."""
    said = {"before": 2.0, "after": 1.0}
    monkeypatch.setattr(judging, "compare_ms", lambda before, after, device, seconds: (said["before"], said["after"]))
    return said


@pytest.fixture
def work():
    model, args, _ = sight()
    return lab.Workload(model, args[0], name="sight")


def with_attention(work, **options):
    return lab.apply(work, lab.Recipe([{"attention": options}]))


def test_the_step_changes_every_layer_that_gains_and_says_by_how_much(work, times):
    variant = with_attention(work, keep=0.4)
    assert list(variant.remembered[0]["sparse"]) == ["blocks.0.attention", "blocks.1.attention"]
    assert variant.notes[0].startswith("'blocks.0.attention' attends to 40% of the keys, 0.")
    assert variant.notes[0].endswith("away; 2 ms become 1 ms in its attention")
    assert variant.reports[0].relative_error > 1e-4 and variant.recipe.label == "attention to 40% of the keys (topk)"
    assert weights_hash(variant.module) == weights_hash(work.model)


def test_what_would_be_slower_stays_and_that_is_said(work, times):
    times["after"] = 2.0
    variant = with_attention(work, keep=0.4)
    assert variant.reports[0].relative_error == 0 and not variant.remembered[0]["sparse"]
    assert variant.notes[0] == (
        "'blocks.0.attention' attends to all keys: 40% of the keys are not faster; 2 ms become 2 ms in its attention"
    )
    assert with_attention(work, keep=0.4, even_if_slower=True).reports[0].relative_error > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_folder_attends_as_it_did(work, times, kind, tmp_path):
    variant = with_attention(work, kind=kind, keep=2)
    variant.save(tmp_path / "made")
    times["after"] = 99.0  # nothing is timed again
    loaded = lab.Variant.load(tmp_path / "made", work)
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(*work.inputs.args), variant.model(*work.inputs.args), rtol=0, atol=0)


def test_a_folder_of_another_model_says_which_layer_is_missing(work, times, tmp_path):
    with_attention(work, keep=0.4).save(tmp_path / "made")
    other = lab.Workload(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 5)), work.inputs.args[0])
    with pytest.raises(FileError, match=r"there is no layer 'blocks\.0\.attention', which attends otherwise"):
        lab.Variant.load(tmp_path / "made", other)


def test_layers_are_picked_and_protected(work, times):
    assert list(with_attention(work, keep=0.4, layers=["blocks.1*"]).remembered[0]["sparse"]) == ["blocks.1.attention"]
    assert list(with_attention(work, keep=0.4, protect=["blocks.0"]).remembered[0]["sparse"]) == ["blocks.1.attention"]


def test_a_newer_step_takes_the_place_of_one_of_its_kind_or_for_its_layers():
    recipe = lab.Recipe([{"attention": {"keep": 0.5}}])
    assert recipe.with_step({"attention": {"keep": 0.25, "layers": ["a"]}}).label == "attention to 25% of the keys (topk)"
    assert recipe.with_step({"attention": {"kind": "block", "keep": 0.25}}).label == "attention to 25% of the keys (block)"
    assert len(recipe.with_step({"attention": {"kind": "window", "layers": ["b"], "keep": 0.25}})) == 2
    text = recipe.with_step({"attention": {"kind": "window", "layers": ["b"], "keep": 4}}).to_text()
    assert "kind: window" in text and lab.Recipe.from_text(text).to_text() == text


def test_a_later_step_says_anew_what_a_layer_attends_to(work, times):
    once = with_attention(work, kind="window", keep=2)
    steps = [{"attention": {"kind": "topk", "keep": 0.4}}, {"attention": {"kind": "window", "keep": 2, "layers": ["blocks.*"]}}]
    twice = lab.apply(work, lab.Recipe(steps))
    with torch.no_grad():
        torch.testing.assert_close(twice.model(*work.inputs.args), once.model(*work.inputs.args), rtol=0, atol=0)


class Shared(nn.Module):
    """Two heads of queries, one of keys, which torch repeats by itself."""

    def forward(self, x):
        query = x.unflatten(2, (2, 16)).transpose(1, 2)
        key = x[:, None, :, :16]
        return F.scaled_dot_product_attention(query, key, key).transpose(1, 2).flatten(2)


class Twice(nn.Module):
    """Attends to every second token, and to all."""

    def forward(self, x):
        query = x.unflatten(2, (2, 16)).transpose(1, 2)
        made = [F.scaled_dot_product_attention(query, one, one) for one in (query[:, :, ::2], query)]
        return sum(made).transpose(1, 2).flatten(2)


def of(*layers):
    return lab.Workload(nn.Sequential(nn.LayerNorm(32), *layers).eval(), torch.randn(2, 200, 32), name="small")


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_whose_heads_share_keys_is_changed(kind, times):
    work = of(Shared())
    variant = with_attention(work, kind=kind, keep=2)
    assert list(variant.remembered[0]["sparse"]) == ["1"] and 1e-4 < variant.reports[0].relative_error < 1
    assert lab.attention_cost(work, kind=kind, keeps=(0.5,), seconds=0.1).errors[0] > 1e-4


def test_a_layer_that_attends_to_several_lengths_keeps_no_list_and_the_others_do(times):
    variant = with_attention(of(Twice(), Shared()), kind="block", keep=2)
    assert list(variant.remembered[0]["sparse"]) == ["2"]
    assert "'1' stays: it attends to keys of several lengths, which kind block has one list for; take kind topk or window" in (
        variant.notes
    )


def test_a_layer_is_judged_by_all_of_its_calls(times):
    work = of(Twice())
    calls = find_attention(work.model, work.inputs).able["1"]
    found = judging.judge_sparse({"1": calls}, Keeping("topk", 2), {"1": None})["1"]
    errors = [judging.error_of(call, Keeping("topk", 2), None) for call in calls]
    assert errors[0] == 0 < errors[1] == found.error  # two blocks are all of the first call
    assert (found.before_ms, found.after_ms) == (4.0, 2.0)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # torch's own encoder, as it was
def test_zeros_that_torch_put_at_the_padding_are_told_where_they_go(times):
    model, args, kwargs = encoder()
    padded, whole = (lab.Workload(model, {"src": args[0], **one}, name="encoder") for one in (kwargs, {}))
    variant = with_attention(padded, keep=2)
    assert variant.notes[-1].startswith("torch's encoder answered 0 at the padding, and answers something else there now")
    assert not any("padding" in note for note in with_attention(whole, keep=2).notes)


MISTAKES = {
    "keep is no number": ({"keep": True}, RecipeError, "keep = True: it should be a number, such as 0.25 for a quarter"),
    "all is protected": (
        {"keep": 0.5, "protect": ["*"]},
        StepError,
        "every layer that could attend otherwise is protected; protect fewer, or leave the step out",
    ),
    "keep is none": ({"keep": 0}, RecipeError, "keep = 0"),
    "keep is between": ({"keep": 1.5}, RecipeError, "a share up to 1, or a whole number of blocks of 64 keys from 2 on"),
    "block without keep": (
        {"kind": "block"},
        RecipeError,
        "kind block needs a keep, such as keep: 0.25 for a quarter of the keys",
    ),
    "window without keep": ({"kind": "window"}, StepError, "since there is no Swin in it; say how many with keep"),
    "no such kind": ({"kind": "near", "keep": 1}, RecipeError, "it should be 'window', 'topk' or 'block'"),
    "no such option": ({"keep": 1, "share": 1}, RecipeError, "no option 'share'; it has why, kind, keep, layers"),
    "does not attend": (
        {"keep": 0.5, "layers": ["head"]},
        StepError,
        "'head' does not attend; the layers that can are blocks.0.att",
    ),
    "no such layer": ({"keep": 0.5, "layers": ["bolcks.*"]}, RecipeError, "pattern 'bolcks.\\*' matches no layer"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_sentence(name, work):
    options, kind, sentence = MISTAKES[name]
    with pytest.raises(kind, match=sentence):
        with_attention(work, **options)


def test_a_model_without_attention_or_with_too_little_says_so():
    line = lab.Workload(nn.Linear(4, 4), torch.randn(2, 4), name="line")
    with pytest.raises(StepError, match="no layer of it calls torch's scaled_dot_product_attention"):
        with_attention(line, keep=0.5)
    with pytest.raises(StepError, match=r"'blocks\.0\.attention': 17 keys are one block of 64"):
        with_attention(lab.load("vit-s-tiny"), keep=0.5)
    asked = lab.Workload(Attended(batch_first=True), {"x": torch.randn(2, 200, 32), "need_weights": True})
    with pytest.raises(StepError, match="asked for the weights of its attention; call it with need_weights=False"):
        with_attention(asked, keep=0.5)


def test_whoever_stops_it_changes_nothing(work, times):
    recipe = lab.Recipe([{"attention": {"keep": 0.4}}])
    with pytest.raises(StoppedError, match="while layers were timed; nothing was changed"):
        lab.apply(work, recipe, should_stop=lambda: True)


# What it costs.


def test_what_it_costs_is_judged_share_by_share(work):
    cost = lab.attention_cost(work, keeps=(0.25, 1, 0.5), seconds=0.1)
    assert cost.keeps == (1.0, 0.5, 0.25) and cost.kind == "topk"
    assert cost.errors[0] == 0 < cost.errors[1] < cost.errors[2]
    assert [one.layer for one in cost.sparse_layers] == ["blocks.0.attention", "blocks.1.attention"]
    first = cost.layers[0]
    assert (first.heads, first.queries, first.keys, first.is_causal) == (2, 257, 257, False)
    assert first.errors[0] == 0 < first.errors[1] < first.errors[2]
    assert len(cost.latency_ms) == 3 and cost.dense_ms > 0 and 0 < first.share < 1
    variant = with_attention(work, keep=0.25, even_if_slower=True)
    assert variant.reports[0].relative_error == pytest.approx(cost.errors[2], rel=1e-3)


def test_what_attends_to_less_already_is_held_against_attention_to_all(work):
    variant = with_attention(work, keep=0.25, even_if_slower=True)
    cost = lab.attention_cost(variant, keeps=(1.0, 0.25), seconds=0.1)
    assert cost.errors == lab.attention_cost(work, keeps=(1.0, 0.25), seconds=0.1).errors
    assert cost.errors[0] == 0 < cost.errors[1]
    assert variant.module.get_submodule("blocks.0.attention").keeping.keep == 0.25  # and stays as it is


def test_the_metric_is_taken_where_there_is_one(work):
    def largest(predict, data):
        return sum(float(predict(batch).max()) for batch, _ in data)

    measured = lab.Workload(work.model, work.inputs, name="sight", test=[(work.inputs.args[0], None)], metric=largest)
    cost = lab.attention_cost(measured, keeps=(1.0, 0.25), seconds=0.1)
    assert cost.metric == "largest" and cost.values[0] == pytest.approx(cost.dense_value) != pytest.approx(cost.values[1])


def test_what_was_judged_before_a_stop_is_kept(work):
    asked = iter([False, False, True, True])
    cost = lab.attention_cost(work, keeps=(1.0, 0.5, 0.25), should_stop=lambda: next(asked, True))
    assert cost.keeps == (1.0, 0.5) and not cost.latency_ms and "it was stopped" in cost.note
    with pytest.raises(KeyboardInterrupt):
        lab.attention_cost(work, should_stop=lambda: True)


def test_a_model_without_such_layers_has_no_cost():
    with pytest.raises(MeasureError, match=r"has no layer that can attend to a part of its keys: 'blocks\.0\.attention': 17"):
        lab.attention_cost(lab.load("vit-s-tiny"))
    with pytest.raises(MeasureError, match="Shares of the keys lie above 0 and up to 1"):
        lab.attention_cost(lab.load("vit-s-tiny"), keeps=(2.0,))


def test_a_session_looks_at_it_and_undoes_the_step_to_the_bit(work, times, monkeypatch):
    monkeypatch.setattr(room, "LOOK_S", 0.05)
    session = Session(work, rounds=1, seconds=0.1)
    try:
        session.look_at("attention", seconds=0.1, kind="window", keeps=(1.0, 0.4))
        state = session.wait(PATIENCE)
        assert state.attention_cost.kind == "window" and state.error is None and state.status == "idle"
        session.choose({"attention": {"keep": 0.4}})
        assert session.wait(PATIENCE).variant.reports[0].relative_error > 0
        session.undo()
        assert session.wait(PATIENCE).variant.weights_hash == weights_hash(work.model)
        with torch.no_grad():
            answer = session.state.variant.model(*work.inputs.args)
        torch.testing.assert_close(answer, work.model.eval()(*work.inputs.args).detach(), rtol=0, atol=0)
    finally:
        session.close()


def test_the_step_is_registered():
    assert step_class("attention").kind == "attention"
