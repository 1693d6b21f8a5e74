"""Each target writes what gives the live model's outputs, or says why it cannot."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.converter import coreml, litert, native, onnx_file, tensorrt
from paifuser_lab.converter.aotinductor import AotInductor
from paifuser_lab.converter.coreml import CoreML
from paifuser_lab.converter.executorch import ExecuTorch
from paifuser_lab.converter.export import precision_of
from paifuser_lab.converter.exportable import Exportable
from paifuser_lab.converter.gguf import Gguf
from paifuser_lab.converter.hls import Hls
from paifuser_lab.converter.litert import LiteRT
from paifuser_lab.converter.openvino import OpenVinoIR
from paifuser_lab.converter.target import Target
from paifuser_lab.converter.tensorrt import TensorRT
from paifuser_lab.converter.torch_export import TorchExport
from paifuser_lab.errors import ExportError, MissingExtraError, NotVerifiableError
from paifuser_lab.measure import output_error
from tests.support.models import OnGpu


class Net(nn.Module):
    """A convolution with its batch-norm, a pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.pool, self.flatten, self.head = nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(self.relu(self.norm(self.stem(images))))
        return self.head(self.flatten(x))


def net(batch: int = 2) -> Workload:
    torch.manual_seed(0)
    work = Workload(Net(), torch.randn(batch, 2, 8, 8), name="net")
    work.model.norm.running_var.uniform_(0.5, 2)
    return work


def int8() -> lab.Variant:
    return lab.apply(net(), Recipe(["fold", {"precision": {"default": "int8"}}]))


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not find_spec(package), reason=f"{package} is not installed")


TORCH_EXPORT = pytest.param(TorchExport(), id="torch_export")
EXECUTORCH = pytest.param(ExecuTorch(), id="executorch", marks=needs("executorch"))
OPENVINO = pytest.param(OpenVinoIR(), id="openvino", marks=needs("openvino"))


def converted(target: Target, subject: Any, folder: Path, **options: Any) -> tuple[Any, Any]:
    """What `convert` returned, and the artefact as a function."""
    path = folder / f"model{target.suffix}"
    exportable = Exportable.of(subject)
    conversion = target.convert(exportable, path, target.checked_options(options))
    return conversion, target.opened(path, 1)


def error(outputs: list[Tensor], expected: list[Tensor]) -> float:
    return output_error(expected, outputs)[0]


@pytest.mark.parametrize("target", [TORCH_EXPORT, OPENVINO])
def test_a_target_s_file_gives_the_live_model_s_outputs(target, tmp_path):
    _, run = converted(target, net(), tmp_path)
    images = torch.randn(2, 2, 8, 8)
    assert error(run([images]), [net().model.eval()(images)]) < 1e-5
    if target.name == "openvino":  # which reads an ONNX file first, and leaves none behind
        assert sorted(file.name for file in tmp_path.iterdir()) == ["model.bin", "model.xml"]
        assert error(run([OnGpu(images)]), [net().model.eval()(images)]) < 1e-5


@pytest.mark.parametrize("target", [TORCH_EXPORT, OPENVINO])
def test_a_target_s_file_keeps_a_variant_s_roundings(target, tmp_path):
    variant = int8()
    _, run = converted(target, variant, tmp_path)
    images = torch.randn(2, 2, 8, 8)
    with torch.no_grad():
        assert error(run([images]), [variant.model(images)]) < 0.02
        assert error(run([images]), [net().model.eval()(images)]) > 1e-4, "it is rounded"


@needs("openvino")
def test_openvino_leaves_no_weights_of_the_onnx_file_that_it_reads(tmp_path, monkeypatch):
    save = onnx_file._save
    monkeypatch.setattr(onnx_file, "_save", lambda model, path, _: save(model, path, 0))
    work = Workload(nn.Sequential(nn.Linear(32, 16)), torch.randn(2, 32), name="wide")
    report = lab.export(work, "openvino", tmp_path / "net[1].xml", seconds=0)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net[1].bin", "net[1].xml"]
    assert not any("beside it" in note for note in report.notes)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_program_in_16_bits_reads_and_returns_fp32(precision, tmp_path):
    _, run = converted(TorchExport(), net(), tmp_path, precision=precision)
    images = torch.randn(2, 2, 8, 8)
    (output,) = run([images])
    assert output.dtype == torch.float32
    assert 1e-5 < error([output], [net().model.eval()(images)]) < 0.03


@needs("executorch")
def test_executorch_tells_what_xnnpack_leaves(tmp_path):
    images = torch.randn(2, 2, 8, 8)
    for kernels, note in (("xnnpack", "XNNPACK runs"), ("portable", "portable kernels run")):
        conversion, run = converted(ExecuTorch(), net(), tmp_path, kernels=kernels)
        assert conversion.notes == (f"{note} every operator",)
        assert error(run([images]), [net().model.eval()(images)]) < 1e-5


