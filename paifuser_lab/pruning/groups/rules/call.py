"""One call of an operator, as a rule sees it, and the registry of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ..label_space import Label, Labels, LabelSpace, compressed


@dataclass(frozen=True)
class Call:
    """An operator, the layer that called it, what it was given and what it made."""

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
        """Every tensor that was given."""
        return [
            leaf
            for leaf in pytree.tree_leaves((self.args, self.kwargs))
            if isinstance(leaf, Tensor)
        ]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument by its place or by its name."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    def labels(self, place: int) -> Labels:
        """The labels of the argument at a place; none where it is no tensor."""
        given = self.args[place] if place < len(self.args) else None
        return self.known(given) if isinstance(given, Tensor) else ()

    def dims(self, given: Any, rank: int) -> list[int]:
        """Dimensions counted from the front; all of them where none is given."""
        dims = (
            range(rank)
            if given is None or given == []
            else [given]
            if isinstance(given, int)
            else given
        )
        return [dim % rank for dim in dims] if rank else []

    @property
    def where(self) -> str:
        """The operator as a reason names it."""
        return f"'{self.name}' in {f'layer {self.layer!r}' if self.layer else 'the model itself'}"

    @property
    def why(self) -> str:
        """The usual reason for a dimension to stay."""
        return f"{self.where} needs all of it"

    def moved(self, label: Label) -> list[Label]:
        """What the operator itself makes of a label in its tensor's place."""
        args, kwargs = pytree.tree_map_only(Tensor, Tensor.cpu, (self.args[1:], self.kwargs))
        made = pytree.tree_leaves(self.operator(label[...], *args, **kwargs))
        return [compressed(one) for one in made]

    def all_moved(self, labels: Labels) -> list[Labels]:
        """The same for every label of a tensor: for each result its labels."""
        moved = [self.moved(label) for label in labels]
        return [tuple(one[place] for one in moved) for place in range(len(self.results))]


Rule = Callable[[Call], list[Labels]]
RULES: dict[str, Rule] = {}
CONSTANTS = (
    "expand",
    "zeros",
    "ones",
    "full",
    "new_zeros",
    "new_ones",
    "new_full",
)  # have labels though nothing given has


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators, by the names that the dispatcher gives them, without a final
    underscore.
    """

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def each(labels: Iterable[Label | None]) -> Labels:
    """The labels that there are."""
    return tuple(label for label in labels if label is not None)
