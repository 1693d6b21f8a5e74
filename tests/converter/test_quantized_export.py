"""Exported quantized models: the file holds the quantization, and the engine's output equals the
live model's.
"""

from __future__ import annotations

import copy
from functools import cache

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.converter import export_onnx
from paifuser_lab.quantization.layers.weights_only import WeightsOnly
from tests.support.engines import EXPORTED
from tests.support.models import Conv1D

# relative L2: an engine sometimes rounds a value between two steps to the other one
INT8_TOLERANCE = 0.02


class Mixed(nn.Module):
    """A convolution with its batch-norm, a residual sum, a depthwise convolution and two linear
    layers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.wide, self.head = nn.Linear(16, 32), nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(images)))
        x = x + F.relu(self.deep(x))
        return self.head(F.relu(self.wide(x.mean((2, 3)))))


def mixed() -> Workload:
    torch.manual_seed(0)
    work = Workload(Mixed(), torch.randn(2, 3, 16, 16))
    work.model.norm.running_var.uniform_(0.5, 2)
    return work


LAYERS = {"head": "int4-weights", "wide": "int8-weights", "stem": "int8", "deep": "int8"}


def error(output: Tensor, expected: Tensor) -> float:
    return float((output - expected).detach().norm() / expected.detach().norm())


@pytest.mark.parametrize("engine", EXPORTED)
@pytest.mark.parametrize(
    "options", [{"default": "int8"}, {"layers": LAYERS}], ids=["int8", "mixed"]
)
def test_an_engines_output_equals_the_live_models(engine, options):
    work = mixed()
    live = lab.apply(work, Recipe([{"precision": options}]))
    exported = lab.apply(
        work, Recipe([{"precision": options}, {"backend": {"name": engine, "threads": 1}}])
    )
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert error(exported.model(images), live.model(images)) < INT8_TOLERANCE
        assert error(live.model(images), work.model(images)) > 1e-4, "something was rounded"


def test_the_file_holds_quantizers_and_integers(tmp_path):
    work = mixed()
    variant = lab.apply(
        work, Recipe([{"precision": {"default": "int8", "layers": {"wide": "int8-weights"}}}])
    )
    export_onnx(variant.module, work.inputs.clone(), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("QuantizeLinear") == 4, "the input of each int8 layer, and of the sum"
    assert kinds.count("DequantizeLinear") == 4 + 4 + 1, (
        "these inputs, every layer's weight, and the int8 linear layer's bias"
    )
    weights = [tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8]
    assert sorted(tuple(weight.dims) for weight in weights if len(weight.dims) > 1) == [
        (5, 32),
        (16, 1, 3, 3),
        (16, 3, 3, 3),
        (32, 16),
    ]


INT4 = {"precision": {"default": "int4-weights"}}
FP32_TOLERANCE = 1e-5  # relative L2: sums in another order
BF16_TOLERANCE = 1e-2  # of one live layer, which multiplies few rows in bf16


class EmbeddingAndConvolutions(nn.Module):
    """An embedding, a convolution and a transposed one, whose weights no exporter folds
    away.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(300, 65)
        self.deep, self.up = nn.Conv1d(65, 128, 3), nn.ConvTranspose1d(128, 96, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.up(self.deep(self.table(ids).transpose(1, 2)))


# layers behind each other: no whole groups, an embedding's width and a wider one, without a bias,
# less than a group
SIZES = [
    nn.Linear(1000, 130), nn.Linear(130, 768), nn.Linear(768, 3072, bias=False),
    nn.Linear(3072, 7), nn.Linear(7, 3),
]  # fmt: skip


@cache
def rounded(name: str) -> tuple[Workload, lab.Variant]:
    """A workload and its variant in int4; both engines share them, and so the exported file."""
    torch.manual_seed(0)
    if name == "sizes":
        work = Workload(nn.Sequential(*SIZES), torch.randn(2, 20, 1000))
    elif name == "few rows":
        work = Workload(nn.Sequential(nn.Linear(768, 128)), torch.randn(1, 768))
    elif name == "places":
        work = Workload(EmbeddingAndConvolutions(), torch.randint(0, 300, (2, 9)))
    else:
        work = lab.load(name)
    return work, lab.apply(work, Recipe([INT4]))


def without_bf16(variant: lab.Variant) -> nn.Module:
    """A copy of the live model without its rounding of few rows to bf16: exported files multiply in
    fp32.
    """
    model = copy.deepcopy(variant.module)
    for layer in model.modules():
        if isinstance(layer, WeightsOnly):
            layer.few_rows = 0
    return model


def in_engine(work: Workload, engine: str) -> nn.Module:
    return lab.apply(work, Recipe([INT4, {"backend": {"name": engine, "threads": 1}}])).model


@pytest.mark.parametrize("engine", EXPORTED)
@pytest.mark.parametrize("name", ["sizes", "few rows", "places"])
def test_int4_layers_of_real_sizes_give_the_same_output_in_an_engine(engine, name):
    work, live = rounded(name)
    (inputs,) = work.inputs.args
    exported = in_engine(work, engine)
    with torch.no_grad():
        output = exported(inputs)
        assert error(output, live.model(inputs)) < (
            BF16_TOLERANCE if name == "few rows" else FP32_TOLERANCE
        )
        assert error(output, without_bf16(live)(inputs)) < FP32_TOLERANCE
        assert error(output, work.model(inputs)) > 0.01, "something was rounded"
        if name == "sizes":
            other = torch.randn(3, 20, 1000)
            assert error(exported(other), live.model(other)) < FP32_TOLERANCE, (
                "the batch is dynamic"
            )


@pytest.mark.parametrize("engine", EXPORTED)
@pytest.mark.parametrize("name", ["bert-base-tiny", "vit-s-tiny"])
def test_whole_models_in_int4_give_the_same_output_in_an_engine(engine, name):
    work, live = rounded(name)
    exported = in_engine(work, engine)
    with torch.no_grad():
        outputs = tree_leaves(work.inputs.clone()(exported))
        expected = tree_leaves(work.inputs.clone()(live.model))
        exact = tree_leaves(work.inputs.clone()(without_bf16(live)))
    assert all(error(output, one) < 1e-4 for output, one in zip(outputs, exact, strict=True))
    assert all(error(output, one) < 0.03 for output, one in zip(outputs, expected, strict=True)), (
        "bf16, layer after layer"
    )


class Transposed(nn.Module):
    """A linear layer whose weight is transposed, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Conv1D(48, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens)


def test_int4_linear_layers_are_exported_as_one_operator_each_and_the_model_is_unchanged(
    tmp_path,
):
    model = nn.Sequential(nn.Linear(128, 64), nn.GELU(), Transposed(), nn.Linear(48, 5))
    work = Workload(model, torch.randn(3, 128))
    variant = lab.apply(work, Recipe([INT4]))
    before = [name for name, _ in variant.module.named_buffers()]
    export_onnx(variant.module, work.inputs.clone(), tmp_path / "model.onnx")
    assert (
        [name for name, _ in variant.module.named_buffers()]
        == before
        == list(variant.module.state_dict())
    )
    graph = onnx.load(tmp_path / "model.onnx").graph
    operators = [node for node in graph.node if node.op_type == "MatMulNBits"]
    assert [node.domain for node in operators] == ["com.microsoft"] * 3
    sizes = [{attribute.name: attribute.i for attribute in node.attribute} for node in operators]
    assert sizes[1] == {"K": 64, "N": 48, "bits": 4, "block_size": 32}
    shapes = [
        tuple(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.UINT8
    ]
    assert sorted(shapes) == [(5, 2, 16), (48, 2, 16), (64, 4, 16)]
    assert {node.op_type for node in graph.node} <= {"MatMulNBits", "Add", "Gelu"}, (
        "no weight is unpacked"
    )