@needs("executorch")
@pytest.mark.parametrize("dynamic", [False, True])
def test_xnnpack_gets_a_product_in_int8_where_a_rounding_follows_it(dynamic, tmp_path):
    variant = int8()
    conversion, run = converted(ExecuTorch(), variant, tmp_path, dynamic=dynamic)
    in_floats, *others = conversion.notes
    assert in_floats == "no rounding follows 'head': computed in floats"
    assert dynamic or others == ["XNNPACK runs every operator"]
    images = torch.randn(3 if dynamic else 2, 2, 8, 8)
    with torch.no_grad():
        assert error(run([images]), [variant.model(images)]) < 0.02


@pytest.mark.skipif(native.compiler() is None, reason="there is no C++ compiler")
def test_a_package_of_aotinductor_runs_in_python_and_without_it(tmp_path):
    # one package is compiled: headers for the next ones would only cost time
    with torch._inductor.config.patch(cpp_cache_precompile_headers=False):
        conversion, run = converted(AotInductor(), net(), tmp_path, native=True)
    assert "run without Python by a C++ program: relative error" in conversion.notes[0]
    images = torch.randn(2, 2, 8, 8)
    expected = [net().model.eval()(images)]
    assert error(run([images]), expected) < 1e-5
    package = tmp_path / "model.aoti.pt2"
    outputs, calls_ms = native.run_without_python(package, [images], calls=3)
    assert error(outputs, expected) < 1e-5
    assert len(calls_ms) == 3
    with pytest.raises(ExportError, match="without Python failed: "):
        native.run_without_python(tmp_path / "none.pt2", [images])


@pytest.mark.skipif(native.compiler() is None, reason="there is no C++ compiler")
def test_a_package_whose_outputs_differ_without_python_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "paifuser_lab.converter.aotinductor.run_without_python",
        lambda *_, **__: ([torch.zeros(2, 3)], [1.0]),
    )
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", lambda *_, **__: None)
    with pytest.raises(ExportError, match="net without Python differs from the live model by"):
        AotInductor().convert(
            Exportable.of(net()), tmp_path / "m.pt2", AotInductor.Options(native=True)
        )


TENSORS = st.builds(
    lambda dtype, sizes, seed: (
        torch.rand(sizes, generator=torch.Generator().manual_seed(seed)) * 9
    ).to(dtype),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]),
    st.lists(st.integers(0, 3), max_size=4),
    st.integers(0, 99),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(TENSORS, max_size=3))
def test_a_file_of_tensors_is_read_as_it_was_written(tmp_path_factory, tensors):
    path = tmp_path_factory.mktemp("tensors") / "file"
    native.write_tensors(path, tensors)
    found = native.read_tensors(path)
    assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in tensors]
    assert all(torch.equal(left, right) for left, right in zip(found, tensors, strict=True))


@needs("coremltools")
def test_core_ml_is_converted_checked_and_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(coreml, "platform", SimpleNamespace(system=lambda: "Linux"))
    exportable, path = Exportable.of(net()), tmp_path / "model.mlpackage"
    conversion = CoreML().convert(exportable, path, CoreML.Options(precision="fp16"))
    assert "operators, inputs and outputs of the model's shapes" in conversion.notes[0]
    with pytest.raises(NotVerifiableError, match=r"Core ML was converted and not run.*macOS"):
        CoreML().opened(path, 1)
    other = SimpleNamespace(name="net", tensors=[torch.zeros(1, 5)], reference=[torch.zeros(1)])
    with pytest.raises(ExportError, match="where the model reads"):
        coreml._check_structure(path, other)


def test_tensorrt_gets_a_checked_onnx_file_and_its_command(tmp_path):
    with pytest.raises(NotVerifiableError, match="TensorRT was converted and not run"):
        converted(TensorRT(), net(), tmp_path, dynamic=True)
    folder = tmp_path / "model.tensorrt"
    script = (folder / "build.sh").read_text()
    graph = onnx.load(folder / "model.onnx").graph
    assert [value.name for value in graph.input] == ["images"]
    assert "--onnx=model.onnx" in script
    assert "--stronglyTyped" in script
    assert "--minShapes=images:1x2x8x8" in script
    assert "--maxShapes=images:32x2x8x8" in script
    assert tensorrt.command(script).startswith("trtexec --onnx=model.onnx --saveEngine=")


