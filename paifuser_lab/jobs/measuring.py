"""A recipe applied, timed and profiled; and the last profile of a model, kept between sessions so
that a workbench shows it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from .._files import cache_file
from ..errors import FileError
from ..machine import machine_label
from ..profiler import profile
from ..profiler.recording import wake_profiler
from ..records import Comparison, Profile
from ..variant import Variant, apply_as_timed
from ..variant.comparison import compare
from ..variant.recipe import Recipe
from ..workload import Workload

QUICK_ROUNDS, QUICK_S = 5, 1.0  # for the first figure
PROFILE_S = 2.0  # for the timed runs of a profile
MIN_KEPT_MS = 5.0  # a faster model is profiled before its old profile is read

logger = logging.getLogger(__name__)
OnRound = Callable[[int, Comparison], None]


@dataclass(frozen=True)
class Measuring:
    """Measures recipes on a model, until `should_stop`."""

    work: Workload
    rounds: int
    seconds: float
    should_stop: Callable[[], bool]

    def applied(self, recipe: Recipe) -> Variant:
        """The variant of a recipe."""
        return apply_as_timed(self.work, recipe, should_stop=self.should_stop)

    def timed(self, variant: Variant, on_round: OnRound) -> Comparison:
        """The variant timed against the unchanged model."""
        return compare(
            self.work,
            *([variant] if len(variant.recipe) else []),
            rounds=self.rounds,
            seconds=self.seconds,
            should_stop=self.should_stop,
            on_round=on_round,
        )

    def timed_quickly(self, on_round: OnRound) -> Comparison:
        """A first figure of the unchanged model, from its first round on; better ones follow."""
        return compare(
            self.work,
            rounds=min(QUICK_ROUNDS, self.rounds),
            seconds=min(QUICK_S, self.seconds),
            metric=False,
            should_stop=self.should_stop,
            on_round=on_round,
        )


def profiled(subject: Workload | Variant) -> Profile:
    """The profile of a variant, or of the unchanged model, which the next session begins with."""
    record = profile(subject, seconds=PROFILE_S)
    if isinstance(subject, Workload):
        keep_profile(subject, record)
    return record


def earlier_profile(work: Workload) -> Profile | None:
    """The profile of this model from an earlier session on this machine; None if there is none.

    Starts torch's profiler, too: a first start outside the main thread would print a warning.
    """
    wake_profiler()
    with suppress(FileError, OSError):
        return Profile.load(_path(work)).model_copy(update={"workload": work.name})
    return None


def keep_profile(work: Workload, profile: Profile) -> None:
    """Keep a profile for the next session; a cache that cannot be written only costs that."""
    if profile.latency_ms < MIN_KEPT_MS or profile.is_interrupted:
        return
    try:
        profile.save(_path(work))
    except (FileError, OSError) as error:
        logger.info("the profile of %s is not kept: %s", work.name, error)


def _path(work: Workload) -> Path:
    """A file for this structure, these inputs and this machine; values of weights do not matter."""
    return cache_file(
        "profile",
        work.model,
        *(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in work.model.named_parameters()),
        *(f"{tuple(x.shape)} {x.dtype}" for x in work.inputs.tensors),
        work.device,
        machine_label(),
        torch.__version__,
    )
