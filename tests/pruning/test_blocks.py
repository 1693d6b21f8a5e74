"""Shorter networks: a model without a block has the same output as with zeros for the block's
weights, or the block stays and the reason is reported.
"""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.errors import StepError, StoppedError
from paifuser_lab.measure import output_error
from paifuser_lab.pruning.blocks import find_blocks
from paifuser_lab.steps import Draft
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Inputs
from tests.support.masking import gap
from tests.support.models import enliven, images
from tests.support.prune_zoo import architectures
from tests.support.prune_zoo.architecture import scattered

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread"),
]
EXACT = 1e-9
# one of each kind of block that passes its input on
RESIDUAL = {
    "residual",
    "bottleneck",
    "inverted residual",
    "gated halves",
    "OPT",
    "Llama",
    "T5 encoder",
    "ViT",
    "Swin",
    "ConvNeXt",
    "SegFormer",
}


WITHOUT = {"plain", "dense", "U-Net", "LSTM", "BERT", "attention, packed"}


def shortened(work: lab.Workload, **options) -> lab.Variant:
    return lab.apply(work, lab.Recipe([{"shorten": options}]))


def zeroed(model: nn.Module, *blocks: str) -> nn.Module:
    """The model with zeros in these blocks, and nowhere else."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for block in blocks:
            inside = copied.get_submodule(block)
            for name, value in (*inside.named_parameters(), *inside.named_buffers()):
                if (
                    not name.endswith(("running_var", "num_batches_tracked"))
                    and value.is_floating_point()
                ):
                    value.zero_()
    return copied


def removed_blocks(work: lab.Workload, variant: lab.Variant) -> list[str]:
    """The blocks that were removed: those whose parameters are missing."""
    left = dict(variant.module.named_parameters())
    return [
        block
        for block in find_blocks(work.model, work.inputs).innermost
        if not any(f"{block}." in name for name in left)
    ]


@pytest.mark.parametrize(
    "architecture",
    [entry for entry in architectures() if entry.name in RESIDUAL],
    ids=lambda entry: entry.name,
)
def test_a_shorter_model_equals_the_original_with_zeros(architecture):
    work = architecture.workload()
    before = copy.deepcopy(work.model.state_dict())
    variant = shortened(work, ratio=0.5)
    blocks = removed_blocks(work, variant)
    assert blocks
    assert gap(zeroed(work.model, *blocks), variant.module, work.inputs) < EXACT
    assert (
        gap(zeroed(work.model, *blocks), variant.module, Inputs.of(architecture.inputs())) < EXACT
    )
    assert all(torch.equal(before[name], value) for name, value in work.model.state_dict().items())


@pytest.mark.parametrize(
    "architecture",
    [entry for entry in architectures() if entry.name in WITHOUT],
    ids=lambda entry: entry.name,
)
def test_a_model_without_residual_blocks_is_refused_with_a_reason(architecture):
    with pytest.raises(
        StepError,
        match=(
            r"no block of it can be left out; layer '.+' \(\w+\): (with zeros|its input is|it did "
            r"not run)"
        ),
    ):
        shortened(architecture.workload(), ratio=0.5)


class Block(nn.Module):
    """A branch beside its input, in one of several ways."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.norm, self.last = (
            nn.Conv2d(width, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, width, 1),
        )
        self.scale, self.plain = (
            nn.Parameter(torch.ones(width, 1, 1)),
            nn.BatchNorm2d(width, affine=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        branch = self.last(torch.relu(self.norm(self.first(x))))
        match self.kind:
            case "added":
                return x + branch
            case "scaled":
                return x + branch * self.scale
            case "normalised":
                return x + self.plain(branch)
            case "rectified":
                return torch.relu(x + branch)
            case "squashed":
                return torch.tanh(x + branch)
        return branch


class Chain(nn.Module):
    """Blocks one after the other, behind a ReLU."""

    def __init__(self, kinds: list[str]) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = (
            nn.Conv2d(3, 4, 1),
            nn.Sequential(*(Block(kind, 4) for kind in kinds)),
            nn.Linear(4, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


CERTAIN = ["added", "scaled", "normalised"]
NEVER = ["squashed", "branch alone"]


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.lists(st.sampled_from([*CERTAIN, *NEVER, "rectified"]), min_size=1, max_size=5),
    ratio=st.sampled_from([0.3, 0.6, 0.9]),
)
def test_random_chains_are_shortened_exactly_by_the_requested_share(kinds: list[str], ratio: float):
    torch.manual_seed(0)
    work = lab.Workload(scattered(Chain(kinds)).eval(), torch.randn(2, 3, 5, 5))
    free = find_blocks(work.model, work.inputs).innermost
    certain = {f"blocks.{index}" for index, kind in enumerate(kinds) if kind in CERTAIN}
    assert certain <= set(free) and not any(kinds[int(block[7:])] in NEVER for block in free)
    count = int(ratio * len(free) + 0.5)
    if count == 0:
        with pytest.raises(
            StepError,
            match=r"no block of it can be left out|of which that share is none; ask for more",
        ):
            shortened(work, ratio=ratio)
        return
    variant = shortened(work, ratio=ratio)
    blocks = removed_blocks(work, variant)
    assert len(blocks) == count
    assert gap(zeroed(work.model, *blocks), variant.module, work.inputs) < EXACT


def chain(*kinds: str) -> lab.Workload:
    torch.manual_seed(0)
    return lab.Workload(scattered(Chain(list(kinds))).eval(), torch.randn(2, 3, 5, 5))


def test_the_least_important_block_goes_and_the_second_is_chosen_without_the_first():
    work = chain("added", "added", "added", "added")
    with torch.no_grad():
        work.model.blocks[2].last.weight *= 1e-3
        work.model.blocks[2].last.bias *= 1e-3
        for target, source in zip(
            work.model.blocks[1].parameters(), work.model.blocks[0].parameters(), strict=True
        ):
            target.copy_(source)
    variant = shortened(work, ratio=0.25)
    assert removed_blocks(work, variant) == ["blocks.2"]
    assert any(
        note.startswith("without 'blocks.2' as well the answer is") for note in variant.notes
    )
    two = shortened(work, ratio=0.5)
    errors = {}
    for other in ("blocks.0", "blocks.1", "blocks.3"):
        model = zeroed(work.model, "blocks.2", other)
        errors[other] = output_error(work.output(), work.inputs.clone()(model))[0]
    assert set(removed_blocks(work, two)) == {
        "blocks.2",
        min(errors, key=lambda block: errors[block]),
    }


def constants(*rows: tuple[float, float]) -> lab.Workload:
    """Blocks that each add a constant, which is visible in the output."""
    work = chain(*["added"] * len(rows))
    with torch.no_grad():
        work.model.head.weight.copy_(torch.eye(4)[:3])
        for block, row in zip(work.model.blocks, rows, strict=True):
            block.last.weight.zero_()
            block.last.bias.copy_(torch.tensor([*row, 0.0, 0.0]))
    return work


def test_blocks_that_cancel_each_other_are_removed_together():
    work = constants((1.0, 0.0), (0.0, 1.1), (-1.2, 0.0), (3.0, 3.0))
    assert removed_blocks(work, shortened(work, ratio=0.25)) == ["blocks.0"]
    assert removed_blocks(work, shortened(work, ratio=0.5)) == ["blocks.0", "blocks.2"]
    assert removed_blocks(work, shortened(work, ratio=0.5, layers=["blocks.0"])) == [
        "blocks.0",
        "blocks.2",
    ]


def test_a_block_whose_weights_another_block_shares_stays():
    work = chain("added", "added")
    work.model.blocks[1].last.weight = work.model.blocks[0].last.weight
    with pytest.raises(
        StepError,
        match=r"layer 'blocks\.0' \(Block\) cannot be left out: without it the output differs by",
    ):
        shortened(work, layers=["blocks.0"])


def test_the_search_for_the_least_important_block_can_be_stopped():
    with pytest.raises(StoppedError, match=r"was stopped after 0 of 2 blocks; nothing was changed"):
        lab.apply(
            chain("added", "added", "added", "added"),
            lab.Recipe([{"shorten": {"ratio": 0.5}}]),
            should_stop=lambda: True,
        )


def test_named_blocks_are_removed_and_others_stay_with_a_reason():
    work = lab.load("resnet18-tiny")
    variant = shortened(work, layers=["layer2.*", "layer4.1"])
    assert isinstance(variant.module.layer2[1], nn.Identity) and isinstance(
        variant.module.layer4[1], nn.Identity
    )
    assert gap(zeroed(work.model, "layer2.1", "layer4.1"), variant.module, work.inputs) < EXACT
    assert any(
        "'layer2.0' stays: its input is 1×8×16×16 and its output 1×16×8×8" in note
        for note in variant.notes
    )


def test_a_pattern_removes_a_whole_stage_and_named_blocks_count_for_the_ratio():
    work = lab.load("resnet18-tiny")
    assert isinstance(shortened(work, layers=["layer1"]).module.layer1, nn.Identity)
    both = shortened(work, layers=["layer1"], ratio=0.6)
    assert len(removed_blocks(work, both)) == 3
    assert removed_blocks(work, shortened(work, ratio=0.6, protect=["layer1.*", "layer2"])) == [
        "layer3.1",
        "layer4.1",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"layers": ["layer2.0"]},
            r"layer 'layer2\.0' \(BasicBlock\) cannot be left out: its input is 1×8×16×16 and "
            r"its output 1×16×8×8",
        ),
        (
            {"layers": ["fc"]},
            r"layer 'fc' \(Linear\) cannot be left out: its input is 1×64 and its output 1×10",
        ),
        (
            {"layers": ["layer1.0.relu1"]},
            r"layer 'layer1\.0\.relu1' \(ReLU\) cannot be left out: it has no weights",
        ),
        (
            {"layers": ["layer1.0.bn2"]},
            r"cannot be left out: with zeros for weights it does not return its input unchanged",
        ),
        (
            {"layers": ["layer1.1"], "protect": ["layer1.*"]},
            r"layer 'layer1\.1' \(BasicBlock\) cannot be left out: it is protected",
        ),
        ({"ratio": 0.01}, "it has 5 blocks that can go, of which that share is none; ask for more"),
        (
            {"ratio": 0.5, "protect": ["*"]},
            r"no block of it can be left out; 'layer1\.0': it is protected",
        ),
    ],
    ids=str,
)
def test_blocks_that_cannot_be_removed_are_reported_with_the_reason(options, message):
    work = lab.load("resnet18-tiny")
    with pytest.raises(StepError, match=message):
        shortened(work, **options)


