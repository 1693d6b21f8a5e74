"""The blocks to checkpoint, so that a step of training stays within a memory limit in the least
time: an integer program over what each block keeps and how long it takes. Built on
scipy.optimize.milp.

The peak is the step's own, less what checkpointed blocks keep, plus their inputs and the largest of
them, which is computed again while nothing else is freed. It is then predicted with fake tensors:
where that is past the limit the program is solved again for less, where it is within, blocks that
the limit does not need are left out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...arguments import bytes_of
from ...errors import MeasureError
from ...machine import machine_label
from ...measure import peak_bytes, ratio_of_rounds
from ...memory import Predictor
from ...memory.predict.blocks import repeated_blocks
from ...memory.predict.predictor import options_of
from ...memory.predict.step import Observer, Subject, example_of, run
from ...model.watch import watching
from ...records import CheckpointedBlock, CheckpointPlan, StepOptions
from ...training import TrainPlan
from ...training.workloads import loss_of
from ...workload import QUIET, Derived, Workload, outside_inference, workload_of
from ...workload.data import Batch
from ...workload.seeding import preserve_rng
from .measured import raced_steps

ROUNDS = 5  # of a step, of which the fastest counts
TRIES = 6
RACE_S = 3.0  # of whole steps, in turn
SECONDS = 10.0  # for one program at most


@outside_inference
def plan_checkpoints(
    subject: Workload | Derived,
    limit: int | str,
    *,
    measured: bool = True,
    **options: Any,
) -> CheckpointPlan:
    """Choose the blocks of a model to checkpoint so that the predicted peak of a step of training
    is within `limit` ('2 GB', bytes); all of them where no choice is.

    Options are those of a step: precision, optimizer, momentum, implementation. `measured` also
    measures the peaks and times whole steps in turn, without checkpoints and with them.
    """
    work, allowed = workload_of(subject), bytes_of(limit)
    loss_of(work)
    names = repeated_blocks(work.model)
    step = options_of(train=True, **options)
    plain = _predicted(work, step, ())
    if not names and plain > allowed:
        raise MeasureError(
            f"{work.name} has no repeated blocks to checkpoint; name layers yourself: "
            "lab.train(work, checkpointed=[…])."
        )
    blocks, step_ms = _measured_blocks(work, step, names)
    chosen, peak, is_proven = _Problem(work, step, blocks, allowed).solved(plain)
    longer, interval = _longer(work, step, chosen) if measured else (None, None)
    return CheckpointPlan(
        workload=work.name,
        machine=machine_label(),
        limit_bytes=allowed,
        plain_bytes=plain,
        predicted_bytes=peak,
        measured_plain_bytes=_achieved(work, step, ()) if measured else None,
        measured_bytes=_achieved(work, step, chosen) if measured else None,
        step_ms=step_ms,
        longer=longer,
        longer_interval=interval,
        is_proven=is_proven,
        blocks=tuple(
            row.model_copy(update={"is_checkpointed": row.block in chosen}) for row in blocks
        ),
    )


@dataclass(frozen=True)
class _Problem:
    """The blocks of a workload, and the limit that a step of training has to keep."""

    work: Workload
    step: StepOptions
    blocks: Sequence[CheckpointedBlock]
    allowed: int

    def solved(self, plain: int) -> tuple[tuple[str, ...], int, bool]:
        """The blocks to checkpoint, the predicted peak, and whether no faster choice is known."""
        if plain <= self.allowed:
            return (), plain, True
        goal = self.allowed
        for _ in range(TRIES):
            chosen = cheapest(self.blocks, plain, goal)
            if chosen is None:
                break
            names = tuple(self.blocks[index].block for index in chosen)
            peak = _predicted(self.work, self.step, names)
            if peak <= self.allowed:
                return (*self._without_needless(names, peak), goal == self.allowed)
            goal -= peak - self.allowed
        everything = tuple(row.block for row in self.blocks)
        return everything, _predicted(self.work, self.step, everything), False

    def _without_needless(self, names: tuple[str, ...], peak: int) -> tuple[tuple[str, ...], int]:
        """The blocks without those that the limit does not need, the slowest first, and the peak:
        the program counts a block as computed again while all others are kept, and in a step they
        are freed one after another.
        """
        slowest_first = sorted(self.blocks, key=lambda row: -row.ms)
        for row in [row for row in slowest_first if row.block in names][:TRIES]:
            fewer = tuple(name for name in names if name != row.block)
            lower = _predicted(self.work, self.step, fewer)
            if lower <= self.allowed:
                names, peak = fewer, lower
        return names, peak


def cheapest(
    blocks: Sequence[CheckpointedBlock], plain_bytes: int, limit_bytes: int
) -> tuple[int, ...] | None:
    """The blocks, by index, that keep the peak in the limit in the least time; None if none do."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    count = len(blocks)
    unit = float(max(1, plain_bytes))
    kept = numpy.array([row.kept_bytes for row in blocks]) / unit
    inputs = numpy.array([row.input_bytes for row in blocks]) / unit
    # minimised are the ms of the chosen; the last variable is the largest block computed again
    ms = numpy.array([row.ms for row in blocks])
    peak = numpy.append(inputs - kept, 1.0)
    largest = numpy.column_stack([numpy.diag(kept), -numpy.ones(count)])
    upper = [limit_bytes / unit - plain_bytes / unit, *[0.0] * count]
    result = milp(
        numpy.append(ms + 1e-9 * max(1e-9, ms.sum()), 0.0),
        integrality=[1] * count + [0],
        bounds=Bounds([0.0] * (count + 1), [1.0] * count + [numpy.inf]),
        constraints=LinearConstraint(numpy.vstack([peak, largest]), -numpy.inf, upper),
        options={"time_limit": SECONDS, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        return None
    return tuple(index for index in range(count) if result.x[index] > 0.5)


def _predicted(work: Workload, step: StepOptions, layers: tuple[str, ...]) -> int:
    options = step.model_copy(update={"checkpoint": layers})
    return Predictor(work, options).peak(example_of(work, options)[2]).peak_bytes


def _subject(work: Workload, options: StepOptions) -> Subject:
    """A copy of the model with a batch, to run steps on."""
    inputs, target, _ = example_of(work, options)
    model = work.copied().model
    return Subject(model, inputs.clone(), work.loss, target, options).prepare()


def _achieved(work: Workload, step: StepOptions, layers: tuple[str, ...]) -> int:
    """The peak of two steps of training, measured: everything that torch allocates."""
    with QUIET, preserve_rng(work.device), torch.enable_grad():
        subject = _subject(work, step.model_copy(update={"checkpoint": layers}))
        held = sum(
            value.nbytes for value in (*subject.model.parameters(), *subject.model.buffers())
        )
        held += sum(value.nbytes for value in subject.tensors if isinstance(value, Tensor))
        return held + peak_bytes(lambda: run(subject, Observer()), work.device)


def _longer(
    work: Workload, step: StepOptions, layers: tuple[str, ...]
) -> tuple[float | None, tuple[float, float] | None]:
    """How many times as long a step takes with these blocks checkpointed, timed in turn, and the
    95% interval; None where the weights are in 16 bits, which are not trained here.
    """
    if step.precision == "bf16" or not layers:
        return None, None
    inputs, target, _ = example_of(work, step)
    options = {"precision": step.precision.removeprefix("amp-"), "optimizer": step.optimizer}
    plain = TrainPlan.model_validate(options)
    plans = {"plain": plain, "checkpointed": plain.model_copy(update={"checkpointed": layers})}
    samples = raced_steps(work, [Batch(inputs, target)], plans, RACE_S)
    ratio, (low, high) = ratio_of_rounds(samples["checkpointed"], samples["plain"])
    return ratio, (low, high)


def _measured_blocks(
    work: Workload, step: StepOptions, names: Sequence[str]
) -> tuple[tuple[CheckpointedBlock, ...], float]:
    """What each block keeps and how long it takes, and the ms of a whole step."""
    with QUIET, preserve_rng(work.device), torch.enable_grad():
        subject = _subject(work, step)
        kept, inputs = _kept_bytes(subject, names)
        ms, step_ms = _block_ms(subject, names)
    return tuple(
        CheckpointedBlock(block=name, kept_bytes=kept[name], input_bytes=inputs[name], ms=ms[name])
        for name in names
    ), step_ms


def _kept_bytes(subject: Subject, names: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The bytes that each block keeps for the backward pass, and those of its inputs."""
    weights = {value.untyped_storage().data_ptr() for value in subject.model.parameters()}
    kept: dict[str, int] = defaultdict(int)
    inputs: dict[str, int] = defaultdict(int)
    inside: list[str] = []
    seen: dict[int, Tensor] = {}  # referenced, so that no address is used again

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in names and not inside:
            inside.append(layer)
            leaves = pytree.tree_leaves((args, kwargs))
            inputs[layer] += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))

    def leave(layer: str, output: Any) -> None:
        if inside == [layer]:
            inside.clear()

    def pack(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if inside and address not in weights and address not in seen:
            seen[address] = tensor
            kept[inside[0]] += tensor.untyped_storage().nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        watching(subject.model, enter, leave),
    ):
        run(subject, Observer(), torch.optim.SGD(subject.model.parameters(), lr=0.0))
    return kept, inputs


def _block_ms(subject: Subject, names: Sequence[str]) -> tuple[dict[str, float], float]:
    """The fastest ms of each block's forward pass, and of a step's gradients."""
    best: dict[str, float] = defaultdict(lambda: float("inf"))
    taken: dict[str, float] = {}
    began: dict[str, float] = {}
    fastest = float("inf")

    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return 1e3 * time.perf_counter()

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in names:
            began[layer] = now()

    def leave(layer: str, output: Any) -> None:
        if layer in names:
            taken[layer] = taken.get(layer, 0.0) + now() - began[layer]

    optimizer = torch.optim.SGD(subject.model.parameters(), lr=0.0)
    for _ in range(ROUNDS):
        taken.clear()
        start = now()
        with watching(subject.model, enter, leave):
            run(subject, Observer(), optimizer)
        fastest = min(fastest, now() - start)
        for layer, value in taken.items():
            best[layer] = min(best[layer], value)
    return {name: best[name] if name in taken else 0.0 for name in names}, fastest
