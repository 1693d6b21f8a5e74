"""A worker: stages opened once, called with one group after another, in a thread or an actor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import StreamError, first_line
from .source import Group, checksum
from .stage import FrameError, Stage


@dataclass(frozen=True)
class Answer:
    """What a worker returns for a group, or for the frames of it that it was asked for.

    `values` has a value or a FrameError for each frame, `stage_s` the seconds in each stage. With
    `refusal` the stream cannot go on; a corrupt group is sent again.
    """

    values: tuple[Any, ...] = ()
    stage_s: tuple[float, ...] = ()
    is_corrupt: bool = False
    refusal: str = ""


class Worker:
    """Stages, open."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages

    def open(self) -> None:
        """Open every stage; one that cannot be opened closes those before it."""
        for index, stage in enumerate(self.stages):
            try:
                stage.open()
            except Exception as error:
                self.close(index)
                raise StreamError(
                    f"The stage '{stage.name}' could not open: {first_line(error)}"
                ) from error

    def close(self, count: int | None = None) -> None:
        """Close the stages, all of them although one fails; the first failure is raised."""
        failures = []
        for stage in reversed(self.stages[:count]):
            try:
                stage.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def process(self, group: Group, offsets: tuple[int, ...] | None = None) -> Answer:
        """The group through all stages; with `offsets` only those of its frames, once decoded."""
        if group.checksum is not None and checksum(group.payload) != group.checksum:
            return Answer(is_corrupt=True)
        if group.checksum is not None and not self._takes_group:
            return Answer(
                refusal="The source sends encoded groups; put a stage that decodes them, such as "
                "Decode, first in the stream."
            )
        items: list[Any] = [] if self._takes_group else list(group.payload)
        seconds = []
        for index, stage in enumerate(self.stages):
            begun = time.perf_counter()
            try:
                if stage.takes_group:
                    items = _decoded(stage, group)
                if offsets is not None and index == self._takes_group:
                    items = [items[offset] for offset in offsets]
                if not stage.takes_group:
                    items = _answered(stage, items)
            except StreamError as error:
                return Answer(refusal=str(error))
            seconds.append(time.perf_counter() - begun)
        if offsets is not None and len(self.stages) == self._takes_group:
            items = [items[offset] for offset in offsets]
        return Answer(tuple(items), tuple(seconds))

    @property
    def _takes_group(self) -> bool:
        return bool(self.stages) and self.stages[0].takes_group


def _decoded(stage: Stage, group: Group) -> list[Any]:
    """The frames of an encoded group; all of them in error if the stage raises."""
    try:
        items = list(stage(group.payload))
    except Exception as error:
        return [_failure(stage, error)] * group.count
    if len(items) != group.count:
        raise StreamError(
            f"The stage '{stage.name}' returned {len(items)} frames for a group of {group.count}; "
            "it must return every frame, or a FrameError in its place."
        )
    return items


def _answered(stage: Stage, items: list[Any]) -> list[Any]:
    """The items after a stage; those in error pass by it."""
    live = [index for index, item in enumerate(items) if not isinstance(item, FrameError)]
    answers = _called(stage, [items[index] for index in live]) if live else []
    result = list(items)
    for index, answer in zip(live, answers, strict=True):
        result[index] = answer
    return result


def _called(stage: Stage, items: list[Any]) -> list[Any]:
    """The stage's answers; if it raises on the list, each item is tried alone."""
    try:
        answers = stage(items)
    except Exception as error:
        if len(items) == 1:
            return [_failure(stage, error)]
        return [answer for item in items for answer in _called(stage, [item])]
    if not isinstance(answers, Sequence) or len(answers) != len(items):
        number = len(answers) if isinstance(answers, Sequence) else type(answers).__name__
        raise StreamError(
            f"The stage '{stage.name}' returned {number} for {len(items)} frames; it must return "
            "a list with one answer for each."
        )
    return list(answers)


def _failure(stage: Stage, error: Exception) -> FrameError:
    return FrameError(stage.name, f"{type(error).__name__}: {first_line(error)}")
