"""What the switches have in common: the parts of a loop, and what leaves a model's call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from ...model.tensors import tensors_in
from ..race import Offer

Example = tuple[tuple[Any, ...], dict[str, Any]]
Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]  # arguments, keyword arguments → output
MAIN_OPTIMIZERS = (
    torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW,
    torch.optim.Adamax, torch.optim.ASGD, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD,
)  # fmt: skip
OF_EVERY_LAYER = frozenset(vars(nn.Module()))  # weights, buffers, hooks
LEAVES = (Tensor, str, bytes, bool, int, float, complex, torch.dtype, torch.device, torch.Size)


@dataclass
class Parts:
    """The models and optimizers of a training loop, and what was seen of their first step."""

    models: list[nn.Module] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    has_own_autocast: bool = False
    has_closure: bool = False  # which computes gradients inside the optimizer's step

    @property
    def device(self) -> torch.device:
        """The device of the first weight."""
        weights = (weight for optimizer in self.optimizers for weight in weights_of(optimizer))
        return next((weight.device for weight in weights), torch.device("cpu"))

    @property
    def is_compiled(self) -> bool:
        """Whether the loop compiles a part by itself."""
        return any(
            "_orig_mod" in module._modules or is_compiled(module)
            for model in self.models
            for module in model.modules()
        )

    @property
    def unknown(self) -> list[str]:
        """The classes of optimizers whose state is not understood."""
        return [
            type(optimizer).__name__
            for optimizer in self.optimizers
            if type(optimizer) not in MAIN_OPTIMIZERS
        ]

    def structure(self) -> tuple[Any, ...]:
        """The identity of every weight, and the sizes of the optimizers' groups."""
        weights = [tuple(map(id, model.parameters())) for model in self.models]
        groups = [
            tuple(len(group["params"]) for group in optimizer.param_groups)
            for optimizer in self.optimizers
        ]
        return (*weights, *groups)


def weights_of(optimizer: Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def is_compiled(module: nn.Module) -> bool:
    """Whether `module.compile()` was called."""
    call: Any = vars(module).get("_compiled_call_impl")
    return (call.before if getattr(call, "is_of_acceleration", False) else call) is not None


@dataclass(frozen=True)
class Course:
    """How far a loop is, for a switch that prepares."""

    steps: int
    seconds: float
    examples: Mapping[nn.Module, Example]  # the arguments of each model's last call
    copies: Callable[[nn.Module], Call]  # a copy, called as with the switch and those in force


class Refusal(Exception):
    """Raised by a switch in a model's call that it cannot serve: it is taken back, and why."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(why)
        self.label = label


class Switch:
    """A change of how a training loop runs, made and undone between two steps."""

    name: ClassVar[str]
    feature: ClassVar[str] = ""  # `lab.enable_<feature>` turns it on by itself
    is_exact: ClassVar[bool] = True
    saves_memory: ClassVar[bool] = False
    is_judged: ClassVar[bool] = True  # otherwise it is in force because it was asked for
    is_of_calls: ClassVar[bool] = True  # it changes what a model's call does
    is_of_optimizers: ClassVar[bool] = False  # it changes the time of their own steps alone

    is_combined: ClassVar[bool] = False  # raced in every combination with others of the kind
    needs_wall: ClassVar[bool] = False  # CPU time of this thread is not what its steps take

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @property
    def label(self) -> str:
        """The switch in a table."""
        return self.name

    @property
    def offer(self) -> Offer:
        """The switch as the judge sees it."""
        return Offer(self.label, self.is_exact, self.saves_memory, self.is_of_optimizers)

    @property
    def follows_steps(self) -> bool:
        """Whether it acts on optimizers' steps, or on losses, which are read there."""
        kind = type(self)
        acts = (kind.before_step, kind.after_step) != (Switch.before_step, Switch.after_step)
        return acts or not self.is_exact

    def obstacle(self, parts: Parts) -> str:
        """Why this loop cannot have it; empty if it can."""
        return ""

    @property
    def is_ready(self) -> bool:
        """Whether it can be tried now; otherwise `tend` makes it so."""
        return True

    def is_pending(self, course: Course) -> bool:
        """Whether it works aside or is about to, so that the loop is still looked after."""
        return False

    def tend(self, course: Course, *, is_on: bool) -> str:
        """Prepare, in a thread or between two steps; why it cannot go on, or nothing."""
        return ""

    def forget(self) -> None:
        """The loop's models or optimizers are others now."""

    def recover(self, model: nn.Module, error: Exception) -> bool:
        """Whether a call that has failed may be made again, since this has changed what it does."""
        return False

    def turn_on(self, parts: Parts) -> None:
        """Take effect, between two steps."""

    def turn_off(self, parts: Parts) -> None:
        """Restore what was before, between two steps."""

    def wrap(self, model: nn.Module, call: Call) -> Call:
        """The model's call in training while this is on."""
        return call

    def begin_backward(self, losses: Sequence[Tensor]) -> None:
        """Called before each backward pass from these losses while this is on."""

    def end_backward(self, parts: Parts) -> None:
        """Called after each backward pass while this is on."""

    def before_step(self, optimizer: Optimizer) -> bool:
        """Called before an optimizer steps while this is on; False skips the step."""
        return True

    def after_step(self, optimizer: Optimizer) -> None:
        """Called after an optimizer's step while this is on."""

    def note_loss(self, loss: float) -> None:
        """Called with the loss of each step while this is on."""

    def why(self) -> str:
        """What it does now, for the table; empty where the judge's words are enough."""
        return ""


def is_reachable(output: Any) -> bool:
    """Whether every tensor of an output is found, in lists, dicts and classes that torch knows."""
    return all(leaf is None or isinstance(leaf, LEAVES) for leaf in pytree.tree_leaves(output))


def kept_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors in layers' attributes that are no weight or buffer, by the attribute's name."""
    for path, layer in model.named_modules():
        for name, value in vars(layer).items():
            if name in OF_EVERY_LAYER or not isinstance(value, Tensor | list | tuple | dict):
                continue
            for tensor in tensors_in(value):
                yield f"{path}.{name}".lstrip("."), tensor
