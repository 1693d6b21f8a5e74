"""Finds the layers of a model that attend, from one run, and fixed lists of blocks for them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature, signature
from typing import Any

from torch import Tensor, nn

from ..kernels.block_gather import blocks_of
from ..model.watch import watching
from ..records import AttentionKind
from ..workload import Inputs, Workload, running
from ..workload.data import samples_of
from .attention import attend, expand_heads, why_dense
from .block_lists import Sparsity, as_four_dimensions, fixed_lists
from .redirect import SDPA, Redirected, make_dense, make_redirectable
from .windows import is_windowed

MOST_EXAMPLES = 16
# the arguments of torch's attention, which is a builtin without a signature
CALL = Signature(
    [
        parameter
        for parameter in signature(attend).parameters.values()
        if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
)


@dataclass(frozen=True)
class Call:
    """One call of torch's attention, with its arguments."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_causal(self) -> bool:
        return bool(self.options["is_causal"])

    @property
    def lengths(self) -> tuple[int, int]:
        """The number of queries and of keys."""
        return self.query.shape[-2], self.key.shape[-2]

    @property
    def is_padded(self) -> bool:
        """Whether its mask hides the same keys from every query."""
        mask = as_four_dimensions(self.options["attn_mask"], self.key.shape[-2])
        return mask is not None and mask.shape[2] == 1

    @property
    def why_dense(self) -> str:
        """Why it cannot attend to a part of the keys; '' if it can."""
        return why_dense(
            self.query,
            self.key,
            self.value,
            self.options["attn_mask"],
            self.options["is_causal"],
            self.options["scale"],
        )

    @property
    def signature(self) -> tuple[Any, ...]:
        """A key; calls of equal signature take the same time."""
        mask = self.options["attn_mask"]
        shown = None if mask is None else (tuple(mask.shape), mask.stride(), mask.dtype)
        plain = tuple((name, value) for name, value in self.options.items() if name != "attn_mask")
        return tuple(self.query.shape), tuple(self.key.shape), self.query.dtype, shown, plain


@dataclass(frozen=True)
class Attending:
    """The layers that attend, with their calls, and why some of them cannot attend to a part."""

    calls: dict[str, list[Call]]
    reasons: dict[str, str]

    @property
    def able(self) -> dict[str, list[Call]]:
        """The layers that can attend to a part of the keys."""
        return {layer: calls for layer, calls in self.calls.items() if layer not in self.reasons}


def find_attention(model: nn.Module, inputs: Inputs, kind: AttentionKind = "topk") -> Attending:
    """Find the layers that attend, and which of them can attend to a part picked by a rule."""
    results = calls_of(model, inputs)
    modules = dict(model.named_modules())
    calls = {
        name: results.get(name, [])
        for name in modules
        if name in results or isinstance(modules[name], nn.MultiheadAttention)
    }
    windows = {name for name, module in modules.items() if is_windowed(module)}
    return Attending(
        calls,
        {
            layer: why
            for layer, layer_calls in calls.items()
            if (why := _why_not(layer, layer_calls, windows, kind))
        },
    )


def calls_of(model: nn.Module, inputs: Inputs) -> dict[str, list[Call]]:
    """The calls of torch's attention in one run, by layer, of a copy that attends to all keys."""
    seen = copy.deepcopy(model)
    make_dense(seen)
    for name, _ in model.named_modules():
        make_redirectable(seen, name)
    layers, calls = [""], dict[str, list[Call]]()

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        layers.append(layer)

    def leave(layer: str, output: Any) -> None:
        layers.pop()

    def attention(*args: Any, **kwargs: Any) -> Tensor:
        bound = CALL.bind(*args, **kwargs)
        bound.apply_defaults()
        options = dict(bound.arguments)
        query, key, value = (options.pop(name).detach() for name in ("query", "key", "value"))
        calls.setdefault(layers[-1], []).append(Call(query, key, value, options))
        output: Tensor = SDPA(*args, **kwargs)
        return output

    inputs = inputs.clone()
    with running(seen), watching(seen, enter, leave), Redirected(attention):
        inputs(seen)
    return calls


def _why_not(layer: str, calls: Sequence[Call], windows: set[str], kind: AttentionKind) -> str:
    """Why a layer cannot attend to a part of the keys."""
    if not calls:
        return (
            "it does not run, or is asked for the weights of its attention; call it with "
            "need_weights=False"
        )
    if any(layer.startswith(f"{window}.") or layer == window for window in windows):
        return (
            f"it attends within windows of {calls[0].key.shape[2]} tokens, which kind window runs "
            "in one pass"
        )
    if not layer:
        return "the model itself calls torch's attention; put that into a layer of its own"
    if why := next((call.why_dense for call in calls if call.why_dense), ""):
        return why
    if kind == "block" and len({call.lengths for call in calls}) > 1:
        return (
            "it attends to keys of several lengths, which kind block has one list for; take kind "
            "topk or window"
        )
    return ""


def lists_from_data(
    model: nn.Module, work: Workload, layers: Iterable[str], sparsity: Sparsity
) -> dict[str, Tensor | None]:
    """The lists of each layer; None for kinds that select at each call."""
    names = list(layers)
    if sparsity.kind != "block" or not names:
        return dict.fromkeys(names)
    samples = samples_of(work, MOST_EXAMPLES)
    few = samples.first(MOST_EXAMPLES)  # a first batch may be larger
    examples, data = calls_of(model, work.inputs), calls_of(model, few)
    lists: dict[str, Tensor | None] = {}
    for layer in names:
        lengths = examples[layer][0].lengths
        fitting = [call for call in data.get(layer, []) if call.lengths == lengths]
        lists[layer] = lists_for([*fitting, *examples[layer]], sparsity)
    return lists


def lists_for(calls: Sequence[Call], sparsity: Sparsity) -> Tensor:
    """The lists of one layer, from its calls."""
    count = sparsity.of(blocks_of(calls[0].key.shape[2]))
    pairs = [
        expand_heads(call.query, call.key, call.value, call.options["enable_gqa"])[:2]
        for call in calls
    ]
    return fixed_lists(pairs, count, is_causal=calls[0].is_causal)
