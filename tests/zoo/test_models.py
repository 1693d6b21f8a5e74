"""Models by name: their size, reproducibility, execution and export."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from paifuser_lab import zoo
from paifuser_lab.errors import UnknownModelError
from paifuser_lab.model.weights import weights_hash

TINY = [name for name in zoo.names() if name.endswith("-tiny") and "digits" not in name]
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "mobilenetv2": 3_504_872,
    "convnext-t": 28_589_128,
    "vit-s": 22_050_664,
    "swin-t": 28_288_354,
    "bert-base": 109_482_240,
}


def run(parts: zoo.Parts) -> list[torch.Tensor]:
    args, kwargs = arguments(parts)
    return leaves(parts.model(*args, **kwargs))


def arguments(parts: zoo.Parts) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(parts.inputs, dict):
        return (), parts.inputs
    return (parts.inputs if isinstance(parts.inputs, tuple) else (parts.inputs,)), {}


def leaves(output: Any) -> list[torch.Tensor]:
    return list(output.values()) if isinstance(output, dict) else [output]


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_full_models_have_the_well_known_number_of_parameters(name: str, count: int) -> None:
    with torch.device("meta"):
        model = zoo.build(name).model
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("name", ["yolo", "unet", "segnet", "segvit"])
def test_models_without_a_paper_are_small(name: str) -> None:
    with torch.device("meta"):
        model = zoo.build(name).model
    assert 300_000 < sum(parameter.numel() for parameter in model.parameters()) < 10_000_000


@pytest.mark.parametrize("name", TINY)
def test_tiny_models_run_forward_and_backward(name: str) -> None:
    parts = zoo.build(name)
    assert not parts.model.training
    torch.stack([output.float().square().mean() for output in run(parts)]).sum().backward()
    without_gradient = [
        layer for layer, parameter in parts.model.named_parameters() if parameter.grad is None
    ]
    assert not without_gradient


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_outputs_are_of_the_batch_finite_and_of_reasonable_scale(
    name: str, precision: torch.dtype
) -> None:
    parts = zoo.build(name, batch=2)
    parts.model.to(precision)
    args, kwargs = arguments(parts)
    with torch.no_grad():
        outputs = leaves(parts.model(*(value.to(precision) for value in args), **kwargs))
    for output in outputs:
        assert len(output) == 2 and output.isfinite().all()
        assert 0.01 < output.float().std() < 100


@pytest.mark.parametrize("name", TINY)
def test_two_builds_are_equal_to_the_bit(name: str) -> None:
    first, second = zoo.build(name), zoo.build(name)
    assert weights_hash(first.model) == weights_hash(second.model)
    for inputs, other in zip(
        *(torch.utils._pytree.tree_leaves(parts.inputs) for parts in (first, second)), strict=True
    ):
        assert torch.equal(inputs, other)


def test_another_process_with_other_threads_builds_the_same_weights() -> None:
    code = (
        "import hashlib, torch; torch.set_num_threads({}); from paifuser_lab import zoo; digest = "
        "hashlib.sha256()\n"
        "for name in ('resnet18', 'swin-t-tiny'):\n"
        "    for value in zoo.build(name).model.state_dict().values(): "
        "digest.update(value.numpy().tobytes())\n"
        "print(digest.hexdigest())"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code.format(threads)], stdout=subprocess.PIPE, text=True
        )
        for threads in (1, 3)
    ]
    digests = [process.communicate()[0] for process in running]
    assert len(digests[0].strip()) == 64
    assert digests[0] == digests[1]


def test_another_seed_gives_other_weights_and_inputs() -> None:
    first, second = zoo.build("vit-s-tiny"), zoo.build("vit-s-tiny", seed=1)
    assert not torch.equal(
        first.model.get_parameter("head.weight"), second.model.get_parameter("head.weight")
    )
    assert isinstance(first.inputs, torch.Tensor)
    assert isinstance(second.inputs, torch.Tensor)
    assert not torch.equal(first.inputs, second.inputs)


def test_building_leaves_the_callers_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    zoo.build("resnet18-tiny", seed=7)
    assert torch.equal(before, torch.get_rng_state())


def test_batch_norms_are_away_from_the_identity() -> None:
    for module in zoo.build("resnet18-tiny").model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_mean.abs().max() > 0.01
            assert module.weight.std() > 0.01


def test_the_attention_mask_hides_some_tokens() -> None:
    parts = zoo.build("bert-base-tiny", batch=2)
    assert isinstance(parts.inputs, dict)
    mask = parts.inputs["attention_mask"]
    assert (mask.sum(dim=1) < mask.shape[1]).all()
    with torch.no_grad():
        padded = parts.model(**parts.inputs)["pooled"]
        other = parts.model(parts.inputs["input_ids"] + (1 - mask) * 5, mask)["pooled"]
        unmasked = parts.model(parts.inputs["input_ids"])["pooled"]
    assert torch.allclose(padded, other, atol=1e-5)
    assert not torch.allclose(padded, unmasked, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "nearest"), [("resnet19", "resnet18"), ("Swin_T", "swin-t"), ("bert", "bert-base")]
)
def test_an_unknown_name_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownModelError, match=f"did you mean .*'{nearest}'"):
        zoo.build(name)


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(UnknownModelError, match=r"choose one of resnet18, .*segvit-maps-256"):
        zoo.build("qqqq")


def test_every_full_model_has_a_tiny_version() -> None:
    assert {f"{name}-tiny" for name in PARAMETERS} < set(zoo.names())
    assert len(set(zoo.names())) == len(zoo.names())


@pytest.mark.parametrize("name", TINY)
def test_tiny_models_export(name: str) -> None:
    parts = zoo.build(name, batch=2)
    args, kwargs = arguments(parts)
    with torch.no_grad():
        program = torch.export.export(parts.model, args, kwargs, strict=False)
        for ours, theirs in zip(run(parts), leaves(program.module()(*args, **kwargs)), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_shifted_window_does_not_see_across_the_edge() -> None:
    from paifuser_lab.zoo.swin import _shift_mask

    mask = _shift_mask(4, 2, 1)
    assert mask.shape == (4, 4, 4)
    assert (mask[0] == 0).all()
    assert (mask[3] == 0).sum() == 4


def test_segvit_takes_images_of_every_size_and_distinguishes_positions() -> None:
    model = zoo.build("segvit-tiny").model
    flat = torch.zeros(1, 3, 32, 48)
    with torch.no_grad():
        scores = model(flat)
    assert scores.shape == (1, 7, 32, 48)
    patches = (
        scores.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3)[0].flatten(0, 1)
    )
    apart = torch.cdist(patches, patches) + torch.eye(len(patches))
    assert apart.min() > 1e-3
