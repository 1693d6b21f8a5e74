"""Export a model: converted in a temporary folder, compared with the live one, then delivered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._files import cannot_write, check_space, staged
from ..arguments import check_seconds, check_threads
from ..errors import (
    ExportError,
    MeasureError,
    NotVerifiableError,
    PaifuserError,
    ParityError,
    ShouldStop,
    first_line,
    stop_if_asked,
)
from ..measure import Candidate, output_error, ratio_of_rounds, rounds_in_turn
from ..quantization.quantize import UNREDUCED, range_notes
from ..records import ExportReport, LayerDifference
from ..workload import running_in_turns
from .delivery import deliver, path_of, size_bytes
from .exportable import Exportable
from .program import another_batch
from .registry import target_of
from .target import Conversion, Run, Target, TargetOptions, not_run

ROUNDS = 30
STOPPED = "was stopped before the file was complete; no file was changed."
EXAMPLE, OTHER_VALUES, OTHER_BATCH = "the example", "other values", "another batch"
FOR_VNNI = (
    "its int8 weights use 8 bits (reduced_range: false), of which this processor, which has no "
    "VNNI, would saturate"
)
INTEGERS = ("int8", "int8-weights", "int4-weights")


def export(
    subject: Any,
    target: str = "onnx",
    path: str | Path | None = None,
    *,
    inputs: Any = None,
    seconds: float = 2.0,
    threads: int | None = None,
    should_stop: ShouldStop | None = None,
    **options: Any,
) -> ExportReport:
    """Write a model, workload or variant as a file of another runtime, after its outputs there were
    compared with the live ones: on the example, on other values, and on another batch if that is
    open. Where they differ, an error is raised and an existing file stays.

    `options` are the target's own: `precision` ("fp32", "fp16", "bf16", "int8"; the model's own
    where it is left out), `dynamic` for any batch size, `opset` of ONNX. `seconds` are for timing
    the file in turn with the live model; 0 leaves that out.
    """
    check_seconds(seconds)
    check_threads(threads)
    kind = target_of(target)
    kind.check_available()
    chosen = kind.checked_options(options)
    exportable = Exportable.of(subject, inputs)
    chosen = chosen.model_copy(
        update={"precision": precision_of(exportable, kind, chosen.precision)}
    )
    goal = path_of(path, exportable.name, kind)
    count = threads or exportable.own_threads or torch.get_num_threads()
    try:
        with staged(goal) as stage:
            work = _Export(kind, exportable, chosen, stage / goal.name, count, should_stop)
            report = work.report(goal, seconds)
            stop_if_asked(should_stop, STOPPED)
            deliver(stage, goal)
    except OSError as error:
        raise cannot_write(f"{goal.name} into {goal.parent}", error) from error
    return report


class ONNXConverter:
    """Writes models as ONNX files, checked in ONNX Runtime.

    ONNXConverter(precision="fp16", opset=17).convert(variant, path="model.onnx")
    """

    def __init__(
        self, precision: str | None = None, opset: int | None = None, *, dynamic: bool = False
    ) -> None:
        self.options: dict[str, Any] = {"precision": precision, "opset": opset, "dynamic": dynamic}
        target_of("onnx").checked_options(self.options)

    def convert(
        self, model: Any, inputs: Any = None, path: str | Path | None = None, **more: Any
    ) -> ExportReport:
        """Write a model, workload or variant; the inputs of a bare model may be left out where it
        was called under `lab.enable()`, or a workload was made of it, in this process, or where
        its first layer determines them, which the report's notes say.
        """
        return export(model, "onnx", path, inputs=inputs, **self.options, **more)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.options.items() if value)
        return f"ONNXConverter({chosen})"


def precision_of(exportable: Exportable, target: Target, wanted: str | None) -> str:
    """The precision to deliver; raise where the target or the model cannot give the wanted one."""
    own = exportable.precision
    precision = wanted or own
    family = "int8" if precision in INTEGERS else precision
    if family not in target.precisions and wanted is None:
        remedy = (
            "export the original, or drop the step that rounds it"
            if exportable.recipe
            else 'apply {"precision": "fp32"} to it first'
        )
        raise ExportError(
            f"{exportable.name} is in {own}, which {target.title} does not take; {remedy}."
        )
    if family not in target.precisions:
        raise ExportError(
            f"{target.title} is not written in {precision}; choose one of "
            f"{', '.join(target.precisions)}."
        )
    if precision == own:
        return precision
    if family == "int8":
        raise ExportError(
            f"{exportable.name} has no layer in {precision}, and an export rounds nothing itself; "
            "apply the step 'precision' or 'qat' first, and export the variant."
        )
    if own != "fp32":
        layers = exportable.quantized
        what = f"layer '{next(iter(layers))}' is" if layers else "its weights are"
        raise ExportError(
            f"{exportable.name} cannot be exported in {precision}: {what} in {own} already; leave "
            "`precision` out, or export the original."
        )
    return precision


class _Parity(NamedTuple):
    error: float
    largest: float


class _Export:
    """One export: the artefact in its temporary folder, and what is measured of it."""

    def __init__(
        self,
        target: Target,
        exportable: Exportable,
        options: TargetOptions,
        artefact: Path,
        threads: int,
        should_stop: ShouldStop | None,
    ) -> None:
        self.target, self.exportable, self.options = target, exportable, options
        self.artefact, self.threads, self.should_stop = artefact, threads, should_stop
        self.precision = options.precision or exportable.precision

    def _opened(self) -> Run:
        try:
            return self.target.opened(self.artefact, self.threads)
        except (PaifuserError, OSError):
            raise
        except Exception as error:  # each runtime raises its own
            raise ExportError(
                f"{self.target.title} cannot open its file of {self.exportable.name} "
                f"({first_line(error)}); no file was changed."
            ) from error

    def report(self, goal: Path, seconds: float) -> ExportReport:
        """Convert, compare and time; raise where the outputs differ."""
        began = time.perf_counter()
        conversion = self._converted()
        convert_s = time.perf_counter() - began
        stop_if_asked(self.should_stop, STOPPED)
        measured: dict[str, Any] = {"runs_here": False}
        try:
            if UNREDUCED in range_notes(self.exportable.module):
                raise not_run(self.target.title, FOR_VNNI)
            run = self._opened()
            parities = self._parities(run)
        except NotVerifiableError as error:
            measured["not_verified"] = str(error)
        else:
            measured = {
                "runs_here": True,
                "error": max(parity.error for parity in parities.values()),
                "max_error": max(parity.largest for parity in parities.values()),
                "tolerance": self.target.tolerance(self.precision),
                "compared": tuple(parities),
            }
            stop_if_asked(self.should_stop, STOPPED)
            measured |= self._latency(run, seconds)
        exportable = self.exportable
        return ExportReport(
            target=self.target.name,
            title=self.target.title,
            model=exportable.name,
            path=str(goal),
            precision=self.precision,
            bytes=size_bytes(self.artefact.parent),
            convert_s=convert_s,
            opset=conversion.opset,
            notes=(*exportable.work.notes, *conversion.notes),
            threads=self.threads,
            weights_hash=exportable.weights_hash,
            inputs=exportable.input_names,
            outputs=exportable.output_names,
            **measured,
        )

    def _converted(self) -> Conversion:
        try:
            return self.target.convert(self.exportable, self.artefact, self.options)
        except OSError:
            raise
        # an exporter of somebody else raises whatever it likes; the message is one line
        except Exception as error:
            check_space(self.artefact.parent)
            if isinstance(error, PaifuserError):
                raise
            raise ExportError(
                f"{self.target.title} cannot convert {self.exportable.name}: "
                f"{type(error).__name__}: {first_line(error).rstrip('.')}; no file was changed."
            ) from error

    def _parities(self, run: Run) -> dict[str, _Parity]:
        """The errors on each of the inputs that are compared; raise on the first past tolerance."""
        exportable = self.exportable
        parities = {EXAMPLE: self._parity(run, EXAMPLE, exportable.tensors)}
        for other in exportable.others:
            parity = self._parity(run, OTHER_VALUES, other)
            known = parities.get(OTHER_VALUES, parity)
            parities[OTHER_VALUES] = _Parity(
                max(parity.error, known.error), max(parity.largest, known.largest)
            )
        if self.options.dynamic:
            batch = another_batch(exportable.tensors)
            parities[OTHER_BATCH] = self._parity(run, OTHER_BATCH, batch)
        return parities

    def _parity(self, run: Run, what: str, tensors: list[Tensor]) -> _Parity:
        exportable, allowed = self.exportable, self.target.tolerance(self.precision)
        is_example = what == EXAMPLE
        expected = exportable.reference if is_example else exportable.outputs(tensors)
        try:
            error, largest = output_error(expected, run([tensor.clone() for tensor in tensors]))
        except (NotVerifiableError, OSError):
            raise
        except MeasureError as problem:
            raise ExportError(f"{self._differs(what)}: {problem}") from problem
        except Exception as problem:  # each runtime raises its own errors
            raise ExportError(
                f"{self.target.title} fails on {what} of {exportable.name} "
                f"({first_line(problem)}); no file was changed."
            ) from problem
        if not error <= allowed:
            found = self._first_difference(tensors, allowed)
            first = f", first at layer '{found.layer}'" if found and found.layer else ""
            raise ParityError(
                f"{self._differs(what)} by {error:.1e} (allowed {allowed:.0e}){first}; no file was "
                f"changed{self._remedy()}.",
                difference=found,
            )
        return _Parity(error, largest)

    def _first_difference(self, tensors: list[Tensor], allowed: float) -> LayerDifference | None:
        try:
            return self.target.first_difference(self.exportable, self.artefact, tensors, allowed)
        except Exception:  # a runtime that cannot give what is inside the file; it stays refused
            return None

    def _differs(self, what: str) -> str:
        return (
            f"{self.exportable.name} in {self.target.title} ({self.precision}) differs from the "
            f"live model on {what}"
        )

    def _remedy(self) -> str:
        if self.target.remedy:
            return f"; {self.target.remedy}"
        is_own = self.precision == self.exportable.precision
        return "; export it in fp32" if self.precision in ("fp16", "bf16") and not is_own else ""

    def _latency(self, run: Run, seconds: float) -> dict[str, Any]:
        """The latencies of the live model and of the artefact, timed in turn."""
        if not seconds:
            return {}
        model, tensors = self.exportable.model, self.exportable.tensors
        inputs = self.exportable.inputs.clone()
        live = Candidate("live", lambda: inputs(model), self.threads)
        exported = Candidate("exported", lambda: run(tensors), self.threads)
        rounds = rounds_in_turn([live, exported], rounds=ROUNDS, seconds=seconds)
        with running_in_turns(model):
            for measured in rounds:
                samples = measured
                stop_if_asked(self.should_stop, STOPPED)
        ratio, interval = ratio_of_rounds(samples["live"], samples["exported"])
        return {
            "latency_ms": samples["exported"].median_ms,
            "live_ms": samples["live"].median_ms,
            "speed_up": ratio,
            "interval": interval,
        }
