"""One call of an operator, as a rule sees it, and the registry of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ....model.tensors import tensors_in
from ..label_space import Label, Labels, LabelSpace, compressed, spread


@dataclass(frozen=True)
class Call:
    """An operator, the layer that called it, its arguments and its results."""

    space: LabelSpace
    name: str
    layer: str
    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Tensor]
    known: Callable[[Tensor], Labels]

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments."""
        return tensors_in((self.args, self.kwargs))

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """An argument by its position or by its name."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    def labels(self, index: int) -> Labels:
        """The labels of a positional argument; empty where it is no tensor."""
        value = self.args[index] if index < len(self.args) else None
        return self.known(value) if isinstance(value, Tensor) else ()

    def dims(self, selected: Any, rank: int) -> list[int]:
        """Dimensions counted from the front; all of them for None or []."""
        dims = (
            range(rank)
            if selected is None or selected == []
            else [selected]
            if isinstance(selected, int)
            else selected
        )
        return [dim % rank for dim in dims] if rank else []

    @property
    def where(self) -> str:
        """The operator and its layer, for a reason."""
        return f"'{self.name}' in {f'layer {self.layer!r}' if self.layer else 'the model itself'}"

    @property
    def why(self) -> str:
        """The usual reason for a dimension to stay."""
        return f"{self.where} needs all of it"

    def spread(self, *rows: tuple[int, Tensor | None]) -> Labels:
        """Labels of the first result: rows of ids along its dimensions, without those of None."""
        shape = self.results[0].shape
        return tuple(spread(row, dim, shape) for dim, row in rows if row is not None)

    def moved(self, label: Label) -> list[Label]:
        """The operator applied to a label instead of its tensor."""
        args, kwargs = pytree.tree_map_only(Tensor, Tensor.cpu, (self.args[1:], self.kwargs))
        outputs = pytree.tree_leaves(self.operator(label[...], *args, **kwargs))
        return [compressed(output) for output in outputs]

    def all_moved(self, labels: Labels) -> list[Labels]:
        """The operator applied to every label of a tensor: for each result its labels."""
        moved = [self.moved(label) for label in labels]
        return [tuple(outputs[index] for outputs in moved) for index in range(len(self.results))]


Rule = Callable[[Call], list[Labels]]
RULES: dict[str, Rule] = {}
# have labels even where no argument has any
CONSTANTS = ("expand", "zeros", "ones", "full", "new_zeros", "new_ones", "new_full")


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators, by their dispatcher names without a final underscore."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register
