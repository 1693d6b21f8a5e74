"""The base class of steps that train: options of training, a checkpoint, notes on the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import nn

from ..errors import StepError
from ..model.formats import HALVES
from ..quantization import QuantizedLayer
from ..quantization.float_formats import computes_in_16_bits
from ..records import counted
from ..training import Batches, CheckpointFile, Objective, Trained, Training, train
from ..training.fingerprints import fingerprints
from .step import Draft, Step


class TrainingStep(Training, Step):
    """A step that trains; it has the options of `Training` and its own."""

    @property
    def plan(self) -> Training:
        """The options of training alone."""
        return Training(**{name: getattr(self, name) for name in Training.model_fields})

    @property
    def label(self) -> str:
        return f"{self.kind} {counted(self.epochs, 'epoch')}"

    def joined(self, newer: Self) -> Self | None:
        """One step with the newer options: training again is another number of epochs."""
        return self.updated(newer)

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Do nothing: training changes values only."""

    def batches(self, draft: Draft) -> Batches:
        """The train data of the workload."""
        if draft.work.train is None:
            raise StepError(
                "it has no train data; give the workload data: Workload(model, inputs, "
                "train=[(inputs, target), …])."
            )
        return Batches(draft.work.train, draft.work.device)

    def train(
        self,
        draft: Draft,
        objective: Objective,
        batches: Batches,
        *,
        extra: nn.Module | None = None,
        before_step: Callable[[float], None] | None = None,
    ) -> Trained:
        """Train the draft, resuming an interrupted run of the same training; note how it went."""
        before = draft.work.evaluate(draft.module)
        checkpoint_file = CheckpointFile(
            self.kind,
            self.model_dump_json(exclude={"why"}),
            *fingerprints(
                [draft.work.model, draft.module],
                draft.work.inputs,
                draft.work.loss,
                batches,
                should_stop=draft.should_stop,
            ),
        )
        trained = train(
            draft.module,
            batches,
            objective,
            self.plan,
            extra=extra,
            checkpoint_file=checkpoint_file,
            should_stop=draft.should_stop,
            before_step=before_step,
        )
        draft.notes += _training_notes(trained)
        if before is not None:
            draft.notes.append(
                f"{draft.work.metric_name} {before:.4f} → {draft.work.evaluate(draft.module):.4f}"
            )
        return trained


def check_trainable(draft: Draft, kind: str) -> None:
    """Raise an error if weights are rounded or in 16 bits."""
    for name, layer in draft.module.named_modules():
        if isinstance(layer, QuantizedLayer):
            instead = "put all of it into one qat" if kind == "qat" else "or use qat instead"
            raise StepError(
                f"layer '{name}' ({layer.format}) is rounded and has no gradients; put '{kind}' "
                f"before precision, {instead}."
            )
    for name, weight in draft.module.named_parameters():
        if weight.dtype in HALVES:
            held = str(weight.dtype).removeprefix("torch.")
            order = f"'{kind}' before precision"
            if computes_in_16_bits(draft.work.model):
                order = f'{{"precision": "fp32"}} before {kind!r}'
            raise StepError(f"'{name}' is {held}, in which small steps are lost; put {order}.")


def _training_notes(trained: Trained) -> list[str]:
    """The notes on a training."""
    steps = counted(len(trained.losses), "step")
    went = (
        f"loss {trained.first_loss:.4g} → {trained.last_loss:.4g} in "
        f"{counted(trained.epochs, 'epoch')}, {steps}, {trained.seconds:.1f} s"
    )
    notes = [went, *trained.notes]
    if trained.is_kept:
        notes.append(
            "taken from the cache, where an earlier run kept its end; nothing was trained anew"
        )
    elif trained.began_at:
        notes.append(f"went on from step {trained.began_at}, where an earlier run ended")
    if trained.skipped:
        notes.append(
            f"{counted(trained.skipped, 'step')} had a gradient past fp16 and changed nothing"
        )
    return notes
