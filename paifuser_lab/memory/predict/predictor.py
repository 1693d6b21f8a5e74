"""Predict the peak of a call or training step of a workload, at any batch size.

Most operators on a CPU allocate nothing but their outputs. Convolutions do: oneDNN computes in
layouts of its own, so images, weights and results in torch's layout are converted inside the
operator (`convolutions`). Others copy an argument that is not contiguous, or compute an
intermediate result. What oneDNN and MKL take from the system itself is not known here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from ...arguments import check_count, checked_options
from ...errors import MeasureError, PaifuserError, first_line
from ...machine.host import threads
from ...model.flops import counter
from ...model.watch import watching
from ...records import Held, PeakBytes, PredictedPeak, StepOptions
from ...records.predicted_peak import MAX_LAYERS
from ...workload import Derived, Workload, outside_inference, workload_of
from ...workload.batching import example_batch
from ...workload.seeding import preserve_rng
from .convolutions import backward_workspace, forward_workspace
from .ledger import FORWARD, OPTIMIZER, Ledger, Peak
from .step import Observer, Subject, example_of, run, watching_gradients

aten = torch.ops.aten
Formula = Callable[[tuple[Any, ...], Any], int]


def workspace_of(func: Any, args: tuple[Any, ...], output: Any) -> int:
    """The bytes that a call holds inside beyond its outputs, at the most."""
    formula = FORMULAS.get(func)
    device = next((leaf.device.type for leaf in args if isinstance(leaf, Tensor)), "")
    return 0 if formula is None or device != "cpu" else max(0, formula(args, output))


def _batch_norm_backward(args: tuple[Any, ...], output: Any) -> int:
    """The terms of the gradient, where both arguments are contiguous."""
    gradient, image = args[:2]
    is_plain = gradient.is_contiguous() and image.is_contiguous()
    return int(image.nbytes) if is_plain else 0


def _copies(*positions: int) -> Formula:
    """Contiguous copies of these arguments, where they are not contiguous."""

    def formula(args: tuple[Any, ...], output: Any) -> int:
        tensors = [args[position] for position in positions]
        return sum(tensor.nbytes for tensor in tensors if not tensor.is_contiguous())

    return formula


FORMULAS: dict[Any, Formula] = {
    aten.convolution.default: forward_workspace,
    aten.convolution_backward.default: backward_workspace,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_layer_norm.default: _copies(0),
    aten.native_layer_norm_backward.default: _copies(0, 1),
    # several dimensions are rolled one after the other
    aten.roll.default: lambda args, output: int(output.nbytes) if len(args[1]) > 1 else 0,
    # which scores are minus infinity
    aten._safe_softmax.default: lambda args, output: int(args[0].numel()),
}


def fake_model(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A deep copy whose parameters and buffers are fake; nothing of their size is allocated."""
    tensors = (*model.parameters(), *model.buffers())
    known: dict[int, Any] = {id(tensor): mode.from_tensor(tensor) for tensor in tensors}
    for weight in model.parameters():
        known[id(weight)].grad = None
    return copy.deepcopy(model, known)


NOTES = {
    "cpu": "Not in it: what oneDNN and MKL take from the system themselves, what the C library "
    "keeps of freed memory, and Python and torch.",
    "cuda": "Not in it: workspace of cuDNN and cuBLAS, fragmentation, and the CUDA context.",
}


def predicted_peak(
    subject: Workload | Derived, train: bool = False, *, batch: int | None = None, **options: Any
) -> PredictedPeak:
    """Predict the peak memory of one call, or of one step of training, without running it.

    The batch is that of the example inputs unless another is given. Options are the fields of
    `StepOptions`: precision, optimizer, momentum, implementation, checkpoint.
    """
    work = workload_of(subject)
    predictor = Predictor(subject, options_of(train=train, **options))
    return predictor.peak(example_batch(work) if batch is None else batch)


def options_of(**options: Any) -> StepOptions:
    """The options of a step; an invalid one is refused in a sentence."""
    return checked_options(StepOptions, options, "a step", MeasureError)


