"""HLS C++ for FPGAs, through hls4ml: small nets in fixed point, emulated here by a C++ compiler."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import tempfile
import weakref
from contextlib import redirect_stdout
from io import StringIO
from math import ceil, log2, prod
from pathlib import Path
from typing import Any

import numpy
import torch
from pydantic import Field
from torch import Tensor, nn

from ..errors import ExportError, first_line
from ..model.copying import copied
from ..model.silence import compilers_silenced
from ..model.tensors import tensors_in
from ..model.watch import watching
from ..workload import running
from .exportable import Exportable
from .native import compiler
from .target import Conversion, Run, Target, TargetOptions

MAX_WEIGHTS = 200_000  # each is a multiplier or a cell of memory on the chip
HEADROOM_BITS = 2  # a sign, and twice the largest value seen
TOLERANCE = 5e-2
INTERFACE = "interface.json"
PROJECT = "model"  # the name of hls4ml's project, and of its top function
BUILD_S = 600


class HlsOptions(TargetOptions):
    """The fixed-point format, and the chip that the project is for."""

    width: int = Field(default=18, ge=8, le=48, description="bits of a fixed-point number")
    integer_bits: int | None = Field(
        default=None, ge=1, le=47, description="of these; by the largest value seen if left out"
    )
    reuse: int = Field(default=1, ge=1, description="how often one multiplier is used for a layer")
    part: str = Field(default="xcvu13p-flga2577-2-e", description="the chip, by AMD's name")
    clock_ns: float = Field(default=5.0, gt=0)


class Hls(Target):
    """Writes a Vitis HLS project. Its C++ is compiled and run here; hardware and its timing need
    the vendor's tools.
    """

    name = "hls"
    title = "HLS C++ (FPGA)"
    suffix = ".hls"
    extra, needs = "fpga", "hls4ml"
    precisions = ("fp32",)
    Options = HlsOptions
    remedy = "give a greater width"

    def obstacle(self) -> str:
        if not (why := super().obstacle()) and compiler() is None:
            return "there is no C++ compiler to emulate it; install g++ or set CXX to one."
        return why

    def tolerance(self, precision: str) -> float:
        return TOLERANCE

    def convert(self, exportable: Exportable, path: Path, options: HlsOptions) -> Conversion:
        _check_size(exportable)
        model = copied(exportable.module).eval()
        _check_layers(model, exportable.name)
        number, largest = _number_format(exportable, options)
        with compilers_silenced(), redirect_stdout(StringIO()):
            _write_project(model, exportable, path, number, options)
        shapes = {
            "inputs": [list(tensor.shape[1:]) for tensor in exportable.tensors],
            "outputs": [list(tensor.shape[1:]) for tensor in exportable.reference],
        }
        (path / INTERFACE).write_text(json.dumps(shapes), encoding="utf-8")
        return Conversion(
            (
                f"computes in {number}; the largest value on the example is {largest:.3g}",
                "emulated in C++ on a CPU; the hardware needs AMD's Vitis HLS",
            )
        )

    def opened(self, path: Path, threads: int) -> Run:
        shapes = json.loads((path / INTERFACE).read_text(encoding="utf-8"))
        emulation = Emulation(path)
        return lambda tensors: emulation(tensors, shapes["outputs"])


class Emulation:
    """Runs the fixed-point arithmetic of the chip on the CPU, one sample after another.

    hls4ml writes the script that compiles; it writes paths of its folder into the library, hence
    the copy, which lives as long as the emulation.
    """

    def __init__(self, project: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="paifuser-hls-"))
        self.clean_up = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        copy = folder / "project"
        shutil.copytree(project, copy)
        built = subprocess.run(
            ["bash", "./build_lib.sh"],
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        libraries = list((copy / "firmware").glob(f"{PROJECT}-*.so"))
        if built.returncode or not libraries:
            reason = [line for line in built.stderr.splitlines() if "error" in line][:1]
            raise ExportError(
                f"the HLS C++ does not compile: {(reason or ['no library was made'])[0]}."
            )
        self.call = getattr(ctypes.CDLL(str(libraries[0])), f"{PROJECT}_float")
        self.call.restype = None

    def __call__(self, tensors: list[Tensor], shapes: list[list[int]]) -> list[Tensor]:
        """The outputs of a batch; `shapes` has those of one sample's outputs."""
        batch = len(tensors[0])
        outputs = [numpy.zeros((batch, prod(shape)), numpy.float32) for shape in shapes]
        inputs = [tensor.detach().float().reshape(batch, -1).numpy() for tensor in tensors]
        for sample in range(batch):
            rows = [array[sample : sample + 1] for array in (*inputs, *outputs)]
            self.call(*(row.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for row in rows))
        return [
            torch.from_numpy(output).reshape(batch, *shape)
            for output, shape in zip(outputs, shapes, strict=True)
        ]


