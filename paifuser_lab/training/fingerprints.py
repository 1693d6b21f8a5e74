"""Fingerprints of the data, the models and the loss of a training, which identify it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import StepError, StoppedError, first_line
from ..model.tensors import tensors_in
from ..model.weights import weights_hash
from ..workload import Inputs, Loss, running
from ..workload.data import Batches
from ..workload.seeding import preserve_rng

# The address in the repr of a function that a layer holds, which differs in each process.
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
ASKED_EVERY_BYTES = 64 << 20  # of the data read between two calls of should_stop


def fingerprints(
    models: Sequence[nn.Module],
    inputs: Inputs,
    loss: Loss | None,
    batches: Iterable[Any] | Batches,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[str]:
    """What a training depends on besides its options: the models, of which the loss judges the
    first, the data, the loss, and torch.
    """
    device = next((weight.device for weight in models[0].parameters()), torch.device("cpu"))
    batches = Batches.of(batches, device)
    return [
        *(model_fingerprint(model, inputs) for model in models),
        data_fingerprint(batches, should_stop),
        loss_fingerprint(loss, models[0], batches),
        torch.__version__,
        device.type,
    ]


def data_fingerprint(
    batches: Batches,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    most_bytes: float = math.inf,
) -> str:
    """The number of batches, and a hash of their contents in the order of one seed; a loader is
    iterated once for it, or until `most_bytes` were read.
    """
    digest, read, total = hashlib.sha256(), 0, 0
    epoch = batches.mapped(lambda batch: batch).epoch(0, 0)
    with preserve_rng(batches.device), closing(epoch):
        for batch in epoch:
            leaves = pytree.tree_leaves((batch.inputs.args, batch.inputs.kwargs, batch.target))
            tensors = {
                str(index): tensor
                for index, leaf in enumerate(leaves)
                if (tensor := _tensor(leaf)) is not None
            }
            digest.update(
                (
                    f"{weights_hash(tensors)} "
                    f"{[leaf for leaf in leaves if isinstance(leaf, str | int | float)]}"
                ).encode()
            )
            size = sum(tensor.nbytes for tensor in tensors.values())
            read, total = read + size, total + size
            if total > most_bytes:
                break
            if read > ASKED_EVERY_BYTES:
                read = 0
                if should_stop():
                    raise StoppedError("was stopped while its data were read; nothing was changed.")
    return f"data {batches.count} {digest.hexdigest()}"


def _tensor(leaf: Any) -> Tensor | None:
    if isinstance(leaf, ndarray) and leaf.dtype.kind in "biuf":
        return torch.as_tensor(leaf.copy())  # torch warns of a read-only array
    return leaf if isinstance(leaf, Tensor) else None


def model_fingerprint(model: nn.Module, inputs: Inputs) -> str:
    """The model's exact weights, its structure, and the norms of its output; these are rounded, as
    they depend on the number of threads.
    """
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    with running(model):
        output = inputs.clone()(model)
    norms = [f"{float(leaf.double().norm()):.4g}" for leaf in tensors_in(output)]
    return f"model {weights_hash(model)} {layers_fingerprint(model)} {norms} {frozen}"


def layers_fingerprint(model: nn.Module) -> str:
    """A hash of the model's layers as they print themselves."""
    return hashlib.sha256(ADDRESS.sub("", str(model)).encode()).hexdigest()


def loss_fingerprint(loss: Loss | None, model: nn.Module, batches: Batches) -> str:
    """The loss by its name and by its value for a model's output for one batch: a hash of its code
    would change with a notebook.
    """
    batch = batches.first()
    if loss is None or batch.target is None:
        return "no loss"
    with running(model):
        output = batch.inputs.clone()(model)
    try:
        with torch.no_grad():
            value = float(loss(output, batch.target))
    except Exception as error:
        raise StepError(
            f"the loss fails on the train data ({type(error).__name__}: {first_line(error)}); "
            "correct it."
        ) from error
    return f"loss {loss_name(loss)} {value:.4g}"


def loss_value(loss: Loss, model: nn.Module, batches: Batches) -> str:
    """The loss of made-up outputs for one batch, which depends on the loss alone and not on the
    weights; '' where it accepts no such outputs.
    """
    batch = batches.first()
    generator = torch.Generator().manual_seed(0)

    def made_up(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return torch.rand(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)

    with running(model), torch.no_grad():
        output = pytree.tree_map_only(Tensor, made_up, batch.inputs.clone()(model))
        try:
            return f"{float(loss(output, batch.target)):.5g}"
        except Exception:  # the user's code may check its inputs in any way
            return ""


def loss_name(loss: Any) -> str:
    return (
        str(loss)
        if isinstance(loss, nn.Module)
        else getattr(loss, "__qualname__", type(loss).__qualname__)
    )
