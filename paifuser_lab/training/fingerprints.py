"""What tells one training from another: the data, the models and the loss that it is made of, each as a short text."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..chance import own_chance
from ..errors import StepError, first_line
from ..weights import weights_hash
from ..workload import Inputs, Loss, running
from .batches import Batches

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of a function that a layer holds: another in each process
READ_BYTES = 64 << 20  # of the data


def data_fingerprint(batches: Batches) -> str:
    """How many batches there are, and a hash of the first 64 MB of them in the order of one seed."""
    digest, read = hashlib.sha256(), 0
    with own_chance(batches.device):
        for batch in batches.mapped(lambda batch: batch).epoch(0, 0):
            leaves = pytree.tree_leaves((batch.inputs.args, batch.inputs.kwargs, batch.target))
            tensors = {str(index): leaf for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
            digest.update(f"{weights_hash(tensors)} {[one for one in leaves if isinstance(one, str | int | float)]}".encode())
            read += sum(tensor.nbytes for tensor in tensors.values())
            if read > READ_BYTES:
                break
    return f"data {batches.count} {digest.hexdigest()}"


def model_fingerprint(model: nn.Module, inputs: Inputs) -> str:
    """Its weights to the bit, its build, and how large its answer is; the last is rounded, as it depends on the number of threads."""
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    with running(model):
        answer = inputs.clone()(model)
    norms = [f"{float(leaf.double().norm()):.4g}" for leaf in pytree.tree_leaves(answer) if isinstance(leaf, Tensor)]
    build = hashlib.sha256(ADDRESS.sub("", str(model)).encode()).hexdigest()
    return f"model {weights_hash(model)} {build} {norms} {frozen}"


def loss_fingerprint(loss: Loss | None, model: nn.Module, batches: Batches) -> str:
    """The loss by its name and by what it says of a model's answer to one batch: code has no hash that a notebook would not change."""
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
            f"the loss fails on the {batches.what} ({type(error).__name__}: {first_line(error)}); mend it."
        ) from error
    return f"loss {_named(loss)} {said:.4g}"


def _named(loss: Any) -> str:
    return str(loss) if isinstance(loss, nn.Module) else getattr(loss, "__qualname__", type(loss).__qualname__)
