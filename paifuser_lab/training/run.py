"""A training in progress: step after step, each complete or undone."""

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
from .resume import Checkpoint, CheckpointFile

Objective = Callable[[nn.Module, Inputs, Any], Tensor]  # calls the model itself: `inputs(model)`
OnEpoch = Callable[[int, int, float], None]  # epoch, epochs, mean loss
BeforeStep = Callable[[float], None]  # the share of all steps that is done

SAVE_EVERY_S = 20.0


@dataclass(frozen=True)
class Hooks:
    """Functions that a training calls."""

    should_stop: Callable[[], bool] = lambda: False
    on_epoch: OnEpoch = lambda epoch, epochs, loss: None
    before_step: BeforeStep = lambda done: None


class Run:
    """The progress of a training, and its last valid checkpoint, which is restored when the
    training ends early.
    """

    def __init__(
        self,
        learner: Learner,
        batches: Batches,
        objective: Objective,
        checkpoint_file: CheckpointFile | None,
        hooks: Hooks,
    ) -> None:
        self.learner, self.batches, self.objective, self.checkpoint_file, self.hooks = (
            learner,
            batches,
            objective,
            checkpoint_file,
            hooks,
        )
        self.model, self.plan = learner.parts["model"], learner.plan
        self.epoch = self.step = 0
        self.losses: list[float] = []
        self.seconds, self.since = 0.0, time.monotonic()
        self.valid = self._take_checkpoint()
        self._resume()
        self.began_at, self.was_done = len(self.losses), self.valid.is_done

    def learn(self, shown: Progress) -> None:
        """Run all remaining steps."""
        shown.advance(self.began_at)
        try:
            while self.epoch < self.plan.epochs:
                self._run_epoch(shown)
        except KeyboardInterrupt:
            self._restore()
            raise KeyboardInterrupt(self._interruption()) from None
        except BaseException:
            self._restore()
            raise

    def trained(self) -> Trained:
        """The result of the training."""
        notes = () if self.checkpoint_file is None else tuple(self.checkpoint_file.notes)
        losses, skipped = tuple(self.losses), self.learner.skipped
        return Trained(
            losses,
            self.plan.epochs,
            self.valid.seconds,
            self.began_at,
            self.was_done,
            skipped,
            notes,
        )

    def _run_epoch(self, shown: Progress) -> None:
        saved = time.monotonic()
        with closing(self.batches.epoch(self.plan.seed, self.epoch, self.step)) as left:
            while self._run_step(left):
                shown.advance(
                    doing=(
                        f"epoch {self.epoch + 1} · loss {self.losses[-1]:.4g} · rate "
                        f"{self._rate:.2g}"
                    )
                )
                if time.monotonic() - saved > SAVE_EVERY_S:
                    self._save()
                    saved = time.monotonic()
        if not self.step:
            raise StepError(
                f"the {self.batches.what} give nothing in epoch {self.epoch + 1}; can they be gone "
                "through only once?"
            )
        done, self.epoch, self.step = self.losses[len(self.losses) - self.step :], self.epoch + 1, 0
        self._save()
        self.hooks.on_epoch(self.epoch, self.plan.epochs, fmean(done))

    def _run_step(self, iterator: Iterator[Batch]) -> bool:
        """Train on the next batch; returns whether there was one."""
        with QUIET, preserve_rng(self.learner.device):
            try:
                batch = next(iterator, None)
            except PaifuserError:  # raised by the data: the weights are still valid
                self._save()
                raise
            if batch is None:
                return False
            if self.hooks.should_stop():
                self._save()
                raise StoppedError(self._interruption())
            self.hooks.before_step(self._progress)
            self._train_on(batch)
        return True

    def _train_on(self, batch: Batch) -> None:
        try:
            loss = self.learner.loss(
                lambda: self.objective(self.model, batch.inputs.clone(), batch.target)
            )
            value = self._checked(loss)
            if not self.learner.take_step(loss, self._rate):
                raise StepError(self._not_finite("gradient became infinite"))
        except PaifuserError:
            raise
        except Exception as error:
            raise StepError(
                f"{self._where()} fails ({type(error).__name__}: {first_line(error).rstrip('.')})."
            ) from error
        self.losses.append(value)
        self.step += 1

    def _checked(self, loss: Any) -> float:
        """The value of a loss, which must be one finite number with a gradient."""
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            problem = (
                f"has shape {tuple(loss.shape)}"
                if isinstance(loss, Tensor)
                else f"is a {type(loss).__name__}"
            )
            raise StepError(f"the loss {problem}; let it be one number, such as the mean.")
        if not loss.requires_grad:
            raise StepError(
                "the loss does not depend on any weight that can be trained; is it cut off by "
                "detach or no_grad?"
            )
        value = float(loss.detach())
        if not math.isfinite(value):
            raise StepError(self._not_finite(f"loss became {value}"))
        return value

    def _not_finite(self, problem: str) -> str:
        """The message about a loss that is not finite: where, what remains of the training, and
        what to try.
        """
        if not self.losses:
            return (
                f"the {problem} in the first step; look for a NaN or an infinity in the train data "
                "and the targets."
            )
        at = (
            f"step {self.valid.step} of epoch {self.valid.epoch + 1}"
            if self.valid.step
            else counted(self.valid.epoch, "epoch")
        )
        remainder = (
            f"what was learned until after {at} is kept"
            if self.valid.losses
            else "nothing of it is kept"
        )
        return (
            f"the {problem} in {self._where()}, and {remainder}; try a learning_rate below "
            f"{self.plan.learning_rate:g}, or a longer warm_up."
        )

    def _where(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step + 1} of {self.batches.count}"

    def _interruption(self) -> str:
        """The message about an interruption."""
        epochs = counted(self.plan.epochs, "epoch")
        inside = (
            f"step {self.step} of {self.batches.count} in epoch {self.epoch + 1} of "
            f"{self.plan.epochs}"
        )
        again = "" if self.checkpoint_file is None else "; apply it again to go on from there"
        return f"stopped after {inside if self.step else f'{self.epoch} of {epochs}'}{again}."

    @property
    def _progress(self) -> float:
        """The share of all steps that is done."""
        return (self.epoch + min(1.0, self.step / self.batches.count)) / self.plan.epochs

    @property
    def _rate(self) -> float:
        return self.plan.rate_at(self._progress)

    def _take_checkpoint(self) -> Checkpoint:
        is_done = self.epoch >= self.plan.epochs
        tensors = self.learner.tensors(with_optimizer=not is_done)
        seconds = self.seconds + time.monotonic() - self.since
        scaler = dict(self.learner.scaler.state_dict())
        return Checkpoint(
            tensors,
            self.epoch,
            self.step,
            tuple(self.losses),
            scaler,
            self.learner.skipped,
            seconds,
            is_done,
        )

    def _save(self) -> None:
        """Take a checkpoint in memory, and on disk if there is a file."""
        self.valid = self._take_checkpoint()
        if self.checkpoint_file is not None:
            self.checkpoint_file.save(self.valid)

    def _resume(self) -> None:
        checkpoint = None if self.checkpoint_file is None else self.checkpoint_file.load()
        if checkpoint is not None and self.checkpoint_file is not None:
            if self.learner.fits(checkpoint.tensors):
                self.valid, self.seconds = checkpoint, checkpoint.seconds
                self._restore()
            else:
                self.checkpoint_file.notes.append(
                    "the checkpoint of an earlier run is of another model and was ignored"
                )

    def _restore(self) -> None:
        """Restore the last valid checkpoint."""
        self.epoch, self.step, self.losses = (
            self.valid.epoch,
            self.valid.step,
            list(self.valid.losses),
        )
        self.learner.skipped = self.valid.skipped
        self.learner.restore(self.valid.tensors, self.valid.scaler)
