"""Checks of a workload: each raises one clear error, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from .._files import is_encodable
from ..errors import ForwardError, WorkloadError, first_line
from ..model.tensors import tensors_in
from ..model.watch import describe, failing_layer
from ..records import ImagePreprocessing
from .eval_mode import running
from .seeding import preserve_rng

CHANNELS = (1, 3)  # of an image: grey, or three colours
CALLED_WITH = {"loss": "output, target", "metric": "predict, test"}


class Checked(Protocol):
    """The parts of a workload that are checked."""

    name: str
    model: nn.Module
    inputs: Any
    loss: Any
    metric: Any
    train: Any
    test: Any

    @property
    def device(self) -> torch.device: ...


def checked_name(name: str) -> str:
    """Return a name that can be saved and shown; else raise."""
    if not isinstance(name, str):
        raise WorkloadError(f"{name!r} cannot name a workload; a name is text, such as 'resnet18'.")
    if not is_encodable(name):
        raise WorkloadError(
            f"The name {name!r} cannot be written into a file: it holds half a character; choose "
            "another."
        )
    return name


def check_names(work: Checked) -> None:
    """Check that every name of a layer, parameter or buffer can be written into a file."""
    named = (
        *work.model.named_modules(),
        *work.model.named_parameters(),
        *work.model.named_buffers(),
    )
    for name, _ in named:
        if not is_encodable(name):
            raise WorkloadError(
                f"{work.name}: the name {name!r} cannot be written into a file; name that layer "
                "otherwise."
            )


def check_runs_live(work: Checked) -> None:
    """Refuse a module of torch.export: it is a graph in a fixed mode, which cannot be put into eval
    mode and has no layers.
    """
    if any(
        isinstance(module, GraphModule) and "eval" in vars(module)
        for module in work.model.modules()
    ):
        raise WorkloadError(
            f"{work.name} was made by torch.export, which fixes its mode and leaves no layers; "
            "give the model that was exported."
        )


def check_materialised(work: Checked) -> None:
    """Check that every weight has a shape and values."""
    for name, tensor in (*work.model.named_parameters(), *work.model.named_buffers()):
        if is_lazy(tensor):
            raise WorkloadError(
                f"{work.name}: '{name}' of a lazy layer has no shape yet; call the model once "
                "first."
            )
        if tensor.is_meta:
            raise WorkloadError(
                f"{work.name}: '{name}' is on the meta device and has no values; load the weights "
                "first."
            )


def check_inputs(work: Checked) -> None:
    """Check that the inputs have values, at least one example, and the model's device."""
    for tensor in work.inputs.tensors:
        if tensor.is_meta:
            raise WorkloadError(
                f"{work.name}: an input is on the meta device and has no values; give real tensors."
            )
        if tensor.ndim and tensor.shape[0] == 0:
            raise WorkloadError(
                f"{work.name}: an input has shape {tuple(tensor.shape)}, a batch of zero; give at "
                "least one example."
            )
        if tensor.device != work.device:
            raise WorkloadError(
                f"{work.name} is on {work.device} and an input is on {tensor.device}; move one of "
                "them."
            )


def check_data(work: Checked) -> None:
    """Check that loss and metric can be called, that a metric has data, and that data can be read
    more than once.
    """
    for what, function in (("loss", work.loss), ("metric", work.metric)):
        if function is not None and not callable(function):
            raise WorkloadError(
                f"{work.name}: the {what} is of type {type(function).__name__}, which cannot be "
                f"called; give a function that is called as {what}({CALLED_WITH[what]})."
            )
    if work.metric is not None and work.test is None:
        raise WorkloadError(
            f"{work.name} has a metric and no data to compute it on; give test=[(inputs, target), "
            "…] too, or leave metric out."
        )
    for what, data in (("train", work.train), ("test", work.test)):
        if hasattr(data, "__next__"):
            raise WorkloadError(
                f"{work.name}: the {what} data can be iterated only once; give a list of (inputs, "
                "target), or a DataLoader."
            )


def checked_preprocessing(
    work: Checked, stated: ImagePreprocessing | Mapping[str, Any]
) -> ImagePreprocessing:
    """The preprocessing with its size; raise unless it fits the example input, an image."""
    shape = tuple(work.inputs.tensors[0].shape) if work.inputs.tensors else ()
    if len(shape) != 4 or shape[1] not in CHANNELS:
        raise WorkloadError(
            f"{work.name} takes no images (1 or 3 channels × height × width) as its first input; "
            "leave preprocessing out."
        )
    try:
        given = stated.model_dump() if isinstance(stated, ImagePreprocessing) else dict(stated)
        checked = ImagePreprocessing.model_validate({"size": shape[2:], **given})
    except (ValidationError, TypeError, ValueError) as error:
        raise WorkloadError(f"{work.name}: preprocessing: {_fault(error)}.") from error
    for name in ("mean", "std"):
        values = getattr(checked, name)
        if len(values) not in (1, shape[1]):
            raise WorkloadError(
                f"{work.name}: preprocessing: {name} has {len(values)} numbers; give one, or one "
                f"for each of {shape[1]} channels."
            )
    if checked.size is None:
        return checked.model_copy(update={"size": shape[2:]})
    if checked.size != shape[2:]:
        raise WorkloadError(
            f"{work.name}: preprocessing: size is {checked.size}, and the example input has "
            f"{shape[2:]}, height and width; make them equal."
        )
    return checked


def _fault(error: Exception) -> str:
    """What is wrong with which field."""
    if not isinstance(error, ValidationError):
        return first_line(error).rstrip(".")
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def check_forward(work: Checked) -> None:
    """Call the model once with its example inputs; an error names the layer and the shapes.

    Nothing remains of the call: gradients, flags, buffers and the state of the random numbers are
    as before.
    """
    with torch.inference_mode(False), preserve_rng(work.device), running(work.model):
        try:
            work.inputs.clone()(work.model)
        except (MemoryError, torch.OutOfMemoryError):
            return  # too large for this machine, which each tool reports when it runs the model
        except Exception as error:
            raise forward_error(work, error) from error


def check_plain(name: str, output: Any) -> None:
    """Check that the values of the output can be compared."""
    for leaf in pytree.tree_leaves(output):
        if not isinstance(leaf, Tensor) and tensors_in(getattr(leaf, "__dict__", {})):
            kind = type(leaf).__name__
            raise WorkloadError(
                f"{name} outputs a {kind}, whose tensors torch does not see, so that no change of "
                "them would be noticed; let its forward return a tensor, tuple or dict, or call "
                f"torch.export.register_dataclass({kind})."
            )
    tensors = tensors_in(output)
    if any(tensor.is_nested for tensor in tensors):
        raise WorkloadError(
            f"{name} outputs a nested tensor, whose values cannot be compared; let its forward "
            "return a padded one (torch.nested.to_padded_tensor)."
        )
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise WorkloadError(
                f"{name} outputs a sparse tensor ({tensor.layout}), whose values cannot be "
                "compared; let its forward return a dense one (.to_dense())."
            )


def forward_error(work: Checked, error: Exception) -> ForwardError:
    """The error of a failing forward, with the layer that failed and the shapes it received."""
    layer, shapes = failing_layer(work.model, lambda: work.inputs.clone()(work.model))
    received = f", which received {', '.join(shapes)}" if shapes else ""
    reason = first_line(error).rstrip(".")
    return ForwardError(
        f"{work.name} fails on its example inputs at {describe(work.model, layer)}{received}: "
        f"{reason}.",
        layer=layer,
    )
