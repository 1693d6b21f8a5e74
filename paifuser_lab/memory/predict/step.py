"""One call, or steps of training, on real tensors or on fake ones. Built on torch.optim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import MeasureError
from ...model.tensors import tensors_in
from ...records import StepOptions
from ...workload import Inputs, Workload
from ...workload.batching import example_batch, repeated
from ...workload.data import first_batches
from .blocks import checkpoint_layers
from .ledger import BACKWARD, CALL, FORWARD, OPTIMIZER

STEPS = 2  # the optimizer makes its state in the first one
LEARNING_RATE = 1e-6
IMPLEMENTATIONS: dict[str | None, dict[str, Any]] = {
    None: {},
    "for-loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Subject:
    """A model of its own, which is changed, with inputs and, for training, a loss and a target."""

    model: nn.Module
    inputs: Inputs
    loss: Loss | None
    target: Any
    options: StepOptions

    def prepare(self) -> Subject:
        """The model in the options' mode, precision and checkpoints."""
        self.model.train(self.options.train)
        checkpoint_layers(self.model, self.options.checkpoint)
        if self.options.precision != "bf16":
            return self
        _convert(self.model)
        if self.options.train:
            return replace(self, inputs=self.inputs.map(_to_bf16))
        # as the step precision has it: the caller keeps what it gave, and gets its own dtype
        self.model.register_forward_pre_hook(
            lambda _, args, kwargs: pytree.tree_map_only(Tensor, _to_bf16, (args, kwargs)),
            with_kwargs=True,
        )
        self.model.register_forward_hook(
            lambda _, args, output: pytree.tree_map_only(Tensor, _to_fp32, output)
        )
        return self

    @property
    def tensors(self) -> list[Any]:
        """The tensors of inputs and target."""
        return [*self.inputs.tensors, *pytree.tree_leaves(self.target)]


@dataclass
class Observer:
    """Called by a step: when a phase begins, and when the optimizer has made its state."""

    enter: Callable[[str], None] = lambda phase: None
    optimizer_state: Callable[[Iterable[Any]], None] = lambda tensors: None


@contextmanager
def watching_gradients(model: nn.Module, note: Callable[[Iterable[Any]], None]) -> Iterator[None]:
    """Call `note` with the gradient of each weight once it is there."""
    handles = [
        weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda weight: note([weight.grad])
        )
        for weight in model.parameters()
        if weight.requires_grad
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(
    subject: Subject, observer: Observer, optimizer: torch.optim.Optimizer | None = None
) -> torch.optim.Optimizer | None:
    """A call, or two steps of training; after an earlier run, one more step's gradients."""
    if not subject.options.train:
        observer.enter(CALL)
        with torch.no_grad(), _autocast(subject):
            subject.inputs(subject.model)
        return None
    steps = STEPS if optimizer is None else 0
    optimizer = optimizer or _optimizer(subject)
    for _ in range(steps):
        _gradients(subject, observer)
        _update(optimizer, observer)
    if not steps:
        _gradients(subject, observer)
    subject.model.zero_grad(set_to_none=True)
    return optimizer


def _gradients(subject: Subject, observer: Observer) -> None:
    subject.model.zero_grad(set_to_none=True)
    observer.enter(FORWARD)
    with torch.enable_grad():
        with _autocast(subject):
            loss = _loss(subject)
        observer.enter(BACKWARD)
        torch.autograd.backward(loss)


def _update(optimizer: torch.optim.Optimizer, observer: Observer) -> None:
    observer.enter(OPTIMIZER)
    optimizer.step()
    observer.optimizer_state(
        value for state in optimizer.state.values() for value in state.values()
    )


def _loss(subject: Subject) -> Tensor:
    """The workload's loss; without one, the sum of all outputs that have a gradient."""
    output = subject.inputs(subject.model)
    if subject.loss is not None and subject.target is not None:
        return subject.loss(output, subject.target)
    leaves = [leaf.float().sum() for leaf in tensors_in(output) if leaf.requires_grad]
    if not leaves:
        raise MeasureError(
            "no output depends on a weight that can be trained, so there is no training step."
        )
    return torch.stack(leaves).sum()


def _autocast(subject: Subject) -> Any:
    device = next((leaf.device.type for leaf in subject.model.parameters()), "cpu")
    is_on = subject.options.precision == "amp-bf16"
    return torch.autocast(device, dtype=torch.bfloat16, enabled=is_on)


def _optimizer(subject: Subject) -> torch.optim.Optimizer:
    """The optimizer of the weights that can be trained."""
    weights = [weight for weight in subject.model.parameters() if weight.requires_grad]
    if not weights:
        raise MeasureError("none of its weights can be trained; set requires_grad on some.")
    options = subject.options
    chosen: dict[str, Any] = IMPLEMENTATIONS[options.implementation]
    if options.optimizer == "sgd":
        return torch.optim.SGD(weights, lr=LEARNING_RATE, momentum=options.momentum, **chosen)
    return torch.optim.AdamW(weights, lr=LEARNING_RATE, **chosen)


def _convert(model: nn.Module) -> None:
    """Give a model bf16 weights and buffers; `Module.to` does not take fake ones."""
    known: dict[int, Any] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                values = known.setdefault(
                    id(weight), nn.Parameter(_to_bf16(weight.detach()), weight.requires_grad)
                )
                module._parameters[name] = values
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = known.setdefault(id(buffer), _to_bf16(buffer))


def _to_bf16(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor


def _to_fp32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def example_of(work: Workload, options: StepOptions) -> tuple[Inputs, Any, int]:
    """Inputs, target and batch: of the train data for training with a loss, else the example."""
    example_batch(work)
    if not options.train or work.loss is None or work.train is None:
        return work.inputs, None, example_batch(work)
    batches = islice(first_batches(work.train, work.device, "train data"), 1)
    inputs, target = next(batches, (work.inputs, None))
    sizes = [tensor.shape[0] for tensor in inputs.tensors if tensor.ndim]
    return inputs, target, sizes[0] if sizes else 1


def real_subject(work: Workload, options: StepOptions, batch: int) -> Subject:
    """A copy of the model with inputs and target of this batch, on real tensors."""
    inputs, target, example = example_of(work, options)
    both = repeated(Inputs((inputs.args, inputs.kwargs, target)), example, batch)
    args, kwargs, target = both.args
    model = work.copied().model
    return Subject(model, Inputs(args, kwargs), work.loss, target, options).prepare()