def _check_size(exportable: Exportable) -> None:
    count = sum(weight.numel() for weight in exportable.module.parameters())
    if count > MAX_WEIGHTS:
        raise ExportError(
            f"{exportable.name} has {count:,} weights, more than the {MAX_WEIGHTS:,} that are laid "
            "out on a chip one by one; prune it or take a smaller model."
        )
    if exportable.precision != "fp32":
        raise ExportError(
            f"{exportable.name} is in {exportable.precision}; HLS C++ is made from the fp32 model "
            "and rounds it to fixed point itself."
        )
    if any(not tensor.is_floating_point() for tensor in exportable.tensors):
        raise ExportError(f"{exportable.name} reads integers, which HLS C++ does not take here.")


def _check_layers(model: nn.Module, name: str) -> None:
    """Refuse a model with the first layer or operator that hls4ml does not know, by name."""
    from hls4ml.converters.pytorch_to_hls import get_supported_pytorch_layers, layer_name_map
    from hls4ml.utils.torch import CustomFXTracer

    known = {*get_supported_pytorch_layers(), "Dropout", "Sequential"}
    remedy = "HLS C++ takes linear, convolution, batch-norm, pooling and activation layers"
    try:
        graph = CustomFXTracer().trace(model)
    except Exception as error:  # torch.fx raises what the model's code raises
        raise ExportError(f"{name} cannot be traced for HLS C++: {first_line(error)}") from error
    for node in graph.nodes:
        if node.op == "call_module":
            layer = model.get_submodule(str(node.target))
            if type(layer).__name__ not in known:
                raise ExportError(
                    f"layer '{node.target}' of {name} is a {type(layer).__name__}; {remedy}."
                )
        elif node.op in ("call_function", "call_method"):
            # hls4ml looks an operator up by the name of its node, without the number
            base, _, number = node.name.rpartition("_")
            operator = base if number.isdigit() else node.name
            if layer_name_map.get(operator, operator) not in known and operator != "getitem":
                raise ExportError(f"{name} calls {operator} in its forward; {remedy}.")


def _number_format(exportable: Exportable, options: HlsOptions) -> tuple[str, float]:
    """The fixed-point format, and the largest value that the example's runs and weights have."""
    largest = max(
        _largest_activation(exportable),
        *(float(weight.detach().abs().max()) for weight in exportable.module.parameters()),
        0.0,
    )
    bits = options.integer_bits or max(1, ceil(log2(max(largest, 1e-6)))) + HEADROOM_BITS
    if bits >= options.width:
        raise ExportError(
            f"{exportable.name} reaches {largest:.3g}, which takes {bits} integer bits of "
            f"{options.width}; give a greater width."
        )
    return f"ap_fixed<{options.width},{bits}>", largest


def _largest_activation(exportable: Exportable) -> float:
    """The largest absolute value that a layer reads or returns on the example and other inputs."""
    largest = [0.0]

    def look(values: Any) -> None:
        tensors = (value for value in tensors_in(values) if value.numel())
        largest.extend(float(value.abs().max()) for value in tensors)

    model = exportable.module
    with running(model), watching(model, lambda _, args, kwargs: look(args), lambda _, y: look(y)):
        for tensors in (exportable.tensors, *exportable.others):
            exportable.function(*tensors)
    return max(largest)


def _write_project(
    model: nn.Module, exportable: Exportable, path: Path, number: str, options: HlsOptions
) -> None:
    import hls4ml

    shapes = [tuple(tensor.shape[1:]) for tensor in exportable.tensors]
    config = hls4ml.utils.config_from_pytorch_model(
        model,
        shapes if len(shapes) > 1 else shapes[0],
        granularity="model",
        backend="Vitis",
        default_precision=number,
        default_reuse_factor=options.reuse,
        channels_last_conversion="full",
        transpose_outputs=True,
    )
    hls4ml.converters.convert_from_pytorch_model(
        model,
        output_dir=str(path),
        project_name=PROJECT,
        backend="Vitis",
        hls_config=config,
        io_type="io_parallel",
        part=options.part,
        clock_period=options.clock_ns,
    ).write()
