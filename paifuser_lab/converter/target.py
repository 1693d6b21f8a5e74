"""What a target of export is: it writes a model in a format of its own, and runs what it wrote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from ..errors import ExportError, MissingExtraError, NotVerifiableError
from ..records import LayerDifference
from .exportable import Exportable

Run = Callable[[list[Tensor]], list[Tensor]]
# relative L2 error against the live model past which an exported file is refused
TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2, "int8": 5e-2}


class TargetOptions(BaseModel):
    """The options of an export; a target adds its own as fields with defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    precision: str | None = None  # None: as the model is
    dynamic: bool = False  # any batch size instead of the example's


@dataclass(frozen=True)
class Conversion:
    """What a target says of a file that it has written."""

    notes: tuple[str, ...] = ()
    opset: int | None = None  # of an ONNX file, read back from it


class Target(ABC):
    """A format that models are exported to.

    A target is one file with a subclass, and one line in `TARGETS`. `convert` writes into an empty
    folder; `export` compares the outputs and only then moves the files to where they belong, so
    that a target needs neither atomic writes nor a check of its own outputs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffix: ClassVar[str]  # of the artefact, a file or a folder: ".onnx"
    extra: ClassVar[str] = ""  # the extra of this package that installs what it needs
    needs: ClassVar[str] = ""  # the package that it converts with, as pip and Python name it
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)  # those it can deliver, "int8" as Q/DQ
    Options: ClassVar[type[TargetOptions]] = TargetOptions
    remedy: ClassVar[str] = ""  # what to do where outputs differ by its own arithmetic

    def obstacle(self) -> str:
        """Why it cannot convert on this machine, in one sentence; '' where it can."""
        return f"{self.needs} is not installed." if self._lacks_package else ""

    @property
    def _lacks_package(self) -> bool:
        return bool(self.needs) and find_spec(self.needs) is None

    @abstractmethod
    def convert(self, exportable: Exportable, path: Path, options: Any) -> Conversion:
        """Write the artefact to `path`, a file or a folder, and what belongs to it beside it;
        raise ExportError, naming layer and operator, where that cannot be right. What a library
        raises may pass: `export` makes a sentence of it.

        The folder of `path` is empty and temporary: all that is in it is delivered. `options` is
        one of `Options`, with a precision of `precisions`.
        """

    @abstractmethod
    def opened(self, path: Path, threads: int) -> Run:
        """The artefact as a function from the input tensors to the output tensors, both in the
        order of `Exportable`; raise NotVerifiableError where it cannot run here.
        """

    def first_difference(
        self, exportable: Exportable, path: Path, tensors: list[Tensor], tolerance: float
    ) -> LayerDifference | None:
        """The first layer past the tolerance in the artefact; None where the target cannot tell."""
        return None

    def tolerance(self, precision: str) -> float:
        """The relative L2 error that a file in this precision may have."""
        return TOLERANCES.get(precision, TOLERANCES["int8"])

    def checked_options(self, options: dict[str, Any]) -> Any:
        """The options as the target's own class; raise one sentence on the first that is wrong."""
        try:
            return self.Options(**options)
        except ValidationError as error:
            first = error.errors()[0]
            option = str(first["loc"][0]) if first["loc"] else "options"
            if first["type"] == "extra_forbidden":
                raise ExportError(
                    f"{self.title} has no option '{option}'; it has "
                    f"{', '.join(self.Options.model_fields)}."
                ) from error
            raise ExportError(f"{self.title}: {option}: {first['msg']}.") from error

    def check_available(self) -> None:
        """Raise where the target cannot convert on this machine."""
        if obstacle := self.obstacle():
            if self._lacks_package:
                raise MissingExtraError(
                    self.needs, extra=self.extra, needed_for=f"Export to {self.title}"
                )
            raise ExportError(f"{self.title} cannot convert here: {obstacle}")


def not_run(title: str, needs: str) -> NotVerifiableError:
    """The error of a target whose artefact needs something that is not here."""
    return NotVerifiableError(f"{title} was converted and not run: {needs}.")
