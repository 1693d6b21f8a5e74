"""Trains a changed model to reproduce the original's softened outputs, and its layers'."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from ..errors import StepError
from ..model.watch import describe
from ..training.distillation import (
    Answers,
    Kinds,
    Lesson,
    Projections,
    Teacher,
    answers_of,
    attention_distance,
    blend_of,
    differing,
    distance,
    feature_distance,
    is_blendable,
    kinds_of,
    stages,
)
from ..training.low_rank import low_rank
from ..workload import Inputs, Loss, running
from .step import Draft, matching
from .training_step import TrainingStep, check_trainable

Layers = list[str] | Literal["auto"]


class Distill(TrainingStep):
    """Train a pruned, folded or otherwise changed model to output as the original does.

    The original runs in eval mode; its outputs for train data in a list are cached while they are
    small, others are computed anew each epoch.
    """

    kind: ClassVar[str] = "distill"
    temperature: float = Field(
        default=4.0, gt=0, description="the higher, the more the unlikely classes count"
    )
    hard: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="weight of the workload's own loss; the original's outputs have the rest",
    )
    answers: Answers = Field(
        default="auto", description="whether outputs are scores of classes, or values"
    )
    features: Layers = Field(
        default=[],
        description="patterns of layers trained to match the original's; auto: each stage's end",
    )
    feature_weight: float = Field(
        default=1.0, gt=0, description="weight of the distance of `features` in the loss"
    )
    attention: Layers = Field(
        default=[],
        description="patterns of layers whose outputs are large where the original's are",
    )
    attention_weight: float = Field(
        default=1.0, gt=0, description="weight of the distance of `attention` in the loss"
    )
    blend: bool = Field(
        default=False,
        description="train on examples blended with each other, on which the original runs anew",
    )
    rank: int | None = Field(
        default=None,
        ge=1,
        description="train only additions of this rank to linear layers, which are then folded in",
    )

    def apply(self, draft: Draft) -> None:
        """Find the outputs to compare, then train."""
        check_trainable(draft, self.kind)
        batches = self.batches(draft)
        features, attention = (
            self._layers(draft, patterns) for patterns in (self.features, self.attention)
        )
        teacher = Teacher(draft.work.model, list(dict.fromkeys([*features, *attention])))
        first = teacher.teach(batches.first())
        with running(draft.module), answers_of(draft.module, teacher.layers) as own:
            output = first.inputs.clone()(draft.module)
        _check(draft.module, own, first.target.layers, features, attention)
        kinds = kinds_of(output, first.target.target, self.answers)
        projections = Projections(
            draft.module, {layer: own[layer] for layer in features}, first.target.layers, self.seed
        )
        loss = draft.work.loss if self.hard and first.target.target is not None else None
        objective = _Objective(self, kinds, projections, features, attention, loss, teacher)
        if self.blend and not any(map(is_blendable, first.inputs.tensors)):
            raise StepError(
                "its inputs are integers or single examples, which cannot be blended; leave "
                "`blend` out."
            )
        lessons = batches if self.blend else batches.mapped(teacher.teach)
        extra = projections if len(projections) else None
        with low_rank(draft.module, self.rank, self.seed) if self.rank else nullcontext("") as note:
            self.train(draft, objective, lessons, extra=extra)
        draft.notes += [*filter(None, [note]), *_notes(objective, teacher)]

    def _layers(self, draft: Draft, patterns: Layers) -> list[str]:
        """The layers to compare; both models have them under the same name."""
        own = dict(draft.module.named_modules())
        names = [name for name, _ in draft.work.model.named_modules() if name and name in own]
        if patterns == "auto":
            return self._stages(draft, own)
        return list(
            dict.fromkeys(
                layer for pattern in patterns for layer in matching(names, pattern, what=self.kind)
            )
        )

    def _stages(self, draft: Draft, own: Collection[str]) -> list[str]:
        """The ends of the original's stages; raises if there are none."""
        if layers := [name for name in stages(draft.work.model, draft.work.inputs) if name in own]:
            return layers
        raise StepError(
            "auto finds no stage, as no layer outputs channels at several positions; name "
            "layers, or leave it out."
        )


@dataclass(frozen=True)
class _Objective:
    """The loss that is minimised."""

    step: Distill
    kinds: Kinds
    projections: Projections
    features: Sequence[str]
    attention: Sequence[str]
    loss: Loss | None
    teacher: Teacher

    def __call__(self, model: nn.Module, inputs: Inputs, target: Any) -> Tensor:
        """The loss of a batch; `target` is a lesson, or the labels if examples are blended."""
        if not self.step.blend:
            return self._distance(model, inputs, target, self.loss)
        # the last batch of a loader may hold a single example
        if not any(map(is_blendable, inputs.tensors)):
            return self._distance(model, inputs, self.teacher.lesson(inputs, target), self.loss)
        blend = blend_of(inputs)
        blended = blend(inputs)
        loss = None if self.loss is None else partial(blend.loss, self.loss)
        return self._distance(model, blended, self.teacher.lesson(blended, target), loss)

    def _distance(
        self, model: nn.Module, inputs: Inputs, lesson: Lesson, loss: Loss | None
    ) -> Tensor:
        with answers_of(model, [*self.features, *self.attention]) as own:
            output = inputs(model)
        total = distance(output, lesson.answers, self.kinds, self.step.temperature)
        if loss is not None:
            total = self.step.hard * loss(output, lesson.target) + (1 - self.step.hard) * total
        if self.features:
            total = total + self.step.feature_weight * feature_distance(
                self.projections, own, lesson.layers, self.features
            )
        if self.attention:
            total = total + self.step.attention_weight * attention_distance(
                self.teacher.model, own, lesson.layers, self.attention
            )
        return total


def _check(
    model: nn.Module,
    own: Mapping[str, Tensor],
    original: Mapping[str, Tensor],
    features: Sequence[str],
    attention: Sequence[str],
) -> None:
    """Check that every compared layer has an output in both models, of the same positions."""
    for layer in (*features, *attention):
        if layer not in own or layer not in original:
            raise StepError(
                f"{describe(model, layer)} outputs no floating-point tensor; leave it out."
            )
        differing(model, layer, own[layer], original[layer])
    for layer in attention:
        if own[layer].ndim < 3:
            raise StepError(
                f"{describe(model, layer)} outputs channels alone, without positions; leave it out "
                "of attention."
            )


def _notes(objective: _Objective, teacher: Teacher) -> list[str]:
    """The notes on what was compared."""
    kinds = {
        path.lstrip(".") or "its outputs": dimension for path, dimension in objective.kinds.items()
    }
    matched = [
        f"{path} as {'values' if dimension is None else 'classes'}"
        for path, dimension in kinds.items()
    ]
    for name, layers in (("features", objective.features), ("attention", objective.attention)):
        matched += [f"{name} of {', '.join(layers)}"] if layers else []
    notes = [f"learned from the original: {'; '.join(matched)}"]
    if objective.step.blend:
        notes.append(
            "each batch was blended with itself in another order, and the original asked anew"
        )
    if objective.loss is None:
        notes.append(
            "learned from the original alone"
            + (", as there are no labels or no loss" if objective.step.hard else "")
        )
    if teacher.kept and not objective.step.blend:
        notes.append(f"the original's outputs for {teacher.kept} of the batches were kept")
    return notes
