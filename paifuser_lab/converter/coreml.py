"""Core ML: models for Apple's devices. They are converted anywhere and run on macOS."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ExportError
from ..model.silence import compilers_silenced
from .exportable import Exportable
from .lowering import program_of, rounds_to_int8, with_stored_constants
from .target import Conversion, Run, Target, TargetOptions, not_run

MACOS = "its predictions need macOS"


class CoreML(Target):
    """Converts the captured program into an ML program, reads it back and checks its structure."""

    name = "coreml"
    title = "Core ML"
    suffix = ".mlpackage"
    extra, needs = "coreml", "coremltools"
    precisions = ("fp32", "fp16", "int8")

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> Conversion:
        precision = options.precision or exportable.precision
        # Core ML rounds to 16 bits itself, so that its inputs stay in fp32
        own = options.model_copy(update={"precision": None if precision == "fp16" else precision})
        program = program_of(exportable, own)
        if rounds_to_int8(program):
            program = with_stored_constants(program, exportable.tensors, dynamic=options.dynamic)
        with compilers_silenced():
            _converted(program.run_decompositions({}), exportable, precision).save(str(path))
        return Conversion((_check_structure(path, exportable), f"not run: {MACOS}"))

    def opened(self, path: Path, threads: int) -> Run:
        if platform.system() != "Darwin":
            raise not_run(self.title, MACOS)
        import coremltools

        model = coremltools.models.MLModel(str(path))
        description = model.get_spec().description
        inputs = [feature.name for feature in description.input]
        outputs = [feature.name for feature in description.output]

        def run(tensors: list[Tensor]) -> list[Tensor]:
            arrays = (tensor.detach().numpy() for tensor in tensors)
            found = model.predict(dict(zip(inputs, arrays, strict=True)))
            return [torch.from_numpy(found[name]) for name in outputs]

        return run


def _converted(program: Any, exportable: Exportable, precision: str) -> Any:
    import coremltools as ct

    return ct.convert(
        program,
        convert_to="mlprogram",
        outputs=[ct.TensorType(name=name) for name in exportable.output_names],
        compute_precision=ct.precision.FLOAT16 if precision == "fp16" else ct.precision.FLOAT32,
        minimum_deployment_target=ct.target.iOS17,
        skip_model_load=True,
    )


def _check_structure(path: Path, exportable: Exportable) -> str:
    """Read the package back and compare its inputs and outputs with the model's."""
    import coremltools as ct

    with compilers_silenced():
        spec = ct.models.MLModel(str(path), skip_model_load=True).get_spec()
    shapes = [list(feature.type.multiArrayType.shape) for feature in spec.description.input]
    expected = [list(tensor.shape) for tensor in exportable.tensors]
    names = [feature.name for feature in spec.description.output]
    if shapes != expected or len(names) != len(exportable.reference):
        raise ExportError(
            f"Core ML's package of {exportable.name} reads {shapes} and returns {len(names)} "
            f"tensors, where the model reads {expected} and returns {len(exportable.reference)}."
        )
    blocks = spec.mlProgram.functions["main"].block_specializations.values()
    count = sum(op.type != "const" for block in blocks for op in block.operations)
    return f"read back: {count} operators, inputs and outputs of the model's shapes"
