"""AOTInductor: the model compiled ahead of time into a package that C++ runs without Python."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import torch
from pydantic import Field
from torch import Tensor

from ..errors import ExportError
from ..machine import threads
from ..measure import output_error
from ..model.silence import compilers_silenced
from .exportable import Exportable
from .lowering import program_of
from .native import compiler, run_without_python
from .target import Conversion, Run, Target, TargetOptions

CALLS = 5


class AotInductorOptions(TargetOptions):
    """`native` also runs the package in C++ and compares its outputs."""

    native: bool = Field(
        default=False, description="run it without Python, too; compiles a C++ program once"
    )


class AotInductor(Target):
    """Compiles the captured program with Inductor into one file of native code and weights."""

    name = "aotinductor"
    title = "AOTInductor package"
    suffix = ".aoti.pt2"
    precisions = ("fp32", "bf16", "fp16", "int8")
    Options = AotInductorOptions

    def obstacle(self) -> str:
        if compiler() is None:
            return "there is no C++ compiler; install g++ or set CXX to one."
        return ""

    def convert(
        self, exportable: Exportable, path: Path, options: AotInductorOptions
    ) -> Conversion:
        program = program_of(exportable, options)
        with compilers_silenced():
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
        precision = options.precision or exportable.precision
        return Conversion((self._compared(exportable, path, precision),) if options.native else ())

    def opened(self, path: Path, threads_used: int) -> Run:
        with compilers_silenced():
            package = torch._inductor.aoti_load_package(str(path))

        def run(tensors: list[Tensor]) -> list[Tensor]:
            with torch.no_grad(), threads(threads_used):
                return list(package(*tensors))

        return run

    def _compared(self, exportable: Exportable, path: Path, precision: str) -> str:
        """Run the package without Python; raise where its outputs are not the live model's."""
        count = torch.get_num_threads()
        outputs, calls_ms = run_without_python(path, exportable.tensors, threads=count, calls=CALLS)
        error, _ = output_error(exportable.reference, outputs)
        if not error <= self.tolerance(precision):
            raise ExportError(
                f"{exportable.name} without Python differs from the live model by {error:.1e}, "
                f"more than {self.tolerance(precision):.0e}; nothing was written."
            )
        return (
            f"run without Python by a C++ program: relative error {error:.1e}, "
            f"{median(calls_ms):.2f} ms a call"
        )
