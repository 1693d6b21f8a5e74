"""ExecuTorch: programs for phones and small devices, on XNNPACK's kernels where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from ..model.silence import compilers_silenced
from .exportable import Exportable
from .lowering import operator_names, program_of, rounds_to_int8, with_int8_products
from .target import Conversion, Run, Target, TargetOptions

DELEGATE = "executorch_call_delegate"
MEMORY = ("getitem", "alloc", "to_dim_order_copy", "clone_dim_order")  # no arithmetic


class ExecuTorchOptions(TargetOptions):
    """`kernels` chooses between XNNPACK, with portable kernels where needed, and these alone."""

    kernels: Literal["xnnpack", "portable"] = Field(
        default="xnnpack", description="portable: plain C++ that runs everywhere, and slowly"
    )


class ExecuTorch(Target):
    """Lowers the captured program; XNNPACK takes what it can, portable kernels the rest."""

    name = "executorch"
    title = "ExecuTorch"
    suffix = ".pte"
    extra, needs = "executorch", "executorch"
    precisions = ("fp32", "fp16", "int8")
    Options = ExecuTorchOptions

    def convert(self, exportable: Exportable, path: Path, options: ExecuTorchOptions) -> Conversion:
        program, notes = program_of(exportable, options), tuple[str, ...]()
        if options.kernels == "xnnpack" and rounds_to_int8(program):
            program, in_floats = with_int8_products(
                program, exportable.tensors, dynamic=options.dynamic
            )
            named = ", ".join(f"'{layer}'" for layer in in_floats[:3]) + (
                " …" if len(in_floats) > 3 else ""
            )
            notes = (f"no rounding follows {named}: computed in floats",) if in_floats else ()
        with compilers_silenced():
            lowered = _lowered(program, options.kernels)
            notes += _notes(lowered.exported_program())
            with path.open("wb") as file:
                lowered.to_executorch().write_to_file(file)
        return Conversion(notes)

    def opened(self, path: Path, threads: int) -> Run:
        with compilers_silenced():
            from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
            from executorch.runtime import Runtime

            _use_quantized_kernels()
            _unsafe_reset_threadpool(threads)  # of the process; nothing of it runs meanwhile
            program = Runtime.get().load_program(path.read_bytes())
            method = program.load_method("forward")

        def run(tensors: list[Tensor]) -> list[Tensor]:
            # a method does not keep its program alive; this function does
            assert program and method
            outputs = method.execute([tensor.contiguous() for tensor in tensors])
            return [output.clone() for output in outputs]

        return run


def _lowered(program: ExportedProgram, kernels: str) -> Any:
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    partitioners: list[Any] = []
    if kernels == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        partitioners = [XnnpackPartitioner()]
    _use_quantized_kernels()
    return to_edge_transform_and_lower(
        program,
        partitioner=partitioners,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )


def _notes(program: ExportedProgram) -> tuple[str, ...]:
    """Which operators XNNPACK leaves to the portable kernels."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    left = [node for node in calls if not str(node.target).endswith(MEMORY) and not _given(node)]
    left = [node for node in left if "getitem" not in str(node.target)]
    given = sum(map(_given, calls))
    if not given:
        return ("portable kernels run every operator",)
    if not left:
        return ("XNNPACK runs every operator",)
    return (
        f"portable kernels run {len(left)} operators ({operator_names(left)}), XNNPACK the others",
    )


def _given(node: Node) -> bool:
    return DELEGATE in str(node.target)


def _use_quantized_kernels() -> None:
    """Register the kernels of int8 operators, which the portable ones leave out."""
    import executorch.kernels.quantized  # noqa: F401