class Predictor:
    """Predicts peaks of one workload with the same options; each batch is predicted once."""

    @outside_inference
    def __init__(
        self, subject: Workload | Derived, options: StepOptions, like: Predictor | None = None
    ) -> None:
        self.work, self.options = workload_of(subject), options
        self._threads = subject.own_threads
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._peaks: dict[int, PredictedPeak] = {}
        self._totals: dict[int, numpy.ndarray] = {}  # at each moment, by batch
        # The optimizer's own step is the same for every batch, and for one `like` this: it is run
        # once where `has_same_update` holds.
        self._optimizer: torch.optim.Optimizer | None = like._optimizer if like else None
        self._last_update: Peak | None = like._last_update if like else None
        inputs, target, self._example = example_of(self.work, options)
        with self._explained(""):
            model = fake_model(self.work.model, self._mode)
            inputs = inputs.map(self._mode.from_tensor)
            target = pytree.tree_map_only(Tensor, self._mode.from_tensor, target)
            with self._mode:
                self._subject = Subject(model, inputs, self.work.loss, target, options).prepare()

    def peak(self, batch: int) -> PredictedPeak:
        """The predicted peak at a batch size."""
        check_count("batch", batch)
        if batch not in self._peaks:
            self._peaks[batch] = self._predicted(batch)
        return self._peaks[batch]

    def peak_bytes(self, batch: int) -> int | None:
        """The predicted bytes at a batch size; None where they cannot be predicted."""
        try:
            return self.peak(batch).peak_bytes
        except PaifuserError:
            return None

    def line(self, start: int) -> Callable[[int], int] | None:
        """The predicted bytes of any batch from two predictions, at `start` and at its double; None
        where these cannot be joined.

        What is held at each moment grows by the same bytes with each example in most models, so
        that the peak is the largest of many lines. Whoever relies on it predicts a third batch.
        """
        sizes = start, 2 * start
        if any(self.peak_bytes(size) is None for size in sizes):
            return None
        first, second = (self._totals[size] for size in sizes)
        if len(first) != len(second):
            return None
        slope, rest = numpy.divmod(second - first, start)
        if rest.any():
            return None
        return lambda batch: int((first + slope * (batch - start)).max())

    def flops(self, batch: int) -> int:
        """The FLOPs of the call, or of a step of training, at a batch size."""
        self.peak(batch)  # makes the optimizer's state, after which a run is one step
        with counter() as counted:
            self._run(batch, Ledger(lambda *call: 0))
        return int(counted.get_total_flops())

    @outside_inference
    def _predicted(self, batch: int) -> PredictedPeak:
        ledger = Ledger(workspace_of)
        self._run(batch, ledger)
        if self._last_update is not None and OPTIMIZER not in ledger.peaks:
            inputs = ledger.peaks[FORWARD].held.get("inputs", 0)
            ledger.peaks[OPTIMIZER] = self._last_update.with_inputs(inputs)
        self._last_update = ledger.peaks.get(OPTIMIZER)
        peak = max(ledger.peaks.values(), key=lambda peak: peak.total)
        last = [self._last_update.total] if self._last_update is not None else []
        self._totals[batch] = numpy.array([*ledger.totals, *last], numpy.int64)
        device = self.work.device.type
        layers = sorted(peak.layers.items(), key=lambda item: -item[1])[:MAX_LAYERS]
        held = {
            f"{name.replace(' ', '_')}_bytes": count for name, count in peak.held.items() if count
        }
        return PredictedPeak(
            workload=self.work.name,
            device=device,
            batch=batch,
            options=self.options,
            held=PeakBytes(**held),
            moment=peak.moment,
            layers=tuple(
                Held(layer=layer, kind="activations", held_bytes=count)
                for layer, count in layers
                if count
            ),
            note=NOTES.get(device, ""),
        )

    def _run(self, batch: int, ledger: Ledger) -> None:
        """Run the step without values, observed by the ledger."""
        with self._explained(f" at a batch of {batch}"), ExitStack() as stack:
            stack.enter_context(preserve_rng(self.work.device))
            stack.enter_context(threads(self._threads))
            stack.enter_context(self._mode)
            subject = self._with_batch(batch)
            ledger.enter_storages("weights", subject.model.parameters())
            ledger.enter_storages("weights", subject.model.buffers())
            ledger.enter_storages("optimizer state", self._optimizer_state())
            ledger.enter_storages("inputs", subject.tensors)
            enter = partial(ledger.enter_storages, "gradients")
            stack.enter_context(watching_gradients(subject.model, enter))
            stack.enter_context(watching(subject.model, ledger.enter, ledger.leave))
            stack.enter_context(ledger)
            observer = Observer(ledger.begin, partial(ledger.enter_storages, "optimizer state"))
            self._optimizer = run(subject, observer, self._optimizer)

    def _optimizer_state(self) -> list[Any]:
        """The state that the optimizer has kept since the first prediction."""
        states = self._optimizer.state.values() if self._optimizer is not None else ()
        return [value for state in states for value in state.values()]

    def _with_batch(self, batch: int) -> Subject:
        """The subject at this batch: tensors whose first dimension is the example's are resized."""

        def resized(tensor: Tensor) -> Tensor:
            if not tensor.ndim or tensor.shape[0] != self._example:
                return tensor.clone()
            is_last = tensor.ndim == 4 and not tensor.is_contiguous()
            layout = torch.channels_last if is_last else torch.contiguous_format
            return torch.empty(
                (batch, *tensor.shape[1:]),
                dtype=tensor.dtype,
                device=tensor.device,
                memory_format=layout,
            )

        inputs = self._subject.inputs.map(resized)
        target = pytree.tree_map_only(Tensor, resized, self._subject.target)
        return replace(self._subject, inputs=inputs, target=target)

    @contextmanager
    def _explained(self, where: str) -> Iterator[None]:
        """Wrap whatever a model raises on fake tensors into a sentence."""
        try:
            yield
        except PaifuserError as error:
            raise MeasureError(f"{self.work.name}: {error}") from error
        except Exception as error:
            measured = (
                "lab.memory_snapshot(work, train=True)"
                if self.options.train
                else "profiler.memory_timeline(work)"
            )
            raise MeasureError(
                f"The memory of {self.work.name}{where} cannot be predicted without running it "
                f"({type(error).__name__}: {first_line(error).rstrip('.')}); measure it with "
                f"{measured}."
            ) from error


def has_same_update(one: StepOptions, other: StepOptions) -> bool:
    """Whether the optimizer's step is the same: what it updates and how."""
    fixed = {"precision", "checkpoint"}
    is_half = [options.precision == "bf16" for options in (one, other)]
    return is_half[0] is is_half[1] and (
        one.model_dump(exclude=fixed) == other.model_dump(exclude=fixed)
    )
