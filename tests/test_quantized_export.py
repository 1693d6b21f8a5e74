"""A quantized model in another engine: the file holds the roundings, and the engine gives the same numbers."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.converter import export_onnx

SAME = 0.02  # relative L2: an engine rounds a value between two steps to the other one now and then


class Mixed(nn.Module):
    """A convolution with its batch-norm, a residual sum, a depthwise convolution and two linear layers."""

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
        pytest.param("openvino", marks=pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed")),
    ],
)
@pytest.mark.parametrize("options", [{"default": "int8"}, {"layers": LAYERS}], ids=["int8", "mixed"])
def test_an_engine_gives_the_same_numbers_as_the_live_model(engine, options):
    work = mixed()
    live = lab.apply(work, Recipe([{"precision": options}]))
    exported = lab.apply(work, Recipe([{"precision": options}, {"backend": {"name": engine, "threads": 1}}]))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert error(exported.model(images), live.model(images)) < SAME
        assert error(live.model(images), work.model(images)) > 1e-4, "something was rounded"


def test_the_file_holds_the_roundings_and_whole_numbers(tmp_path):
    import onnx

    work = mixed()
    variant = lab.apply(work, Recipe([{"precision": {"default": "int8", "layers": {"wide": "int8-weights"}}}]))
    export_onnx(variant.module, work.inputs.clone(), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("QuantizeLinear") == 3, "what each of the int8 layers is given"
    assert kinds.count("DequantizeLinear") == 3 + 4 + 1, "that again, every layer's weight, and the int8 linear layer's bias"
    held = [one for one in graph.initializer if one.data_type == onnx.TensorProto.INT8]
    assert sorted(tuple(one.dims) for one in held if len(one.dims) > 1) == [(5, 32), (16, 1, 3, 3), (16, 3, 3, 3), (32, 16)]
