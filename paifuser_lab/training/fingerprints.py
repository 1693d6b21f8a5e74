"""What tells one training from another: the data, the models and the loss that it is made of, each
as a short text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import StepError, StoppedError, first_line
from ..model.weights import weights_hash
from ..workload import Inputs, Loss, running
from ..workload.data import Batches
from ..workload.seeding import preserve_rng

ADDRESS = re.compile(
    r" at 0x[0-9a-fA-F]+"
)  # of a function that a layer holds: another in each process
ASKED_EVERY_BYTES = 64 << 20  # of the data, whether to stop


def data_fingerprint(batches: Batches, should_stop: Callable[[], bool] = lambda: False) -> str:
    """How many batches there are, and a hash of all that they hold in the order of one seed; a
    loader makes them once for it.
    """
    digest, read = hashlib.sha256(), 0
    with preserve_rng(batches.device):
        for batch in batches.mapped(lambda batch: batch).epoch(0, 0):
            leaves = pytree.tree_leaves((batch.inputs.args, batch.inputs.kwargs, batch.target))
            tensors = {
                str(place): tensor
                for place, leaf in enumerate(leaves)
                if (tensor := _tensor(leaf)) is not None
            }
            digest.update(
                (
                    f"{weights_hash(tensors)} "
                    f"{[one for one in leaves if isinstance(one, str | int | float)]}"
                ).encode()
            )
            read += sum(tensor.nbytes for tensor in tensors.values())
            if read > ASKED_EVERY_BYTES:
                read = 0
                if should_stop():
                    raise StoppedError(
                        "was stopped while its data were gone through; nothing was changed."
                    )
    return f"data {batches.count} {digest.hexdigest()}"


def _tensor(leaf: Any) -> Tensor | None:
    if isinstance(leaf, ndarray) and leaf.dtype.kind in "biuf":
        return torch.as_tensor(leaf.copy())  # one that cannot be written to, torch warns of
    return leaf if isinstance(leaf, Tensor) else None


def model_fingerprint(model: nn.Module, inputs: Inputs) -> str:
    """Its weights to the bit, its build, and how large its answer is; the last is rounded, as it
    depends on the number of threads.
    """
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    with running(model):
        answer = inputs.clone()(model)
    norms = [
        f"{float(leaf.double().norm()):.4g}"
        for leaf in pytree.tree_leaves(answer)
        if isinstance(leaf, Tensor)
    ]
    build = hashlib.sha256(ADDRESS.sub("", str(model)).encode()).hexdigest()
    return f"model {weights_hash(model)} {build} {norms} {frozen}"


def loss_fingerprint(loss: Loss | None, model: nn.Module, batches: Batches) -> str:
    """The loss by its name and by what it says of a model's answer to one batch: code has no hash
    that a notebook would not change.
    """
    batch = batches.first()
    if loss is None or batch.target is None:
        return "no loss"
    with running(model):
        answer = batch.inputs.clone()(model)
    try:
        with torch.no_grad():
            said = float(loss(answer, batch.target))
    except Exception as error:
        raise StepError(
            f"the loss fails on the {batches.what} ({type(error).__name__}: {first_line(error)}); "
            "mend it."
        ) from error
    return f"loss {_named(loss)} {said:.4g}"


def _named(loss: Any) -> str:
    return (
        str(loss)
        if isinstance(loss, nn.Module)
        else getattr(loss, "__qualname__", type(loss).__qualname__)
    )
