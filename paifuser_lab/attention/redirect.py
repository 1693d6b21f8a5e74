"""A layer that attends to a part of the keys: while it runs, calls of torch's attention are
redirected to this project's. Built on TorchFunctionMode.

The layer's own code is not rewritten, so this works for any layer that calls
`F.scaled_dot_product_attention`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..pruning.groups.narrow_attention import NarrowAttention
from .attention import attend
from .block_lists import Sparsity
from .subclassing import Subclassed, subclass_layer

SDPA = F.scaled_dot_product_attention


class Redirected(TorchFunctionMode):
    """Redirects torch's attention to another function; all other functions are unchanged."""

    def __init__(self, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        self.attention = attention

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is SDPA:
            return self.attention(*args, **kwargs)
        # Written in Python; a compiler reads it only as a method of a tensor, as it does `split`.
        if func is Tensor.unflatten:
            return args[0].unflatten(*args[1:], **kwargs)
        if func is Tensor.split:
            return args[0].split(*args[1:], **kwargs)
        return func(*args, **kwargs)


class Sparse(Subclassed):
    """A layer that attends to a part of the keys, or to all while `sparsity` is None."""

    sparsity: Sparsity | None
    kept_blocks: Tensor | None

    def attend_to(self, sparsity: Sparsity | None, fixed: Tensor | None = None) -> None:
        """Set the sparsity; `fixed` are the lists of kind block."""
        self.sparsity, self.kept_blocks = sparsity, fixed

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's own forward, with its attention redirected."""
        if self.sparsity is None:
            return super().forward(*args, **kwargs)  # type: ignore[misc]
        with Redirected(self._attention):
            return super().forward(*args, **kwargs)  # type: ignore[misc]

    def _attention(self, *args: Any, **kwargs: Any) -> Tensor:
        assert self.sparsity is not None
        return attend(*args, sparsity=self.sparsity, fixed=self.kept_blocks, **kwargs)


def make_redirectable(model: nn.Module, layer: str) -> None:
    """Let nn.MultiheadAttention call torch's attention directly; any other layer is unchanged."""
    attention = model.get_submodule(layer)
    if type(attention) not in (nn.MultiheadAttention, NarrowAttention):
        return
    if attention.bias_k is not None or attention.add_zero_attn:
        return
    attention.__class__ = NarrowAttention
    attention._qkv_same_embed_dim = False  # disables torch's fused encoder layer
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder) and layer.startswith(
            f"{name}." if name else ""
        ):
            module.use_nested_tensor = False  # only that fused layer supports them


def drops_padding(module: nn.Module) -> bool:
    """Whether a module is nn.TransformerEncoder and drops padding before torch's fused layers."""
    return isinstance(module, nn.TransformerEncoder) and bool(module.use_nested_tensor)


def make_sparse(
    model: nn.Module, layer: str, sparsity: Sparsity | None, fixed: Tensor | None = None
) -> None:
    """Let a layer of a model attend to a part of the keys; `fixed` are the lists of kind block. It
    can be called again with another sparsity.
    """
    make_redirectable(model, layer)
    module = model.get_submodule(layer)
    if not isinstance(module, Sparse):
        subclass_layer(module, Sparse)
        module.register_buffer("kept_blocks", None, persistent=False)
    sparse_layer(model, layer).attend_to(sparsity, fixed)


def sparse_layer(model: nn.Module, layer: str) -> Sparse:
    """The layer, which must have been made sparse."""
    module = model.get_submodule(layer)
    assert isinstance(module, Sparse)
    return module


def as_dense(model: nn.Module) -> nn.Module:
    """The model if every layer attends to all keys, else a copy that does."""
    if not any(isinstance(module, Sparse) and module.sparsity for module in model.modules()):
        return model
    dense = copy.deepcopy(model)
    make_dense(dense)
    return dense


def make_dense(model: nn.Module) -> None:
    """Let every layer attend to all keys again."""
    for module in model.modules():
        if isinstance(module, Sparse):
            module.sparsity = None
