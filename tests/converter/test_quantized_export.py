"""A quantized model in another engine: the file holds the roundings, and the engine gives the same
numbers.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.converter import export_onnx
from paifuser_lab.errors import StepError
from paifuser_lab.quantization import saturates
from paifuser_lab.quantization.layers.weights_only import WeightsOnly
from paifuser_lab.variant import apply_recipe

SAME = 0.02  # relative L2: an engine rounds a value between two steps to the other one now and then


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
        seen = F.relu(self.norm(self.stem(images)))
        seen = seen + F.relu(self.deep(seen))
        return self.head(F.relu(self.wide(seen.mean((2, 3)))))


def mixed() -> Workload:
    torch.manual_seed(0)
    work = Workload(Mixed(), torch.randn(2, 3, 16, 16))
    work.model.norm.running_var.uniform_(0.5, 2)
    return work


LAYERS = {"head": "int4-weights", "wide": "int8-weights", "stem": "int8", "deep": "int8"}


def error(one: Tensor, other: Tensor) -> float:
    return float((one - other).detach().norm() / other.detach().norm())


@pytest.mark.parametrize(
    "engine",
    [
        "onnxruntime",
        pytest.param(
            "openvino",
            marks=pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed"),
        ),
    ],
)
@pytest.mark.skipif(
    saturates(), reason="without VNNI engines saturate, and what differs is refused"
)
@pytest.mark.parametrize(
    "options", [{"default": "int8"}, {"layers": LAYERS}], ids=["int8", "mixed"]
)
def test_an_engine_gives_the_same_numbers_as_the_live_model(engine, options):
    work = mixed()
    live = lab.apply(work, Recipe([{"precision": options}]))
    exported = lab.apply(
        work, Recipe([{"precision": options}, {"backend": {"name": engine, "threads": 1}}])
    )
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert error(exported.model(images), live.model(images)) < SAME
        assert error(live.model(images), work.model(images)) > 1e-4, "something was rounded"


def test_the_file_holds_the_roundings_and_whole_numbers(tmp_path):
    import onnx

    work = mixed()
    variant = lab.apply(
        work, Recipe([{"precision": {"default": "int8", "layers": {"wide": "int8-weights"}}}])
    )
    export_onnx(variant.module, work.inputs.clone(), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("QuantizeLinear") == 3, "what each of the int8 layers is given"
    assert kinds.count("DequantizeLinear") == 3 + 4 + 1, (
        "that again, every layer's weight, and the int8 linear layer's bias"
    )
    held = [one for one in graph.initializer if one.data_type == onnx.TensorProto.INT8]
    assert sorted(tuple(one.dims) for one in held if len(one.dims) > 1) == [
        (5, 32),
        (16, 1, 3, 3),
        (16, 3, 3, 3),
        (32, 16),
    ]


ENGINES = [
    "onnxruntime",
    pytest.param(
        "openvino",
        marks=pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed"),
    ),
]
INT4 = {"precision": {"default": "int4-weights"}}
FLOATS = 1e-5  # relative L2: sums in another order
FEW = 1e-2  # of one layer that multiplies few rows in bf16 when it is live


class Places(nn.Module):
    """An embedding, a convolution and a transposed one, with weights that no exporter folds
    away.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(300, 65)
        self.deep, self.up = nn.Conv1d(65, 128, 3), nn.ConvTranspose1d(128, 96, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.up(self.deep(self.table(ids).transpose(1, 2)))


LARGE = {
    "768×768": (nn.Linear(768, 768), (40, 768)),
    "3072×768": (nn.Linear(768, 3072, bias=False), (2, 30, 768)),
    "no whole groups": (nn.Linear(1000, 130), (40, 1000)),
    "less than a group": (nn.Linear(7, 3), (40, 7)),
    "few rows": (nn.Linear(768, 128), (1, 768)),
}


def with_weights_made(variant: lab.Variant) -> nn.Module:
    """The live model without its rounding of few rows to bf16: a file's products are in fp32."""
    for layer in variant.module.modules():
        if isinstance(layer, WeightsOnly):
            layer.few_rows = 0
    return variant.model


def in_engine(work: Workload, engine: str) -> nn.Module:
    return lab.apply(work, Recipe([INT4, {"backend": {"name": engine, "threads": 1}}])).model


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*LARGE, "places"])
def test_int4_of_real_sizes_gives_the_same_numbers_in_an_engine(engine, name):
    torch.manual_seed(0)
    layer, shape = LARGE.get(name, (None, None))
    inputs = torch.randint(0, 300, (2, 9)) if shape is None else torch.randn(shape)
    work = Workload(Places() if layer is None else nn.Sequential(layer), inputs)
    live, exported = lab.apply(work, Recipe([INT4])), in_engine(work, engine)
    with torch.no_grad():
        answer = exported(inputs)
        assert error(answer, live.model(inputs)) < (FEW if name == "few rows" else FLOATS)
        assert error(answer, with_weights_made(live)(inputs)) < FLOATS
        assert error(answer, work.model(inputs)) > 0.01, "something was rounded"
        if name == "less than a group":
            assert error(exported(inputs[:33]), live.model(inputs[:33])) < FLOATS, (
                "the batch is open"
            )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "name", ["bert-base-tiny", "vit-s-tiny", pytest.param("yolo-tiny", marks=pytest.mark.slow)]
)
def test_whole_models_in_int4_give_the_same_numbers_in_an_engine(engine, name):
    work = lab.load(name)
    live, exported = lab.apply(work, Recipe([INT4])), in_engine(work, engine)
    with torch.no_grad():
        answers = tree_leaves(work.inputs.clone()(exported))
        rounded = tree_leaves(work.inputs.clone()(live.model))
        exact = tree_leaves(work.inputs.clone()(with_weights_made(live)))
    assert all(error(one, other) < 1e-4 for one, other in zip(answers, exact, strict=True))
    assert all(error(one, other) < 0.03 for one, other in zip(answers, rounded, strict=True)), (
        "bf16, layer after layer"
    )


