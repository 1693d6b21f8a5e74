"""Example inputs of a model: the arguments of a call, and which are known of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..model.tensors import tensors_in
from ..model.watch import ATTRIBUTE


@dataclass(frozen=True)
class Inputs:
    """Example inputs: the arguments of a call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Any) -> Inputs:
        """Inputs of a tensor (one argument), a tuple or list (several), or a dict (keywords)."""
        if isinstance(inputs, Inputs):
            return inputs
        if isinstance(inputs, Mapping):  # a tokenizer's output is no dict
            return cls(kwargs=dict(inputs))
        return cls(tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,))

    def map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same inputs with every tensor changed."""
        args, kwargs = pytree.tree_map_only(Tensor, change, (self.args, self.kwargs))
        return Inputs(args, kwargs)

    def clone(self) -> Inputs:
        """A copy that a model may modify in place."""
        return self.map(lambda tensor: tensor.detach().clone())

    @cached_property
    def is_flat(self) -> bool:
        """Whether every argument is a tensor, as in most calls."""
        return all(isinstance(leaf, Tensor) for leaf in (*self.args, *self.kwargs.values()))

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All tensors of the inputs, in order."""
        if self.is_flat:
            return [*self.args, *self.kwargs.values()]
        return tensors_in((self.args, self.kwargs))

    @property
    def described(self) -> str:
        """The shapes and types of its tensors: '8×3×32×32 float32, 2 of 8×128 int64'."""
        shapes = ("×".join(map(str, tensor.shape)) or "scalar" for tensor in self.tensors)
        types = (str(tensor.dtype).removeprefix("torch.") for tensor in self.tensors)
        counts = Counter(f"{shape} {dtype}" for shape, dtype in zip(shapes, types, strict=True))
        return ", ".join(
            # a language model's cache has dozens that are alike
            text if count == 1 else f"{count} of {text}"
            for text, count in counts.items()
        )

    def __call__(self, model: Callable[..., Any]) -> Any:
        """The model's output for these inputs; a generator, such as of tokens, is exhausted to a
        list.
        """
        output = model(*self.args, **self.kwargs)
        return list(output) if isinstance(output, GeneratorType) else output


UNSEEN = Inputs()  # given for a model that is only rounded, and never called
# of each model that a workload was made of, while the model lives
_inputs_of: WeakKeyDictionary[nn.Module, Inputs | None] = WeakKeyDictionary()


def known_inputs(model: nn.Module) -> Inputs | None:
    """The inputs of a model's last call under `lab.enable()`, else of the last workload made of it
    in this process; None where there was neither. Other calls are not seen: a hook on all modules
    would slow them.
    """
    # what stands in for its call keeps the arguments of the last one
    last = getattr(vars(model).get(ATTRIBUTE), "last", None)
    return Inputs(*last) if last is not None else _inputs_of.get(model)


def note_inputs(model: nn.Module, inputs: Inputs | None) -> None:
    """Let `known_inputs` return these for a model, or nothing."""
    _inputs_of[model] = inputs
