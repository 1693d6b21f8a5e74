"""A model with its optimizer: it takes steps, and can be put back to an earlier moment. Stands on
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
    """A weight or buffer, and where it is."""

    name: str
    holder: nn.Module
    key: str
    tensor: Tensor


class Learner:
    """What is trained, by what optimizer, and how the loss is scaled."""

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
        self.weights = [
            weight for group in groups for weight in group["params"]
        ]  # in the optimizer's order
        self.optimizer = _optimizer(groups, plan)
        self.scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "fp16")
        self.skipped = 0

    def loss(self, objective: Callable[[], Tensor]) -> Tensor:
        """The loss, in the precision that is wanted."""
        self.optimizer.zero_grad(set_to_none=True)
        lower = LOWER.get(self.plan.precision)
        with (
            torch.autocast(self.device.type, dtype=lower, enabled=lower is not None),
            ContiguousStridedPointwise(),
        ):
            return objective()

    def take_step(self, loss: Tensor, rate: float) -> bool:
        """Follow the gradient where it is finite; whether it is, or only was too large for fp16,
        whose loss is then scaled less.
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
        """A copy of every value that training changes, by name; on the CPU, where there is more
        room.
        """
        found = {value.name: value.tensor for value in self._values()}
        known = self.optimizer.state_dict()["state"] if with_optimizer else {}
        for index, state in known.items():
            found |= {
                f"optimizer/{index}/{key}": held
                for key, held in state.items()
                if isinstance(held, Tensor)
            }
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in found.items()}

    def put_back(self, tensors: Mapping[str, Tensor], scaler: Mapping[str, float]) -> None:
        """Take on the values of another moment."""
        with torch.no_grad():
            for name, holder, key, value in self._values():
                if value.shape == tensors[name].shape:
                    value.copy_(tensors[name])
                else:  # a buffer that its layer makes anew
                    holder._buffers[key] = tensors[name].to(value.device)
        state = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**state, "state": self._optimizer_state(tensors)})
        if scaler:
            self.scaler.load_state_dict(dict(scaler))

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these values are of a model like this one."""
        return all(
            name in tensors
            and tensors[name].dtype == value.dtype
            and (key in holder._buffers or tensors[name].shape == value.shape)
            for name, holder, key, value in self._values()
        )

    def _optimizer_state(self, tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """What the optimizer knew of each weight, laid out in memory like the weight."""
        found: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, index, key = name.split("/")
                weight = self.weights[int(index)]
                is_like = tensor.shape == weight.shape and tensor.ndim > 0
                found.setdefault(int(index), {})[key] = (
                    torch.empty_like(weight).copy_(tensor) if is_like else tensor.clone()
                )
        return found

    def _values(self) -> Iterator[Value]:
        """Every weight and buffer, those that are not saved with the model too."""
        for part, module in self.parts.items():
            for name, value in (*module.named_parameters(), *module.named_buffers()):
                path, _, key = name.rpartition(".")
                yield Value(f"{part}/{name}", module.get_submodule(path), key, value)


def _groups(weights: list[nn.Parameter], plan: Training) -> list[dict[str, Any]]:
    """Matrices decay; what has one dimension, such as a norm's scale, does not."""
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
