"""Swin's attention in one pass: the same output, for any image, shift and library."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.attention.windows import KeptBias, is_fused, is_windowed, make_fused
from paifuser_lab.errors import StepError
from paifuser_lab.measure import output_error
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.zoo.swin import Block, Swin

pytestmark = pytest.mark.usefixtures("one_thread")


def of_the_zoo():
    model = Swin(side=112, width=16, depths=(2, 2), heads=(1, 2), window=7, classes=5).eval()
    return model, torch.randn(2, 3, 112, 112)


def of_transformers(size=112, **options):
    transformers = pytest.importorskip("transformers")
    shape = {
        "image_size": size,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [1, 2],
        "window_size": 7,
    }
    model = transformers.SwinModel(transformers.SwinConfig(**shape, **options)).eval()
    for name, weight in model.named_parameters():
        if "bias_table" in name:
            nn.init.normal_(weight)
    return model, torch.randn(2, 3, size, size)


MODELS = {
    "zoo": of_the_zoo,
    "transformers": of_transformers,
    "transformers, padded": lambda: of_transformers(size=100),
}


def windowed(model):
    return [name for name, module in model.named_modules() if is_windowed(module)]


def fused(model):
    fused_model = copy.deepcopy(model)
    for name in windowed(model):
        make_fused(fused_model, name)
    assert sum(map(is_fused, fused_model.modules())) == 4
    return fused_model


def output_of(model, images):
    output = model(images)
    return output if isinstance(output, torch.Tensor) else output.last_hidden_state


@pytest.mark.parametrize("name", MODELS)
def test_one_pass_has_the_same_output_and_gradients(name):
    model, images = MODELS[name]()
    fused_model = fused(model)
    assert output_error(output_of(model, images), output_of(fused_model, images))[0] < 1e-5
    assert fused_model.state_dict().keys() == model.state_dict().keys() and weights_hash(
        fused_model
    ) == weights_hash(model)
    for module in (model, fused_model):
        output_of(module, images).square().mean().backward()
    for (layer, weight), other in zip(
        model.named_parameters(), fused_model.parameters(), strict=True
    ):
        if weight.grad is not None:
            torch.testing.assert_close(other.grad, weight.grad, rtol=1e-3, atol=1e-6, msg=layer)


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(1, 3),
    windows=st.integers(2, 4),
    heads=st.integers(1, 3),
    is_shifted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_output_of_any_block_is_unchanged(batch, windows, heads, is_shifted, seed):
    torch.manual_seed(seed)
    block = Block(16 * heads, heads, side=7 * windows, window=7, is_shifted=is_shifted).eval()
    holder = nn.Sequential(copy.deepcopy(block))
    make_fused(holder, "0")
    image = torch.randn(batch, 7 * windows, 7 * windows, 16 * heads)
    with torch.no_grad():
        torch.testing.assert_close(holder(image), block(image), rtol=1e-4, atol=1e-5)


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_queries_keys_and_values_are_computed_once_on_a_gpu_in_any_format(dtype, monkeypatch):
    holder = nn.Sequential(Block(16, 1, side=14, window=7, is_shifted=False).to(dtype))
    make_fused(holder, "0")
    computed, fast = [], []

    def attend(qkv, *arguments, **options):
        fast.append(qkv.dtype)
        return qkv[:, :, :, 0].flatten(3)

    monkeypatch.setattr("paifuser_lab.attention.windows.attend_windows", attend)
    holder[0].attention.qkv.register_forward_hook(lambda *_: computed.append(1))
    image = torch.randn(1, 14, 14, 16, dtype=dtype).as_subclass(OnGpu)
    with torch.no_grad():
        assert holder[0].attended(image, 7, 0).shape == image.shape
    assert len(computed) == 1 and fast == [dtype] * (dtype == torch.bfloat16)


def test_a_bias_that_changes_is_seen():
    model, images = of_the_zoo()
    fused_model = fused(model)
    with torch.no_grad():
        output_of(fused_model, images)
        for module in (model, fused_model):
            module.stages[0][1].attention.position_bias.add_(1.0 * torch.arange(169)[:, None])
        assert output_error(output_of(model, images), output_of(fused_model, images))[0] < 1e-5
        for module in (model, fused_model):
            module.stages[0][1].attention.position_bias.data = torch.linspace(-3, 3, 169)[:, None]
        assert output_error(output_of(model, images), output_of(fused_model, images))[0] < 1e-5
        fused_model.half().float()
        assert output_error(output_of(model, images), output_of(fused_model, images))[0] < 1e-2
        small = images[
            :1, :, :56
        ]  # of another height and batch, which the block itself takes as well
        tokens = fused_model.stages[0](
            fused_model.patch_norm(fused_model.patches(small).permute(0, 2, 3, 1))
        )
        assert tokens.shape == (1, 14, 28, 16)


@pytest.mark.parametrize("name", ["zoo", "transformers"])
def test_copies_pickles_and_compiled_models_have_the_same_output(name):
    model, images = MODELS[name]()
    fused_model = fused(model)
    with torch.no_grad():
        expected = output_of(fused_model, images)
        for other in (copy.deepcopy(fused_model), pickle.loads(pickle.dumps(fused_model))):
            torch.testing.assert_close(output_of(other, images), expected, rtol=0, atol=0)
        compiled = torch.compile(fused_model, fullgraph=True, backend="eager")
        assert output_error(expected, output_of(compiled, images))[0] < 1e-5
        program = torch.export.export(fused_model, (images,))
        assert output_error(expected, output_of(program.module(), images))[0] < 1e-5


def test_a_request_for_attention_weights_is_refused():
    model, images = of_transformers(attn_implementation="eager")
    fused_model = fused(model)
    with pytest.raises(
        StepError, match="no weights to output for output_attentions; leave step 'attention' out"
    ):
        fused_model(images, output_attentions=True)
    fused_model.config.output_attentions = True
    with pytest.raises(StepError, match="output_attentions"):
        fused_model(images)


def test_a_window_that_does_not_fit_the_biases_is_refused():
    block = nn.Sequential(Block(16, 1, side=14, window=7, is_shifted=False).eval())
    make_fused(block, "0")
    block[0].window = 2
    with pytest.raises(StepError, match="a window of 2 does not fit the 169 biases"):
        block(torch.randn(1, 14, 14, 16))


# The step.


@pytest.fixture
def work():
    model, images = of_the_zoo()
    return lab.Workload(model, images, name="swin")


def with_windows(work, **options):
    return lab.apply(work, lab.Recipe([{"attention": {"kind": "window", **options}}]))


def test_the_step_lets_each_block_that_gains_attend_in_one_pass(work, times):
    variant = with_windows(work)
    assert variant.remembered[0] == {
        "windows": ["stages.0.0", "stages.0.1", "stages.1.1", "stages.1.2"],
        "sparse": {},
    }
    assert re.fullmatch(
        r"'stages\.0\.0' attends in one pass, (0|\d(\.\d)?e-0[78]) away; 2 ms become 1 ms in this "
        r"block",
        variant.notes[0],
    )
    assert (
        variant.reports[0].relative_error < 1e-5 and variant.recipe.label == "attention in windows"
    )
    assert len(variant.notes) == 4


def test_a_block_that_is_not_faster_stays_unless_requested(work, times):
    times["after"] = 2.0
    assert (
        with_windows(work).notes[0]
        == "'stages.0.0' stays: in one pass it is not faster; 2 ms become 2 ms in this block"
    )
    assert with_windows(work).remembered[0]["windows"] == []
    assert len(with_windows(work, even_if_slower=True).remembered[0]["windows"]) == 4


def test_a_block_whose_output_differs_stays_and_is_reported(work, times, monkeypatch):
    monkeypatch.setattr(
        "paifuser_lab.attention.windows.mask",
        lambda height, width, window, shift, like: torch.zeros(height * width // 49, 1, 49, 49),
    )
    variant = with_windows(work)
    assert variant.remembered[0]["windows"] == [
        "stages.0.0",
        "stages.1.1",
    ]  # those that are not shifted
    assert any("'stages.0.1' stays: in one pass its output is" in note for note in variant.notes)


def test_blocks_are_picked_by_name_or_by_their_attention(work, times):
    assert with_windows(work, layers=["stages.0.1"]).remembered[0]["windows"] == ["stages.0.1"]
    assert with_windows(work, layers=["stages.1.*.attention"]).remembered[0]["windows"] == [
        "stages.1.1",
        "stages.1.2",
    ]
    assert with_windows(work, protect=["stages.0"]).remembered[0]["windows"] == [
        "stages.1.1",
        "stages.1.2",
    ]


def test_a_saved_folder_attends_in_one_pass_again(work, times, tmp_path):
    variant = with_windows(work)
    variant.save(tmp_path / "made")
    times["after"] = 99.0
    loaded = lab.Variant.load(tmp_path / "made", work)
    assert sum(map(is_fused, loaded.module.modules())) == 4
    with torch.no_grad():
        torch.testing.assert_close(
            loaded.model(*work.inputs.args), variant.model(*work.inputs.args), rtol=0, atol=0
        )


def test_a_part_of_the_keys_is_not_for_windows(work):
    with pytest.raises(
        StepError,
        match="it attends within windows of 49 tokens, which kind window runs in one pass",
    ):
        lab.apply(work, lab.Recipe([{"attention": {"keep": 0.5}}]))


def test_other_steps_come_after_it(work, times):
    steps = [{"attention": {"kind": "window"}}, {"precision": {"default": "bf16"}}]
    variant = lab.apply(work, lab.Recipe(steps))
    assert variant.reports[-1].relative_error < 0.1
    assert any(is_fused(module) for module in variant.module.modules())


def test_cached_biases_are_recomputed_after_a_step_that_torch_does_not_count():
    table, kept = nn.Parameter(torch.randn(49, 2)), KeptBias()
    call = lambda: kept(table, (8, 8), 4, 2, torch.float32)
    with torch.inference_mode():
        before = call()
    assert not before.is_inference() and not before.requires_grad
    call().sum().backward()
    torch.optim.SGD([table], lr=1.0, fused=True).step()
    with torch.no_grad():
        assert torch.equal(
            call(), KeptBias()(table, (8, 8), 4, 2, torch.float32)
        ) and not torch.equal(call(), before)
