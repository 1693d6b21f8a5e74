"""A training in progress: step after step, each complete or undone."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import PaifuserError, StepError, StoppedError, first_line
from ..model.watch import describe, first_nan
from ..progress import Progress
from ..records import counted
from ..workload import QUIET
from ..workload.data import Batch, Batches
from ..workload.seeding import preserve_rng
from .checkpointing import saved_buffers
from .course import Course, Trained
from .history import History, StepFacts
from .hooks import Hooks, Objective
from .learner import Learner
from .observe import is_not_finite, layer_of_bad_gradient, range_layers
from .resume import OTHER_MODEL, Checkpoint, CheckpointFile

SAVE_EVERY_S = 20.0


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
        self.learner, self.batches, self.objective = learner, batches, objective
        self.checkpoint_file, self.hooks = checkpoint_file, hooks
        self.model, self.plan = learner.parts["model"], learner.plan
        learner.synchroniser = hooks.synchroniser
        self.epoch = self.step = 0
        self.course = self._course()
        self.layers = range_layers(self.model) if hooks.watch_every else []
        self.seconds, self.since = 0.0, time.monotonic()
        self._waited_ms = 0.0  # for the batch of this step
        self.began_from = ""
        self.valid = self._take_checkpoint()
        self._resume()
        self.began_at, self.was_done = len(self.losses), self.valid.is_done

    @property
    def steps(self) -> int:
        """The steps of the whole training."""
        return self.plan.epochs * self.batches.count

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done, or the loss has not fallen for too many."""
        return self.epoch >= self.plan.epochs or self.course.is_idle

    @property
    def losses(self) -> list[float]:
        """The loss of each step that was done."""
        return self.course.losses

    def learn(self, shown: Progress) -> None:
        """Run all remaining steps."""
        shown.advance(self.began_at)
        try:
            with self.learner.prepared():
                while not self.is_over:
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
                self.hooks.on_step(self)
                if time.monotonic() - saved > self._save_every_s:
                    self._save()
                    saved = time.monotonic()
        self.epoch, self.step = self.epoch + 1, 0
        with self.learner.computing(is_lower=self.plan.weights == "bf16"):
            self.course.end_epoch(self.hooks.metric())
        self._save()

    def _run_step(self, iterator: Iterator[Batch]) -> bool:
        """Train on the next batch; returns whether there was one."""
        with QUIET, preserve_rng(self.learner.device):
            asked = time.monotonic()
            try:
                batch = next(iterator, None)
            except PaifuserError:  # raised by the data: the weights are still valid
                self._save()
                raise
            self._waited_ms = 1e3 * (time.monotonic() - asked)
            if batch is None:
                return False
            if self.hooks.should_stop():
                self._save()
                raise StoppedError(self._interruption())
            self.hooks.before_step(self._progress)
            self._train_on(batch)
        return True

    def _train_on(self, batch: Batch) -> None:
        """Take a step, or skip it where loss or gradient is not finite and the plan allows it."""
        began, rate, scale = time.monotonic(), self._rate, self.learner.scale
        is_lower = self.course.precision.is_lower
        restore = saved_buffers(self.model) if self.plan.allowed_bad_steps else None
        is_watched = bool(self.layers) and len(self.losses) % self.hooks.watch_every == 0
        self.learner.watched = self.layers if is_watched else []
        with named_failure(self._where()):
            loss = self.learner.loss(partial(self._objective_of, batch), is_lower=is_lower)
            value = self.hooks.synchroniser.mean_loss(checked_loss(loss))
            is_good = math.isfinite(value)
            if is_good:
                is_good = self.learner.take_step(loss, rate)
                problem = "gradient became infinite"
            else:
                self.learner.skip_step()
                problem = f"loss became {value}"
            if not is_good:
                self._allow_bad_step(batch, problem, is_lower=is_lower)
                if restore is not None and not math.isfinite(value):
                    restore()
        learner, took = self.learner, 1e3 * (time.monotonic() - began)
        facts = StepFacts(
            rate,
            scale,
            learner.shares.overflow,
            learner.shares.underflow,
            learner.norm,
            took,
            self._waited_ms,
            batch.examples,
            is_lower,
            not is_good,
        )
        if learner.ranges is not None:
            self.course.history.range_steps.append(len(self.losses))
            self.course.history.ranges.append(learner.ranges)
        self.course.append(value, facts)
        self.step += 1

    def _objective_of(self, batch: Batch) -> Tensor:
        part, share = self.hooks.synchroniser.part_of(batch)
        loss = self.objective(self.model, part.inputs.clone(), part.target)
        return loss if share == 1.0 else loss * share

    def _allow_bad_step(self, batch: Batch, problem: str, *, is_lower: bool) -> None:
        """Raise if too many steps in a row were bad; the message names the layer where it began."""
        if self.course.history.bad_in_row < self.plan.allowed_bad_steps:
            return
        if problem.startswith("gradient"):
            layer, part = layer_of_bad_gradient(self.model), "the gradient of "
        else:
            part = ""
            with self.learner.computing(is_lower=is_lower), torch.no_grad():
                run = partial(self._objective_of, batch)
                layer = first_nan(self.model, run, is_bad=is_not_finite)
        began = f"; it began in {part}{describe(self.model, layer)}" if layer is not None else ""
        raise StepError(self._not_finite(problem, began))

    def _not_finite(self, problem: str, began: str) -> str:
        """The message about a loss that is not finite: where, what remains of the training, and
        what to try.
        """
        if not self.losses:
            return (
                f"the {problem} in the first step; look for a NaN or an infinity in the train data "
                f"and the targets{began}."
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
            f"{self.plan.learning_rate:g}, or a longer warm_up{began}."
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
        again = "" if self.checkpoint_file is None else "; start it again to go on from there"
        return f"stopped after {inside if self.step else f'{self.epoch} of {epochs}'}{again}."

    @property
    def _progress(self) -> float:
        """The share of all steps that is done."""
        return (self.epoch + min(1.0, self.step / self.batches.count)) / self.plan.epochs

    @property
    def _rate(self) -> float:
        return self.plan.rate_at(self._progress) * self.course.reaction.factor

    @property
    def _save_every_s(self) -> float:
        return SAVE_EVERY_S if self.hooks.save_every_s is None else self.hooks.save_every_s

    def _take_checkpoint(self) -> Checkpoint:
        is_done = self.is_over
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
            self.course.history.tensors(),
            self.began_from,
        )

    def _save(self) -> None:
        """Take a checkpoint in memory, and on disk if there is a file."""
        self.valid = self._take_checkpoint()
        if self.checkpoint_file is not None and self.hooks.synchroniser.stores:
            self.checkpoint_file.save(self.valid)

    def _resume(self) -> None:
        if self.checkpoint_file is None:
            return
        self.began_from = self.valid.weights_hash
        checkpoint = self.checkpoint_file.load()
        if checkpoint is None:
            return
        fits = self.learner.fits(checkpoint.tensors)
        problem = checkpoint.problem_for(self.began_from) if fits else OTHER_MODEL
        if self.checkpoint_file.check_fits(problem):
            self.valid, self.seconds = checkpoint, checkpoint.seconds
            self.began_from = checkpoint.began_from
            self._restore()
            if self.losses:
                self.learner.forget_fp32()

    def _restore(self) -> None:
        """Restore the last valid checkpoint."""
        self.epoch, self.step = self.valid.epoch, self.valid.step
        self.course = self._course(self.valid.losses, History.of(self.valid.history))
        self.learner.skipped = self.valid.skipped
        self.learner.restore(self.valid.tensors, self.valid.scaler)

    def _course(self, losses: Sequence[float] = (), history: History | None = None) -> Course:
        return Course(
            self.plan,
            self.steps,
            losses,
            history,
            smaller_is_better=self.hooks.smaller_is_better,
        )


def checked_loss(loss: Any) -> float:
    """The value of a loss, which must be one number with a gradient."""
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
    return float(loss.detach())


@contextmanager
def named_failure(where: str) -> Iterator[None]:
    """Say in a sentence what fails in a step, such as the user's model or loss."""
    try:
        yield
    except PaifuserError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
        raise StepError(f"{where} fails ({problem}).") from error