def test_tensorrt_leaves_an_input_without_a_batch_as_it_is():
    tensors = [torch.zeros(2, 3), torch.zeros(5, 4)]
    exportable = SimpleNamespace(tensors=tensors, input_names=("x", "table"))
    script = tensorrt.build_script(exportable, dynamic=True, precision="fp32")
    assert "--optShapes=x:8x3 " in script and "table" not in script


def test_tensorrt_refuses_integers_by_layer(tmp_path):
    with pytest.raises(ExportError, match="layer 'stem' of net is in int8, whose zero points"):
        converted(TensorRT(), int8(), tmp_path)


@needs("hls4ml")
def test_the_emulated_hls_c_gives_the_model_s_outputs_in_fixed_point(tmp_path):
    conversion, run = converted(Hls(), net(), tmp_path)
    assert conversion.notes[0].startswith("computes in ap_fixed<18,")
    images = torch.randn(3, 2, 8, 8)
    assert 0 < error(run([images]), [net().model.eval()(images)]) < 0.02


@needs("hls4ml")
def test_fixed_point_that_is_too_narrow_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("paifuser_lab.converter.hls.Emulation", lambda _: lambda x, _: [x[0] * 0])
    work = Workload(nn.Sequential(nn.Linear(4, 4)), torch.randn(1, 4), name="net")
    with pytest.raises(ExportError, match="no file was changed; give a greater width"):
        lab.export(work, "hls", tmp_path, seconds=0, width=8)


@needs("hls4ml")
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.GELU(), r"layer 'odd' of .* is a GELU"),
        (nn.Linear(4, 60_000), r"has 300,000 weights, more than the 200,000"),
    ],
)
def test_hls_refuses_what_does_not_fit_a_chip_by_name(layer, message, tmp_path):
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.odd(x)

    with pytest.raises(ExportError, match=message):
        converted(Hls(), Workload(Odd(), torch.randn(1, 4)), tmp_path)


@needs("hls4ml")
def test_hls_refuses_a_format_that_overflows_and_an_operator_it_does_not_know(tmp_path):
    class Cosine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cos(x)

    with pytest.raises(ExportError, match="calls cos in its forward"):
        converted(Hls(), Workload(Cosine(), torch.randn(1, 4)), tmp_path)
    large = Workload(nn.Sequential(nn.Linear(4, 2)), 1e4 * torch.ones(1, 4))
    with pytest.raises(ExportError, match="integer bits of 8; give a greater width"):
        converted(Hls(), large, tmp_path, width=8)


@pytest.mark.parametrize("target", [ExecuTorch(), CoreML(), OpenVinoIR(), Hls(), Gguf()])
def test_a_target_without_its_package_names_the_extra(target, tmp_path, monkeypatch):
    monkeypatch.setattr("paifuser_lab.converter.target.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=rf"paifuser-lab\[{target.extra}\]"):
        lab.export(net(), target.name, tmp_path / "model")


def test_what_is_in_bf16_itself_is_written_or_converted_first():
    model = SimpleNamespace(name="net", precision="bf16", recipe=())
    assert precision_of(model, Gguf(), None) == "bf16"
    with pytest.raises(ExportError, match=r'apply \{"precision": "fp32"\} to it first'):
        precision_of(model, ExecuTorch(), None)


def test_hls_without_a_compiler_asks_for_one(monkeypatch):
    monkeypatch.setattr("paifuser_lab.converter.target.find_spec", lambda name: name)
    monkeypatch.setattr("paifuser_lab.converter.hls.compiler", lambda: None)
    with pytest.raises(ExportError, match=r"cannot convert here: there is no C\+\+ compiler"):
        Hls().check_available()


def test_litert_s_tensors_are_in_the_order_of_their_numbers():
    names = [f"args_{place}" for place in range(12)]
    assert sorted(sorted(names), key=litert._place) == names


def test_litert_gets_the_model_in_eval_mode_and_gives_it_back(tmp_path, monkeypatch):
    modes = []

    def convert(function, tensors):
        modes.extend(module.training for module in function.modules())
        return SimpleNamespace(export=lambda path: None)

    monkeypatch.setitem(sys.modules, "litert_torch", SimpleNamespace(convert=convert))
    work = net()
    LiteRT().convert(Exportable.of(work), tmp_path / "model.tflite", LiteRT.Options())
    assert modes and not any(modes)
    assert all(module.training for module in work.model.modules())


def test_litert_says_that_it_needs_an_environment_of_its_own(monkeypatch):
    monkeypatch.setattr("paifuser_lab.converter.litert.find_spec", lambda name: None)
    assert "an environment of its own: pip install paifuser-lab" in LiteRT().obstacle()
    with pytest.raises(ExportError, match="LiteRT cannot convert here"):
        LiteRT().check_available()
