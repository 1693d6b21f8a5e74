"""Run a model once and find which channels go together. Built on TorchDispatchMode: it sees the
operators that ran, whatever the control flow.
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

OUTPUT = "the model's answer has these channels"
UNSEEN = "it did not run on the example inputs"
# operators whose rule also holds for the in-place variant
IN_PLACE_VIEWS = ("transpose", "t", "squeeze", "unsqueeze", "swapaxes")
# applied only when the result is used: torch's attention takes the mean over its heads for an
# output that is rarely read
DEFERRED = ("mean",)
COMPUTED = "the weight is computed from others (a parametrization)"


def trace(model: nn.Module, inputs: Inputs) -> LabelSpace:
    """The channel ids of a model's weights, joined by one run on example inputs."""
    space = LabelSpace()
    tracer = _Tracer(space)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    saved = model.state_dict().keys()
    for name, weight in (parameters | buffers).items():
        # a layer of nothing but unsaved buffers computes them, as a rotation its angles: they stay
        owner = model.get_submodule(name.rpartition(".")[0])
        if name in saved or any(True for _ in owner.parameters()):
            tracer.introduce(name, weight)
    _run(model, inputs, tracer)
    tracer.is_counting = False  # products are counted in the first run only
    flipped = sign_flipped(inputs)
    if flipped is not None and any(id(weight) not in tracer.read for weight in parameters.values()):
        # a model may refuse such inputs; the second run only adds information
        with suppress(Exception):
            _run(model, flipped, tracer)
    for name, weight in (parameters | buffers).items():
        if id(weight) not in tracer.read:
            space.fix(tracer.known(weight), UNSEEN)
            if name in parameters:
                _fix_around(space, tracer, name)
    space.settle()
    return space


def sign_flipped(inputs: Inputs) -> Inputs | None:
    """The inputs with their signs flipped, which may take another path; None if they have none."""
    if not any(tensor.is_floating_point() for tensor in inputs.tensors):
        return None
    return inputs.map(lambda tensor: -tensor if tensor.is_floating_point() else tensor)


def _run(model: nn.Module, inputs: Inputs, tracer: _Tracer) -> None:
    own_inputs = inputs.clone()
    with running(model), by_single_operators(), watching(model, tracer.enter, tracer.leave), tracer:
        output = own_inputs(model)
    for leaf in tensors_in(output):
        tracer.space.fix(tracer.known(leaf), OUTPUT)


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of an output, whatever its structure."""
    leaves = pytree.tree_leaves(
        vars(values)
        if hasattr(values, "__dict__") and not isinstance(values, Tensor | dict)
        else values
    )
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _fix_around(space: LabelSpace, tracer: _Tracer, weight: str) -> None:
    """Fix what the code around a weight that was not read had access to, since it may read the
    weight on other inputs.
    """
    layer = weight.rpartition(".")[0]
    caller = layer
    while caller and caller not in tracer.entered:
        caller = caller.rpartition(".")[0]
    for labels in tracer.accessible[caller]:
        space.fix(labels, f"layer '{layer}' did not run on the example inputs and may read it")


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes operators to their rules; keeps tensors alive, so that their ids are not reused."""

    wants_parts = True  # fused layers run as their parts

    def __init__(self, space: LabelSpace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.space = space
        self.labels: dict[int, Labels] = {}
        self.deferred: dict[int, Call] = {}
        self.alive: list[Tensor] = []
        self.read: set[int] = set()
        self.is_counting = True
        self.layers: list[str] = [""]
        self.entered: set[str] = {""}
        self.accessible: dict[str, list[Labels]] = defaultdict(list)

    def introduce(self, name: str, tensor: Tensor) -> None:
        """Assign channel ids to a weight."""
        if (
            id(tensor) in self.labels
            or not tensor.is_floating_point()
            or tensor.layout is not torch.strided
        ):
            return
        labels = self.space.new_labels(tensor.shape, range(tensor.ndim), name)
        self._keep(tensor, labels)
        if ".parametrizations." in f".{name}":
            self.space.fix(labels, COMPUTED)

    def known(self, tensor: Tensor) -> Labels:
        """The labels of a tensor; applies its operator's rule if that was deferred."""
        if id(tensor) in self.deferred:
            self._apply(self.deferred.pop(id(tensor)))
        return self.labels.get(id(tensor), ())

    def enter(self, layer: str, args: Any, kwargs: Any) -> None:
        """A layer is called: it and its caller have access to these tensors."""
        self._take(layer, tensors_in((args, kwargs)))
        self.layers.append(layer)
        self.entered.add(layer)

    def leave(self, layer: str, output: Any) -> None:
        """A layer returns."""
        self.layers.pop()
        self._take(layer, tensors_in(output))

    def _take(self, layer: str, tensors: list[Tensor]) -> None:
        labels = [self.labels[id(tensor)] for tensor in tensors if self.labels.get(id(tensor))]
        self.accessible[layer] += labels
        self.accessible[self.layers[-1]] += labels

    def _keep(self, tensor: Tensor, labels: Labels) -> None:
        self.labels[id(tensor)] = labels
        self.alive.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.read.update(map(id, inputs))
        before = inputs[0].shape if inputs else None
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        name = func._schema.name.removeprefix("aten::")
        name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if not outputs:
            return result
        call = Call(self.space, name, self.layers[-1], func, args, kwargs, outputs, self.known)
        if not (name in CONSTANTS or any(self.known(leaf) for leaf in inputs)):
            self._count(call)
            return result
        if (
            inputs
            and outputs[0] is inputs[0]
            and outputs[0].shape != before
            and name not in IN_PLACE_VIEWS
        ):
            self.space.fix(self.known(inputs[0]), f"operator '{name}' changes its shape in place")
            self._keep(outputs[0], ())
            return result
        if name in DEFERRED and len(outputs) == 1 and outputs[0] is not inputs[0]:
            self.deferred[id(outputs[0])] = call
            self.alive.append(outputs[0])
        else:
            self._apply(call)
        return result

    def _apply(self, call: Call) -> None:
        for tensor, labels in zip(call.results, results_of(call), strict=True):
            self._keep(tensor, labels)
            self.space.watch(labels)
            if labels:
                self.accessible[call.layer].append(labels)
        self._count(call)

    def _count(self, call: Call) -> None:
        if self.is_counting:
            self.space.products += products_of(call)


@contextmanager
def by_single_operators() -> Iterator[None]:
    """Run nn.TransformerEncoder and recurrent layers as their single operators instead of fused."""
    was_fast, had_onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
        torch.backends.mkldnn.enabled = had_onednn
