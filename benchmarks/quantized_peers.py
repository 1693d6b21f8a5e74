"""Other quantizers, used as documented, as peers of our int8. Both are calibrated on the example
inputs.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from paifuser_lab.converter import export_onnx
from paifuser_lab.errors import first_line
from paifuser_lab.machine import thread_choices
from paifuser_lab.measure import Candidate
from paifuser_lab.workload import Workload

Call = Callable[[], Any]


def candidates(
    work: Workload, engines: tuple[str, ...], failures: dict[str, str]
) -> Iterator[Candidate]:
    """Each peer, once for each sensible number of threads; a failure is recorded."""
    inputs = work.inputs.clone()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = export_onnx(copy.deepcopy(work.model).eval(), inputs, folder / "model.onnx")
        feeds = {key: tensor.numpy() for key, tensor in zip(names, inputs.tensors, strict=True)}
        quantized = (
            _tried("ORT static int8", _onnxruntime_int8, folder, feeds, failures)
            if "onnxruntime" in engines
            else None
        )
        has_nncf = "nncf" in engines and find_spec("nncf")
        compressed = _tried("NNCF int8", _nncf_int8, folder, feeds, failures) if has_nncf else None
        for count in thread_choices():
            if quantized is not None:
                yield Candidate(
                    f"ORT static int8 · {count}", _onnxruntime(quantized, feeds, count), count
                )
            if find_spec("openvino"):
                yield Candidate(
                    f"OpenVINO bf16 · {count}",
                    _openvino(folder / "model.onnx", feeds, count, "bf16"),
                    count,
                )
                if compressed is not None:
                    yield Candidate(
                        f"OpenVINO NNCF int8 · {count}",
                        _openvino(compressed, feeds, count, "f32"),
                        count,
                    )


def _tried(
    name: str,
    make: Callable[[Path, dict[str, Any]], Path],
    folder: Path,
    feeds: dict[str, Any],
    failures: dict[str, str],
) -> Path | None:
    try:
        return make(folder, feeds)
    except Exception as error:  # a peer may raise any error
        failures[name] = f"{type(error).__name__}: {first_line(error)}"
        return None


def _onnxruntime_int8(folder: Path, feeds: dict[str, Any]) -> Path:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Once(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [feeds]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quant_pre_process(
            str(folder / "model.onnx"), str(folder / "prepared.onnx"), skip_symbolic_shape=True
        )
        quantize_static(
            str(folder / "prepared.onnx"),
            str(folder / "int8.onnx"),
            Once(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    return folder / "int8.onnx"


def _nncf_int8(folder: Path, feeds: dict[str, Any]) -> Path:
    import nncf
    import openvino

    model = openvino.Core().read_model(str(folder / "model.onnx"))
    with suppress(ImportError):
        from nncf.common.logging.logger import set_log_level

        set_log_level(40)
    quantized = nncf.quantize(
        model, nncf.Dataset([feeds]), preset=nncf.QuantizationPreset.MIXED, subset_size=1
    )
    openvino.save_model(quantized, str(folder / "nncf.xml"), compress_to_fp16=False)
    return folder / "nncf.xml"


def _onnxruntime(path: Path, feeds: dict[str, Any], count: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: [torch.from_numpy(output) for output in session.run(None, feeds)]


def _openvino(path: Path, feeds: dict[str, Any], count: int, hint: str) -> Call:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": count,
        "INFERENCE_PRECISION_HINT": hint,
        "ENABLE_MMAP": False,
    }
    request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()
    return lambda: [
        torch.from_numpy(output).clone()
        for output in request.infer(feeds, share_inputs=True).values()
    ]
