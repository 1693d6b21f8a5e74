"""A model with its optimizer: takes steps, and can be restored to an earlier state. Built on
torch.optim and torch.amp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import StepError
from .plan import Training
from .strided_pointwise import ContiguousStridedPointwise

MOMENTUM = 0.9
LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Value(NamedTuple):
    """A weight or buffer, and the module that holds it."""

    name: str
    holder: nn.Module
    key: str
    tensor: Tensor


class Learner:
    """The trained modules, their optimizer, and the gradient scaler."""

    def __init__(
        self, model: nn.Module, extra: nn.Module | None, plan: Training, device: torch.device
    ) -> None:
        if not any(weight.requires_grad for weight in model.parameters()):
            raise StepError(
                "none of its weights can be trained; set requires_grad on those that may change."
            )
        self.parts = {"model": model} | ({} if extra is None else {"extra": extra})
        self.plan, self.device = plan, device
        groups = _groups(
            [
                weight
                for part in self.parts.values()
                for weight in part.parameters()
                if weight.requires_grad
            ],
            plan,
        )
        # in the optimizer's order
        self.weights = [weight for group in groups for weight in group["params"]]
        self.optimizer = _optimizer(groups, plan)
        self.scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "fp16")
        self.skipped = 0

    def loss(self, objective: Callable[[], Tensor]) -> Tensor:
        """The loss, computed in the plan's precision."""
        self.optimizer.zero_grad(set_to_none=True)
        lower = LOWER.get(self.plan.precision)
        with (
            torch.autocast(self.device.type, dtype=lower, enabled=lower is not None),
            ContiguousStridedPointwise(),
        ):
            return objective()

    def take_step(self, loss: Tensor, rate: float) -> bool:
        """Take an optimizer step and return whether training can go on: if the gradient is finite,
        or overflowed only in fp16, whose loss scale is then lowered.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.autograd.backward(self.scaler.scale(loss))
        self.scaler.unscale_(self.optimizer)
        length = float(nn.utils.clip_grad_norm_(self.weights, self.plan.clip or math.inf))
        is_finite = math.isfinite(length)
        if is_finite or self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.skipped += not is_finite
        return is_finite or self.scaler.is_enabled()

    def tensors(self, *, with_optimizer: bool = True) -> dict[str, Tensor]:
        """A copy of every tensor that training changes, by name, on the CPU."""
        tensors = {value.name: value.tensor for value in self._values()}
        known = self.optimizer.state_dict()["state"] if with_optimizer else {}
        for index, state in known.items():
            tensors |= {
                f"optimizer/{index}/{key}": value
                for key, value in state.items()
                if isinstance(value, Tensor)
            }
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

    def restore(self, tensors: Mapping[str, Tensor], scaler: Mapping[str, float]) -> None:
        """Restore the values of an earlier state."""
        with torch.no_grad():
            for name, holder, key, value in self._values():
                if value.shape == tensors[name].shape:
                    value.copy_(tensors[name])
                else:  # a buffer that its layer replaces
                    holder._buffers[key] = tensors[name].to(value.device)
        state = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**state, "state": self._optimizer_state(tensors)})
        if scaler:
            self.scaler.load_state_dict(dict(scaler))

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these values belong to a model of the same shapes and dtypes."""
        return all(
            name in tensors
            and tensors[name].dtype == value.dtype
            and (key in holder._buffers or tensors[name].shape == value.shape)
            for name, holder, key, value in self._values()
        )

    def _optimizer_state(self, tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """The optimizer's state of each weight, with the weight's memory format."""
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, index, key = name.split("/")
                weight = self.weights[int(index)]
                is_like = tensor.shape == weight.shape and tensor.ndim > 0
                states.setdefault(int(index), {})[key] = (
                    torch.empty_like(weight).copy_(tensor) if is_like else tensor.clone()
                )
        return states

    def _values(self) -> Iterator[Value]:
        """Every weight and buffer, including non-persistent buffers."""
        for part, module in self.parts.items():
            for name, value in (*module.named_parameters(), *module.named_buffers()):
                path, _, key = name.rpartition(".")
                yield Value(f"{part}/{name}", module.get_submodule(path), key, value)


def _groups(weights: list[nn.Parameter], plan: Training) -> list[dict[str, Any]]:
    """Parameter groups: matrices with weight decay, and one-dimensional weights without."""
    matrices = [weight for weight in weights if weight.ndim > 1]
    vectors = [weight for weight in weights if weight.ndim <= 1]
    both = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in both if group["params"]]


def _optimizer(groups: list[dict[str, Any]], plan: Training) -> torch.optim.Optimizer:
    if plan.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=plan.learning_rate, momentum=MOMENTUM, nesterov=True)
    return torch.optim.AdamW(groups, lr=plan.learning_rate)