class Turned(nn.Module):
    """A linear layer whose weight is the other way round, as GPT-2's is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Conv1D(48, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens)


class Conv1D(nn.Module):
    """As transformers has it."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def test_the_file_of_int4_linear_layers_holds_the_operator_once_and_leaves_the_model_alone(
    tmp_path,
):
    import onnx

    model = nn.Sequential(nn.Linear(128, 64), nn.GELU(), Turned(), nn.Linear(48, 5))
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
    sizes = [{one.name: one.i for one in node.attribute} for node in operators]
    assert sizes[1] == {"K": 64, "N": 48, "bits": 4, "block_size": 32}
    held = [tuple(one.dims) for one in graph.initializer if one.data_type == onnx.TensorProto.UINT8]
    assert sorted(held) == [(5, 2, 16), (48, 2, 16), (64, 4, 16)]
    assert {node.op_type for node in graph.node} <= {"MatMulNBits", "Add", "Gelu"}, (
        "no weight is unpacked"
    )


def test_an_engine_that_saturates_is_refused_with_the_reason(monkeypatch):
    """Without VNNI an engine's integers are others; here they are made so by other weights."""
    work = mixed()
    steps = [{"precision": {"default": "int8"}}, {"backend": {"name": "onnxruntime", "threads": 1}}]
    monkeypatch.setattr(apply_recipe, "saturates", lambda: True)
    monkeypatch.setattr(apply_recipe, "INT8_TOLERANCE", 1e-12)
    with pytest.raises(StepError, match=r"no VNNI.*leave 'backend' out.*nothing was changed"):
        lab.apply(work, Recipe(steps))
    monkeypatch.setattr(apply_recipe, "saturates", lambda: False)
    with pytest.raises(StepError, match=r"differs by [^:]*; nothing was changed"):
        lab.apply(work, Recipe(steps))
