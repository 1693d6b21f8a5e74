"""Quantization-aware training: layers are trained while they are rounded as by `precision`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor, nn

from ..errors import StepError
from ..quantization import (
    Calibration,
    How,
    int4_notes,
    no_layer_message,
    norms_of,
    remembered_of,
    restore_layers,
    supported_formats,
)
from ..quantization.qat import QatModel, prepare
from ..quantization.quantize import int8_notes
from ..records import counted
from ..training.distillation import Answers, Kinds, Lesson, Teacher, distance, kinds_of
from ..workload import Inputs, Loss, running
from ..workload.data import calibration_batches
from .step import Draft, by_pattern, matching, parts
from .training_step import TrainingStep, check_trainable

Name = Literal["fp32", "int8", "int8-weights", "int4-weights"]


class Qat(TrainingStep):
    """Train a model with its layers rounded, so that the integer layers reproduce the original's
    output.

    In training, the output of a layer is exactly that of the int8 layer that it becomes; gradients
    pass straight through the roundings. The result has the same layers, and so exports to the same
    file, as `precision`, but with trained weights and ranges. Layers in fp32 are trained along.
    """

    kind: ClassVar[str] = "qat"
    learning_rate: float = Field(
        default=3e-4, gt=0, description="the highest that the schedule comes to"
    )
    default: Name = Field(
        default="int8", description="what layers are in where `layers` says no other and they can"
    )
    layers: dict[str, Name] = Field(
        default={}, description="pattern of dotted paths → format; later patterns win"
    )
    calibration: How = Field(
        default="min-max", description="how the ranges are found that int8 begins with"
    )
    calibration_batches: int = Field(
        default=4, ge=1, description="batches of data that the first ranges are found on"
    )
    reduced_range: bool | None = Field(
        default=None,
        description="whether int8 weights use 7 bits, so that no processor saturates; by default "
        "where this one would",
    )
    learn_steps: bool = Field(
        default=True, description="whether ranges, and the scales of weights, are learned too"
    )
    freeze_norms_after: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the steps in which batch-norms use and gather batch statistics",
    )
    temperature: float = Field(
        default=4.0, gt=0, description="the higher, the more the unlikely classes count"
    )
    hard: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="weight of the workload's own loss; the original's outputs have the rest",
    )
    answers: Answers = Field(
        default="auto", description="whether outputs are scores of classes, or values"
    )

    @property
    def label(self) -> str:
        named = (f"{pattern}: {name}" for pattern, name in self.layers.items())
        return " · ".join((f"qat {self.default}", *named, counted(self.epochs, "epoch")))

    def joined(self, newer: Self) -> Self | None:
        """One step with the newer options and formats; a repeated pattern moves to the end."""
        return self.updated(newer, layers=by_pattern(self.layers, newer.layers))

    def apply(self, draft: Draft) -> None:
        """Round the layers, train, and insert the quantized layers."""
        check_trainable(draft, self.kind)
        if self.hard and draft.work.loss is None:
            raise StepError(
                f"hard: {self.hard:g} asks for the workload's own loss, and it has none; give it "
                "one, or leave hard out."
            )
        batches, norms = self.batches(draft), norms_of(draft.module)
        layers, notes = supported_formats(
            draft.work, draft.module, self._chosen(draft.module), self.layers, stay_tied=False
        )
        calibration = Calibration(self.calibration, self.calibration_batches)
        trained = prepare(
            draft.work,
            draft.module,
            layers,
            calibration,
            learns=self.learn_steps,
            reduced_range=self.reduced_range,
        )
        teacher = Teacher(draft.work.model)
        objective = self._objective(
            draft, teacher.teach(batches.first()).target, batches.first().inputs
        )
        draft.notes += [*notes, *_notes(trained, layers)]
        self.train(
            draft,
            objective,
            batches.mapped(teacher.teach),
            before_step=lambda done: self._freeze(trained, done),
        )
        if sums := trained.convert():
            note = f"{counted(sums, 'sum')} (concatenations too) on integers in exported files"
            draft.notes.append(note)
        draft.notes += int4_notes(draft.work, draft.module, layers)
        draft.remembered = remembered_of(draft.module, set(layers), norms)
        if int8 := [layer for layer, name in layers.items() if name == "int8"]:
            data = calibration_batches(draft.work, calibration.batches)
            draft.notes += int8_notes(draft.work, draft.module, len(int8), calibration, data)

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Insert the same quantized layers."""
        restore_layers(draft.module, remembered)

    def _chosen(self, model: nn.Module) -> dict[str, str]:
        """The format of each layer with a weight, without those that stay in fp32."""
        names = [name for name, _ in model.named_modules() if name]
        owners = [
            name
            for name in names
            if next(model.get_submodule(name).parameters(recurse=False), None) is not None
        ]
        if not owners:
            raise StepError(no_layer_message(model, self.kind))
        chosen: dict[str, str] = dict.fromkeys(owners, self.default)
        for pattern, precision in self.layers.items():
            chosen |= dict.fromkeys(
                parts(owners, matching(names, pattern, what=self.kind)), precision
            )
        whole = {layer: name for layer, name in chosen.items() if name != "fp32"}
        if not whole:
            raise StepError(
                "no layer is to be in integers; choose int8, int8-weights or int4-weights for some."
            )
        return whole

    def _objective(self, draft: Draft, lesson: Lesson, inputs: Inputs) -> _Objective:
        with running(draft.module):
            output = inputs.clone()(draft.module)
        loss = draft.work.loss if self.hard and lesson.target is not None else None
        if self.hard and loss is None:
            draft.notes.append("learned from the original alone, as there are no labels")
        return _Objective(
            kinds_of(output, lesson.target, self.answers), self.temperature, self.hard, loss
        )

    def _freeze(self, trained: QatModel, done: float) -> None:
        if done >= self.freeze_norms_after:
            for norm in trained.norms:
                norm.eval()


@dataclass(frozen=True)
class _Objective:
    """The distance of the output from the original's, and the workload's own loss."""

    kinds: Kinds
    temperature: float
    hard: float
    loss: Loss | None

    def __call__(self, model: nn.Module, inputs: Inputs, lesson: Lesson) -> Tensor:
        output = inputs(model)
        if self.loss is not None and self.hard == 1:
            return self.loss(output, lesson.target)
        soft = distance(output, lesson.answers, self.kinds, self.temperature)
        return (
            soft
            if self.loss is None
            else self.hard * self.loss(output, lesson.target) + (1 - self.hard) * soft
        )


def _notes(trained: QatModel, layers: Mapping[str, str]) -> list[str]:
    """The notes on which layers are trained in which format."""
    notes: list[str] = []
    for name, count in Counter(layers.values()).items():
        steps = "with their ranges and scales" if name == "int8" else "with their scales"
        notes.append(
            f"{counted(count, 'layer')} trained in {name}"
            + (f", {steps}" if trained.learns else "")
        )
    return (
        [*notes, f"{counted(trained.folded, 'batch-norm layer')} folded into them"]
        if trained.folded
        else notes
    )
