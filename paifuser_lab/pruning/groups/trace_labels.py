"""Run a model once and find what goes together. Stands on TorchDispatchMode: what ran is what
counts, whatever the control flow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ...model.watch import watching
from ...workload import Inputs, running
from .label_space import Labels, LabelSpace
from .multiplications import products_of
from .rules import CONSTANTS, Call, results_of

ANSWER = "the model's answer has these channels"
UNSEEN = "it did not run on the example inputs"
TURNS = (
    "transpose",
    "t",
    "squeeze",
    "unsqueeze",
    "swapaxes",
)  # whose rule does not mind that it was done in place
PUT_OFF = (
    "mean",
)  # torch's attention takes the mean over its heads for an answer that hardly anybody reads
COMPUTED = "the weight is computed from others (a parametrization)"


def trace(model: nn.Module, inputs: Inputs) -> LabelSpace:
    """The channel ids of a model's weights, after one run on example inputs has tied those that go
    together.
    """
    space = LabelSpace()
    tracer = _Tracer(space)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    for name, weight in (parameters | buffers).items():
        tracer.introduce(name, weight)
    _run(model, inputs, tracer)
    tracer.is_counting = False  # another way through the model multiplies no more than this one
    turned = turned_of(inputs)
    if turned is not None and any(id(weight) not in tracer.read for weight in parameters.values()):
        with suppress(
            Exception
        ):  # a model may refuse such inputs; its run would only have given more information
            _run(model, turned, tracer)
    for name, weight in (parameters | buffers).items():
        if id(weight) not in tracer.read:
            space.fix(tracer.known(weight), UNSEEN)
            if name in parameters:
                _hold_around(space, tracer, name)
    space.settle()
    return space


def turned_of(inputs: Inputs) -> Inputs | None:
    """The inputs with their signs turned, for another way through the model; None where they have
    none.
    """
    if not any(tensor.is_floating_point() for tensor in inputs.tensors):
        return None
    return inputs.map(lambda tensor: -tensor if tensor.is_floating_point() else tensor)


def _run(model: nn.Module, inputs: Inputs, tracer: _Tracer) -> None:
    given = inputs.clone()
    with running(model), by_single_operators(), watching(model, tracer.enter, tracer.leave), tracer:
        answer = given(model)
    for leaf in tensors_in(answer):
        tracer.space.fix(tracer.known(leaf), ANSWER)


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of an answer, whatever it is made of."""
    leaves = pytree.tree_leaves(
        vars(values)
        if hasattr(values, "__dict__") and not isinstance(values, Tensor | dict)
        else values
    )
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _hold_around(space: LabelSpace, tracer: _Tracer, weight: str) -> None:
    """A weight that was not read may be read on other inputs: hold what the code that could read it
    had in hand.
    """
    layer = weight.rpartition(".")[0]
    caller = layer
    while caller and caller not in tracer.entered:
        caller = caller.rpartition(".")[0]
    for labels in tracer.in_hand[caller]:
        space.fix(labels, f"layer '{layer}' did not run on the example inputs and may read it")


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands every operator call to its rule; keeps every tensor alive for the run, so that none
    takes another's place.
    """

    wants_parts = True  # layers that run as one are to run apart

    def __init__(self, space: LabelSpace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.space = space
        self.found: dict[int, Labels] = {}
        self.waiting: dict[int, Call] = {}
        self.alive: list[Tensor] = []
        self.read: set[int] = set()
        self.is_counting = True
        self.layers: list[str] = [""]
        self.entered: set[str] = {""}
        self.in_hand: dict[str, list[Labels]] = defaultdict(list)

    def introduce(self, name: str, tensor: Tensor) -> None:
        """Give a weight its channel ids."""
        if (
            id(tensor) in self.found
            or not tensor.is_floating_point()
            or tensor.layout is not torch.strided
        ):
            return
        labels = self.space.labels_of_weight(name, tensor.shape)
        self._keep(tensor, labels)
        if ".parametrizations." in f".{name}":
            self.space.fix(labels, COMPUTED)

    def known(self, tensor: Tensor) -> Labels:
        """The labels of a tensor; now that it is asked for, what was put off is done."""
        if id(tensor) in self.waiting:
            self._apply(self.waiting.pop(id(tensor)))
        return self.found.get(id(tensor), ())

    def enter(self, layer: str, args: Any, kwargs: Any) -> None:
        """A layer is called: its caller and it have these tensors in hand."""
        self._take(layer, tensors_in((args, kwargs)))
        self.layers.append(layer)
        self.entered.add(layer)

    def leave(self, layer: str, output: Any) -> None:
        """It answers."""
        self.layers.pop()
        self._take(layer, tensors_in(output))

    def _take(self, layer: str, tensors: list[Tensor]) -> None:
        labels = [self.found[id(one)] for one in tensors if self.found.get(id(one))]
        self.in_hand[layer] += labels
        self.in_hand[self.layers[-1]] += labels

    def _keep(self, tensor: Tensor, labels: Labels) -> None:
        self.found[id(tensor)] = labels
        self.alive.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.read.update(map(id, given))
        before = given[0].shape if given else None
        result = func(*args, **kwargs)
        made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        name = func._schema.name.removeprefix("aten::")
        name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if not made:
            return result
        call = Call(self.space, name, self.layers[-1], func, args, kwargs, made, self.known)
        if not (name in CONSTANTS or any(self.known(leaf) for leaf in given)):
            self._count(call)
            return result
        if given and made[0] is given[0] and made[0].shape != before and name not in TURNS:
            self.space.fix(self.known(given[0]), f"operator '{name}' changes its shape in place")
            self._keep(made[0], ())
            return result
        if name in PUT_OFF and len(made) == 1 and made[0] is not given[0]:
            self.waiting[id(made[0])] = call
            self.alive.append(made[0])
        else:
            self._apply(call)
        return result

    def _apply(self, call: Call) -> None:
        for tensor, labels in zip(call.results, results_of(call), strict=True):
            self._keep(tensor, labels)
            self.space.watch(labels)
            if labels:
                self.in_hand[call.layer].append(labels)
        self._count(call)

    def _count(self, call: Call) -> None:
        if self.is_counting:
            self.space.multiplied += products_of(call)


@contextmanager
def by_single_operators() -> Iterator[None]:
    """nn.TransformerEncoder and recurrences by their single operators instead of in one."""
    was_fast, had_onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
        torch.backends.mkldnn.enabled = had_onednn
