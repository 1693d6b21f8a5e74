"""A model with its optimizer: takes steps, and can be restored to an earlier state. Built on
torch.optim and torch.amp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import StepError
from .checkpointing import recomputing
from .hooks import Synchroniser
from .observe import Shares, ranges_of, shares_of
from .plan import Training, TrainPlan
from .precision import LayerFormats
from .rounding import RoundedOptimizer, to_bf16_weights
from .strided_pointwise import ContiguousStridedPointwise

MOMENTUM = 0.9
LOST = "rounding"  # what Kahan's summation keeps of each weight, as tensors' names begin


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
        self.plan, self.device = TrainPlan.of(plan), device
        self.formats = LayerFormats(model, self.plan.formats, device)
        self._check_formats()
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
        # with what they were in fp32, until they change
        self._narrowed = to_bf16_weights(model) if self.plan.weights == "bf16" else {}
        make = partial(_optimizer, plan=plan)
        self.rounded = (
            RoundedOptimizer(groups, make, self.plan.rounding)
            if self.plan.weights == "bf16"
            else None
        )
        self.optimizer = make(groups) if self.rounded is None else self.rounded.inner
        self.scaler = torch.amp.GradScaler(
            device.type, init_scale=self.plan.loss_scale, enabled=self.plan.uses_fp16
        )
        self.synchroniser = Synchroniser()
        self.skipped = 0
        self.norm, self.shares = math.nan, Shares()  # of the last step's gradient
        self.watched: list[str] = []  # layers whose gradients' ranges the next step notes
        self.ranges: Tensor | None = None

    @property
    def scale(self) -> float:
        """What the loss is multiplied by."""
        return float(self.scaler.get_scale())

    def release(self) -> None:
        """Give weights that were stored in bf16 their fp32 back, so that the model runs as before:
        with the same values, or with those of before where nothing was trained.
        """
        for weight, before in self._narrowed.items():
            weight.data, weight.grad = weight.data.float() if before is None else before, None

    def forget_fp32(self) -> None:
        """Hold the values that weights in bf16 had in fp32 no more: these are trained now."""
        self._narrowed = dict.fromkeys(self._narrowed)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Let the model compute as the plan says: formats by layer, checkpointed activations."""
        with self.formats.installed(), recomputing(self.parts["model"], self.plan.checkpointed):
            yield

    @contextmanager
    def computing(self, *, is_lower: bool = True) -> Iterator[None]:
        """Compute in the plan's precision, or in fp32."""
        with (
            self.formats.computing(self.plan.lower, is_lower=is_lower),
            ContiguousStridedPointwise(),
        ):
            yield

    def loss(self, objective: Callable[[], Tensor], *, is_lower: bool = True) -> Tensor:
        """The loss, computed in the plan's precision, or in fp32."""
        for weight in self.weights:
            weight.grad = None
        with self.computing(is_lower=is_lower):
            return objective()

    def take_step(self, loss: Tensor, rate: float) -> bool:
        """Take an optimizer step and return whether the gradient was finite; one that is not
        changes nothing but lowers the loss scale of fp16.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.autograd.backward(self.scaler.scale(loss))
        self.synchroniser.mean_gradients(self.parts["model"], self.weights)
        if self.scaler.is_enabled():
            self.shares = shares_of(self.weights)
        self.scaler.unscale_(self.optimizer)
        self.ranges = ranges_of(self.parts["model"], self.watched) if self.watched else None
        norm = nn.utils.get_total_norm(
            [weight.grad for weight in self.weights if weight.grad is not None]
        )
        self.norm = float(norm)
        is_finite = math.isfinite(self.norm)
        if is_finite and self.plan.clip is not None:
            nn.utils.clip_grads_with_norm_(self.weights, self.plan.clip, norm)
        if is_finite:
            self.forget_fp32()  # before the optimizer makes its state, which is larger
            if self.rounded is None:
                self.scaler.step(self.optimizer)
            else:
                self.rounded.step()
            self.scaler.update()
        elif self.scaler.is_enabled():
            self._lower_scale()
        self.skipped += not is_finite
        return is_finite

    def skip_step(self) -> None:
        """Take no step, since the loss is not finite; the loss scale of fp16 falls."""
        self.skipped += 1
        self.norm, self.shares, self.ranges = math.nan, Shares(), None
        if self.scaler.is_enabled():
            self.scaler.scale(
                torch.ones((), device=self.device)
            )  # it has no scale before the first
            self._lower_scale()

    def _lower_scale(self) -> None:
        """Lower the loss scale of fp16, and count the steps until it grows from here."""
        self.scaler.update(self.scale * self.scaler.get_backoff_factor())
        self.scaler.load_state_dict(self.scaler.state_dict() | {"_growth_tracker": 0})

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
        if with_optimizer:
            tensors |= {f"{LOST}/{index}": lost for index, lost in self._lost.items()}
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
        self._lost.clear()
        for name, tensor in tensors.items():
            if name.startswith(f"{LOST}/"):
                index = int(name.partition("/")[2])
                self._lost[index] = torch.empty_like(self.weights[index]).copy_(tensor)
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

    @property
    def _lost(self) -> dict[int, Tensor]:
        """What rounding lost of each weight, where that is kept."""
        return {} if self.rounded is None else self.rounded.lost

    def _optimizer_state(self, tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """The optimizer's state of each weight, with the weight's memory format."""
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, index, key = name.split("/")
                weight = self.weights[int(index)]
                is_like = tensor.shape == weight.shape and tensor.ndim > 0
                states.setdefault(int(index), {})[key] = (
                    torch.empty_like(weight, dtype=tensor.dtype).copy_(tensor)
                    if is_like
                    else tensor.clone()
                )
        return states

    def _values(self) -> Iterator[Value]:
        """Every weight and buffer, including non-persistent buffers."""
        for part, module in self.parts.items():
            for name, value in (*module.named_parameters(), *module.named_buffers()):
                path, _, key = name.rpartition(".")
                yield Value(f"{part}/{name}", module.get_submodule(path), key, value)

    def _check_formats(self) -> None:
        """Refuse weights in 16 bits that something else than bf16 would compute with."""
        plan = self.plan
        if plan.weights == "bf16" and (plan.precision == "fp16" or plan.formats):
            raise StepError(
                "weights in bf16 compute in bf16; leave fp16 and formats out, or weights in fp32."
            )
        if plan.weights == "bf16" and plan.fp32_until != 0:
            raise StepError(
                "weights in bf16 compute in bf16 from the first step; leave fp32_until out, or "
                "weights in fp32."
            )
        if plan.weights == "fp32" and plan.rounding != "nearest":
            raise StepError(
                f"rounding='{plan.rounding}' is for weights in bf16; give weights='bf16', or leave "
                "it out."
            )


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