class TupleBlocks(nn.Module):
    """Blocks that take keyword arguments, return a tuple, and have an attribute that the model
    reads.
    """

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.kind = nn.Linear(4, 4), "part"

        def forward(
            self, state: Tensor, scale: Tensor, cache: list | None = None
        ) -> tuple[Tensor, None, Tensor]:
            return state + self.line(state), None, scale

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.head = (
            nn.ModuleList([TupleBlocks.Part(), TupleBlocks.Part()]),
            nn.Linear(4, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        scale = x.mean(1, keepdim=True)
        for part in self.parts:
            assert part.kind == "part"
            x, _, scale = part(state=x, scale=scale, cache=None)
        return self.head(x * scale)


def test_the_replacement_is_called_and_returns_like_the_block():
    work = lab.Workload(scattered(TupleBlocks()).eval(), torch.randn(3, 4))
    variant = shortened(work, layers=["parts.0"])
    assert gap(zeroed(work.model, "parts.0"), variant.module, work.inputs) < EXACT
    state, scale = torch.randn(3, 4), torch.randn(3, 1)
    assert variant.module.parts[0](state, scale) == (state, None, scale)
    assert variant.module.parts[0](state, scale=scale) == (state, None, scale)
    assert copy.deepcopy(variant.module).parts[0].kind == "part"


class WeightReader(TupleBlocks):
    """The model reads a weight of a block."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.parts[0].line.bias.sum()


def test_a_block_whose_weight_the_model_reads_stays():
    work = lab.Workload(scattered(WeightReader()).eval(), torch.randn(3, 4))
    with pytest.raises(
        StepError,
        match=(
            r"layer 'parts\.0' \(Part\) cannot be left out: the model's code fails without "
            r"it"
        ),
    ):
        shortened(work, layers=["parts.0"])
    assert removed_blocks(work, shortened(work, ratio=0.5)) == ["parts.1"]


def test_a_cache_that_is_no_longer_written_to_is_reported():
    work = lab.load(
        "hf:llama",
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        vocab_size=128,
    )
    variant = shortened(work, layers=["layers.1"])
    assert any(
        "'layers.1' was given a DynamicCache, which nothing writes to in its place" in note
        for note in variant.notes
    )


def test_a_shortened_model_can_be_pruned_folded_and_rebuilt():
    work = lab.Workload(enliven(lab.load("resnet18-tiny").model), images(2, 32))
    steps = [{"shorten": {"layers": ["layer1.0", "layer3.1"]}}, {"prune": {"ratio": 0.5}}, "fold"]
    variant = lab.apply(work, lab.Recipe(steps))
    once = lab.apply(work, lab.Recipe(steps[:1]))
    assert sum(weight.numel() for weight in variant.module.parameters()) < 0.4 * sum(
        weight.numel() for weight in once.module.parameters()
    )
    draft = Draft(work, copy.deepcopy(work.model))
    step = Recipe(steps[:1]).steps[0]
    step.rebuild(draft, {"blocks": {"layer1.0": {}, "layer3.1": {}}})
    assert draft.module.state_dict().keys() == once.module.state_dict().keys()
    with pytest.raises(StepError, match=r"there is no block 'layer9\.0'"):
        step.rebuild(draft, {"blocks": {"layer9.0": {}}})


def test_later_layers_are_refit_for_a_removed_block_where_there_is_data():
    work = lab.load("resnet18-digits-tiny")
    plain, refit = (
        shortened(work, layers=["layer2.1", "layer3.1"], repair=repair) for repair in ([], None)
    )
    errors = [
        output_error(work.output(), work.inputs.clone()(variant.module))[0]
        for variant in (plain, refit)
    ]
    assert errors[1] < 0.5 * errors[0]
    assert work.evaluate(refit.model) > work.evaluate(plain.model)
    assert gap(zeroed(work.model, "layer2.1", "layer3.1"), plain.module, work.inputs) < EXACT
    same = dict(plain.module.named_parameters())
    assert all(
        torch.equal(value, same[name])
        for name, value in refit.module.named_parameters()
        if name.startswith("layer1")
    )


@pytest.mark.parametrize("name", ["int8", "int8-weights"])
@pytest.mark.parametrize(
    "options", [{"ratio": 0.5}, {"layers": ["layer1.0"]}], ids=["by ratio", "by name"]
)
def test_on_a_quantized_model_the_error_says_to_shorten_first(name, options):
    work = next(entry for entry in architectures() if entry.name == "residual").workload()
    block = find_blocks(work.model, work.inputs).innermost[0]
    options = options if "ratio" in options else {"layers": [block]}
    with pytest.raises(
        StepError, match=f"it is in {name}, and only .* put 'shorten' before precision and qat"
    ):
        lab.apply(work, lab.Recipe([{"precision": {"default": name}}, {"shorten": options}]))


def test_steps_added_one_by_one_join_their_blocks():
    recipe = lab.Recipe([{"shorten": {"layers": ["layer1.0"]}}]).with_step(
        {"shorten": {"layers": ["layer2.1"]}}
    )
    assert recipe == lab.Recipe([{"shorten": {"layers": ["layer1.0", "layer2.1"]}}])
    assert recipe.label == "shorten layer1.0, layer2.1"
