"""Answers requests that were joined to a batch, each with JSON values or with its own error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...errors import DataError, PaifuserError, StreamError, first_line
from ..answers import as_json
from ..frame import Frame
from ..model import ModelSource, OpenModel
from ..stages.answer import Postprocess, kind_of
from ..stages.preprocess import Preprocess

Example = Frame | list[Tensor]


class Predictor:
    """A model with what comes before and after it: images become its input, outputs become JSON.

    An image is answered by what the output means, a tensor by the output. Names of classes, mean
    and std are those that the model's workload states, unless given.
    """

    def __init__(
        self,
        model: ModelSource,
        *,
        names: Sequence[str] = (),
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        how: str = "letterbox",
        preprocess: Preprocess | None = None,
        postprocess: Postprocess | None = None,
        trust: bool = False,
    ) -> None:
        self.model = OpenModel(model, trust=trust)
        self.postprocess = postprocess or Postprocess(names=tuple(names) or self.model.classes)
        self.preprocess = preprocess
        if preprocess is None and self.model.image_shape is not None:
            self.preprocess = Preprocess.of(self.model, how=how, mean=mean, std=std)
        # an engine's first call is slow, and again its first on several examples, for which it is
        # exported anew; a model that fails on one shall fail before it is served, and one that
        # fails only on several is called for each alone
        self.model.answers([self._example()])
        Predictor.__call__(self, [self._example()] * 2)  # a subclass is not set up yet

    def __call__(self, examples: Sequence[Example]) -> list[Any]:
        """An answer for each example, or the error of that one."""
        try:
            return self._answers(examples)
        except Exception as error:
            if len(examples) == 1:
                return [_sentence(error, self.model.name)]
        # one of them fails the whole call: each for itself
        return [answer for example in examples for answer in self([example])]

    def _answers(self, examples: Sequence[Example]) -> list[Any]:
        frames = [self._prepared(example) for example in examples]
        inputs = [frame.tensor if isinstance(frame, Frame) else frame for frame in frames]
        outputs = self.model.answers(inputs)
        return [self._answer(frame, output) for frame, output in zip(frames, outputs, strict=True)]

    def _prepared(self, example: Example) -> Example:
        if not isinstance(example, Frame):
            return example
        if self.preprocess is None:
            raise DataError(f"{self.model.name} does not take images; send a tensor.")
        return self.preprocess.prepared(example)

    def _answer(self, frame: Example, output: Any) -> Any:
        if isinstance(frame, Frame) and (self.postprocess.kind != "auto" or kind_of(output)):
            return as_json(self.postprocess.answer(output, frame))
        return {"output": as_json(output)}

    def _example(self) -> list[Tensor]:
        return [tensor[0] for tensor in self.model.inputs.tensors]


def _sentence(error: Exception, name: str) -> PaifuserError:
    if isinstance(error, PaifuserError):
        return error
    return StreamError(f"{name} failed on this input: {first_line(error).rstrip('.')}.")
