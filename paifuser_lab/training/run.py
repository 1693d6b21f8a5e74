"""A training under way: step after step, each whole or not at all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from torch import Tensor, nn

from ..errors import PaifuserError, StepError, StoppedError, first_line
from ..progress import Progress
from ..records import counted
from ..workload import QUIET, Inputs
from ..workload.data import Batch, Batches
from ..workload.seeding import preserve_rng
from .learner import Learner
from .result import Trained
from .resume import Kept, Moment

Objective = Callable[[nn.Module, Inputs, Any], Tensor]  # calls the model itself: `inputs(model)`
OnEpoch = Callable[[int, int, float], None]  # epoch, epochs, mean loss
BeforeStep = Callable[[float], None]  # the share of all steps that is done

SAVE_EVERY_S = 20.0


@dataclass(frozen=True)
class Hooks:
    """Functions that a training calls on the way."""

    should_stop: Callable[[], bool] = lambda: False
    on_epoch: OnEpoch = lambda epoch, epochs, loss: None
    before_step: BeforeStep = lambda done: None


class Run:
    """How far a training has come, and the last sound moment, to which whatever ends it early puts
    it back.
    """

    def __init__(
        self,
        learner: Learner,
        batches: Batches,
        objective: Objective,
        kept: Kept | None,
        hooks: Hooks,
    ) -> None:
        self.learner, self.batches, self.objective, self.kept, self.hooks = (
            learner,
            batches,
            objective,
            kept,
            hooks,
        )
        self.model, self.plan = learner.parts["model"], learner.plan
        self.epoch = self.step = 0
        self.losses: list[float] = []
        self.seconds, self.since = 0.0, time.monotonic()
        self.sound = self._moment()
        self._go_on_from_kept()
        self.began_at, self.was_done = len(self.losses), self.sound.is_done

    def learn(self, shown: Progress) -> None:
        """Do all that is left to do."""
        shown.advance(self.began_at)
        try:
            while self.epoch < self.plan.epochs:
                self._one_epoch(shown)
        except KeyboardInterrupt:
            self._go_back()
            raise KeyboardInterrupt(self._how_far()) from None
        except BaseException:
            self._go_back()
            raise

    def trained(self) -> Trained:
        """What came of it."""
        notes = () if self.kept is None else tuple(self.kept.notes)
        losses, skipped = tuple(self.losses), self.learner.skipped
        return Trained(
            losses,
            self.plan.epochs,
            self.sound.seconds,
            self.began_at,
            self.was_done,
            skipped,
            notes,
        )

    def _one_epoch(self, shown: Progress) -> None:
        saved = time.monotonic()
        with closing(self.batches.epoch(self.plan.seed, self.epoch, self.step)) as left:
            while self._one_step(left):
                shown.advance(
                    doing=(
                        f"epoch {self.epoch + 1} · loss {self.losses[-1]:.4g} · rate "
                        f"{self._rate:.2g}"
                    )
                )
                if time.monotonic() - saved > SAVE_EVERY_S:
                    self._keep()
                    saved = time.monotonic()
        if not self.step:
            raise StepError(
                f"the {self.batches.what} give nothing in epoch {self.epoch + 1}; can they be gone "
                "through only once?"
            )
        done, self.epoch, self.step = self.losses[len(self.losses) - self.step :], self.epoch + 1, 0
        self._keep()
        self.hooks.on_epoch(self.epoch, self.plan.epochs, fmean(done))

    def _one_step(self, left: Iterator[Batch]) -> bool:
        """Learn from the next batch; whether there was one."""
        with QUIET, preserve_rng(self.learner.device):
            try:
                batch = next(left, None)
            except PaifuserError:  # the data's fault: what was learned until now is sound
                self._keep()
                raise
            if batch is None:
                return False
            if self.hooks.should_stop():
                self._keep()
                raise StoppedError(self._how_far())
            self.hooks.before_step(self._progress)
            self._learn_from(batch)
        return True

    def _learn_from(self, batch: Batch) -> None:
        try:
            loss = self.learner.loss(
                lambda: self.objective(self.model, batch.inputs.clone(), batch.target)
            )
            value = self._checked(loss)
            if not self.learner.take_step(loss, self._rate):
                raise StepError(self._broken("gradient became infinite"))
        except PaifuserError:
            raise
        except Exception as error:
            raise StepError(
                f"{self._where()} fails ({type(error).__name__}: {first_line(error).rstrip('.')})."
            ) from error
        self.losses.append(value)
        self.step += 1

    def _checked(self, loss: Any) -> float:
        """The value of a loss that can be followed."""
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = (
                f"has shape {tuple(loss.shape)}"
                if isinstance(loss, Tensor)
                else f"is a {type(loss).__name__}"
            )
            raise StepError(f"the loss {what}; let it be one number, such as the mean.")
        if not loss.requires_grad:
            raise StepError(
                "the loss does not depend on any weight that can be trained; is it cut off by "
                "detach or no_grad?"
            )
        value = float(loss.detach())
        if not math.isfinite(value):
            raise StepError(self._broken(f"loss became {value}"))
        return value

    def _broken(self, what: str) -> str:
        """The sentence on a loss that cannot be followed: where, what is left of the training, and
        what to try.
        """
        if not self.losses:
            return (
                f"the {what} in the first step; look for a NaN or an infinity in the train data "
                "and the targets."
            )
        at = (
            f"step {self.sound.step} of epoch {self.sound.epoch + 1}"
            if self.sound.step
            else counted(self.sound.epoch, "epoch")
        )
        left = (
            f"what was learned until after {at} is kept"
            if self.sound.losses
            else "nothing of it is kept"
        )
        return (
            f"the {what} in {self._where()}, and {left}; try a learning_rate below "
            f"{self.plan.learning_rate:g}, or a longer warm_up."
        )

    def _where(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step + 1} of {self.batches.count}"

    def _how_far(self) -> str:
        """The sentence on an end before the end."""
        epochs = counted(self.plan.epochs, "epoch")
        inside = (
            f"step {self.step} of {self.batches.count} in epoch {self.epoch + 1} of "
            f"{self.plan.epochs}"
        )
        again = "" if self.kept is None else "; apply it again to go on from there"
        return f"stopped after {inside if self.step else f'{self.epoch} of {epochs}'}{again}."

    @property
    def _progress(self) -> float:
        """The share of all steps that is done."""
        return (self.epoch + min(1.0, self.step / self.batches.count)) / self.plan.epochs

    @property
    def _rate(self) -> float:
        return self.plan.rate_at(self._progress)

    def _moment(self) -> Moment:
        is_done = self.epoch >= self.plan.epochs
        tensors = self.learner.tensors(with_optimizer=not is_done)
        seconds = self.seconds + time.monotonic() - self.since
        scaler = dict(self.learner.scaler.state_dict())
        return Moment(
            tensors,
            self.epoch,
            self.step,
            tuple(self.losses),
            scaler,
            self.learner.skipped,
            seconds,
            is_done,
        )

    def _keep(self) -> None:
        """Where it stands is sound: keep it in memory, and on disk where it has a place."""
        self.sound = self._moment()
        if self.kept is not None:
            self.kept.save(self.sound)

    def _go_on_from_kept(self) -> None:
        found = None if self.kept is None else self.kept.load()
        if found is not None and self.kept is not None:
            if self.learner.fits(found.tensors):
                self.sound, self.seconds = found, found.seconds
                self._go_back()
            else:
                self.kept.notes.append(
                    "what an earlier run kept is of another model and was ignored"
                )

    def _go_back(self) -> None:
        """To the last sound moment."""
        self.epoch, self.step, self.losses = (
            self.sound.epoch,
            self.sound.step,
            list(self.sound.losses),
        )
        self.learner.skipped = self.sound.skipped
        self.learner.put_back(self.sound.tensors, self.sound.scaler)
