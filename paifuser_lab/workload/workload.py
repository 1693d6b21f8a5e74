"""A model with what is needed to evaluate it: example inputs and, where known, loss, data and
metric.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..arguments import device_of
from ..errors import (
    ForwardError,
    MeasureError,
    MissingInputsError,
    PaifuserError,
    WorkloadError,
    first_line,
)
from ..model.copying import copied
from ..model.model_graph import model_graph
from ..model.watch import describe, first_nan, has_nan
from ..records import ImagePreprocessing, ModelGraph, Origin
from ..records.record import WorkloadName
from .checks import (
    check_data,
    check_forward,
    check_inputs,
    check_materialised,
    check_names,
    check_plain,
    check_runs_live,
    checked_name,
    checked_preprocessing,
    forward_error,
)
from .eval_mode import evaluating, is_equal, running
from .infer_inputs import inferred_inputs
from .inputs import UNSEEN, Inputs, known_inputs, note_inputs

if TYPE_CHECKING:
    from .generation import Generation

Loss = Callable[[Any, Any], Tensor]
Options = dict[str, dict[str, Any]]  # a step's name, and its options
Metric = Callable[[Callable[..., Any], Any], float]


class Workload:
    """The subject of every tool: a model, example inputs and, where known, loss, train and test
    data, a metric, and how a picture becomes its input.

    Only training changes the model: else it runs in eval mode, without gradients, and its training
    flags and buffers are restored afterwards. It runs once at once, so that inputs that do not fit
    it are refused here. Inputs may be left out where its first layer determines them; `notes` says
    so.
    `preprocessing` is a record, or a dict of its fields: `{"mean": 0.45, "std": 0.25}`.
    """

    original_hash = ""  # of the weights before the steps of the folder that it was loaded from
    own_threads: int | None = None  # torch's number applies; a variant's engine may fix its own

    def __init__(
        self,
        model: nn.Module,
        inputs: Any = None,
        *,
        name: str | None = None,
        loss: Loss | None = None,
        train: Sequence[tuple[Any, Any]] | None = None,
        test: Sequence[tuple[Any, Any]] | None = None,
        metric: Metric | None = None,
        preprocessing: ImagePreprocessing | Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise WorkloadError(
                f"A workload needs a torch.nn.Module, not a {type(model).__name__}."
            )
        self.model = model
        self.name: str = WorkloadName(checked_name(name or type(model).__name__))
        self.loss, self.train, self.test, self.metric = loss, train, test, metric
        self.origin: Origin | None = None  # how to load it again, if `load` created it
        self.loaded_with: dict[str, Any] = {}  # weights and data that `load` was given besides
        self.applied: tuple[Options, ...] = ()  # the recipe steps that the model was changed by
        self._preprocessing: ImagePreprocessing | None = None
        self.notes: tuple[str, ...] = ()  # on its inputs, and how a model from a file runs
        self.files: tuple[Path, ...] = ()  # that the model was read from
        # makes a language model's tokenizer, where its files hold one
        self.make_tokenizer: Callable[[], Any] | None = None
        # What `apply` made of it, in a cache that lives as long as the workload.
        self.variants: OrderedDict[Any, Any] = OrderedDict()
        check_names(self)
        check_runs_live(self)
        check_materialised(self)
        self.inputs = self._inferred() if inputs is None else Inputs.of(inputs)
        check_inputs(self)
        check_data(self)
        if self.inputs is not UNSEEN:
            check_forward(self)
            note_inputs(model, self.inputs)
        self.preprocessing = preprocessing

    @classmethod
    def from_onnx(
        cls,
        path: str | Path,
        inputs: Mapping[str, Tensor] | None = None,
        *,
        batch: int = 1,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        **parts: Any,
    ) -> Self:
        """A workload of an ONNX file: converted to torch, with its output proven equal to ONNX
        Runtime's, where its operators allow; else run there as it is. `notes` says which.

        Inputs are made up from the shapes in the file, with `sizes` for those that it leaves open,
        unless given by name. `parts` are the other arguments of a workload, such as `test`.
        """
        from ..importer.onnx import load_onnx

        read = load_onnx(path, batch=batch, seed=seed, inputs=inputs, sizes=sizes)
        known = {"name": read.name, "preprocessing": read.preprocessing}
        work = cls(read.model, read.inputs, **(known | parts))
        work.notes, work.files = read.notes, read.files
        return work

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How a picture becomes its input; None where nobody stated it."""
        return self._preprocessing

    @preprocessing.setter
    def preprocessing(self, stated: ImagePreprocessing | Mapping[str, Any] | None) -> None:
        self._preprocessing = None if stated is None else checked_preprocessing(self, stated)

    def _inferred(self) -> Inputs:
        """The inputs that are known of the model, or that its first layer determines."""
        if (known := known_inputs(self.model)) is not None:
            return known
        if (inferred := inferred_inputs(self.model)) is None:
            raise MissingInputsError(
                f"No inputs are known of {self.name}: give an example, lab.Workload(model, inputs)."
            )
        inputs, note = inferred
        self.notes = (note,)
        return inputs

    @property
    def loaded_as(self) -> str:
        """The name to load it by again, where it was loaded by one; else its own."""
        return self.origin.name if self.origin is not None else self.name

    @property
    def loading_code(self) -> str:
        """The line of Python that loads it again; '' where it was made by hand."""
        if self.origin is None:
            return ""
        seed = {"seed": self.origin.seed} if self.origin.seed else {}
        options = {"batch": self.origin.batch, **seed, **self.origin.options, **self.loaded_with}
        is_program = self.origin.name.lower().endswith(".pt2")
        if options["batch"] == (None if is_program else 1) or options["batch"] is None:
            del options["batch"]
        options |= {"trust": True} if is_program else {}  # or it is refused, as it holds code
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        return f"work = lab.load({self.origin.name!r}{given})\n"

    def __repr__(self) -> str:
        shapes = ", ".join("×".join(map(str, tensor.shape)) for tensor in self.inputs.tensors)
        return f"Workload({self.name}: {shapes})"

    @property
    def device(self) -> torch.device:
        """The device of the model's weights (the CPU for a model without any)."""
        return next((tensor.device for tensor in self.model.parameters()), torch.device("cpu"))

    @property
    def metric_name(self) -> str | None:
        """The name of the metric."""
        return (
            None
            if self.metric is None
            else getattr(self.metric, "__name__", type(self.metric).__name__)
        )

    @property
    def smaller_is_better(self) -> bool:
        """Whether the metric says so of itself by an attribute `smaller_is_better = True`."""
        return bool(getattr(self.metric, "smaller_is_better", False))

    def metric_lost(self, before: float, now: float) -> float:
        """By how much a metric is worse than before; negative where it is better."""
        return now - before if self.smaller_is_better else before - now

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of a language model."""
        if self.make_tokenizer is None:
            raise WorkloadError(
                f"{self.name} has no tokenizer beside its weights; save one into its folder "
                "(tokenizer.save_pretrained)."
            )
        return self.make_tokenizer()

    def generation(self, prompt_tokens: int = 128, new_tokens: int = 64) -> Generation:
        """Generating text with a causal language model, as two workloads: `prefill` reads a prompt,
        `decode` adds one token; and what the cache takes.
        """
        from .generation import generation

        return generation(self, prompt_tokens, new_tokens)

    def output(self) -> Any:
        """The model's output for its example inputs, checked: an error or a NaN names the layer
        where it began.
        """
        inputs = self.inputs.clone()
        with running(self.model):
            try:
                output = inputs(self.model)
            except Exception as error:
                raise forward_error(self, error) from error
            check_plain(self.name, output)
            if has_nan(output):
                run = lambda: self.inputs.clone()(self.model)
                layer = first_nan(self.model, run) or ""
                raise ForwardError(
                    f"{self.name} returns NaN on its example inputs, first at "
                    f"{describe(self.model, layer)}.",
                    layer=layer,
                )
        return output

    def evaluate(self, model: Callable[..., Any] | None = None) -> float | None:
        """The metric of a model (the workload's own by default) on the test data; None if there is
        no metric or no test data.
        """
        if self.metric is None or self.test is None:
            return None
        evaluated = model or self.model
        module = evaluated if isinstance(evaluated, nn.Module) else self.model

        def predict(batch: Any) -> Any:
            with _user_code(
                f"{self.name} fails on its test data",
                "see that each batch has what the model takes",
            ):
                # a copy, which the model may write into
                inputs = Inputs.of(batch).map(lambda tensor: tensor.to(self.device, copy=True))
                output = inputs(evaluated)
            return pytree.tree_map_only(Tensor, lambda tensor: tensor.cpu(), output)

        problem = f"metric '{self.metric_name}' of {self.name} fails"
        with (
            running(module),
            evaluating(),
            _user_code(problem, "correct it: it is called as metric(predict, test)"),
        ):
            return float(self.metric(predict, self.test))

    def graph(self) -> ModelGraph:
        """The operators of one call and the tensors between them, for `lab.figure`."""
        inputs = self.inputs.clone()
        with running(self.model):
            return model_graph(self.model, lambda: inputs(self.model), self.name)

    def to(self, device: str | torch.device) -> Self:
        """The same workload on another device, with a copy of the model."""
        device = device_of(device)
        work = self.copied()
        work.model = work.model.to(device)
        work.inputs = self.inputs.map(lambda tensor: tensor.to(device))
        return work

    def for_trials(self) -> Self:
        """The same workload with a variant cache of its own: trials evict nothing that undo needs,
        and their models are freed with it.
        """
        trial = copy.copy(self)
        trial.variants = OrderedDict()
        return trial

    def copied(self) -> Self:
        """The same workload with a copy of the model."""
        own = copy.copy(self)
        own.variants = OrderedDict()
        try:
            own.model = copied(self.model)
        except Exception as error:
            raise WorkloadError(
                f"{self.name} cannot be copied ({first_line(error)}), and only a copy is changed "
                "or moved."
            ) from error
        return own


@contextmanager
def _user_code(what: str, remedy: str) -> Iterator[None]:
    """Wrap an exception of the user's code into an error that names what it was called for."""
    try:
        yield
    except PaifuserError:
        raise
    except Exception as error:
        raise MeasureError(
            f"{what} ({type(error).__name__}: {first_line(error).rstrip('.')}); {remedy}."
        ) from error


class Derived(Protocol):
    """What was derived from a workload, such as a variant, and can be inspected like one."""

    @property
    def workload(self) -> Workload: ...

    @property
    def own_threads(self) -> int | None: ...


def workload_of(subject: Workload | Derived) -> Workload:
    """The workload of a tool's subject: the subject itself or its `workload`; a bare model raises.

    Every public function that takes a workload begins with this call.
    """
    if isinstance(subject, Workload):
        return subject
    work = None if isinstance(subject, nn.Module) else getattr(subject, "workload", None)
    if not isinstance(work, Workload):
        kind = type(subject).__name__
        raise WorkloadError(
            f"A {kind} is not a workload; wrap the model: lab.Workload(model, inputs), or "
            "lab.load(name)."
        )
    return work


# Decorates what creates models or needs gradients: a caller may be in torch.inference_mode(), whose
# tensors can be neither trained nor changed later.
outside_inference = torch.inference_mode(False)


def changed_buffers(work: Workload) -> tuple[str, ...]:
    """The names of the buffers that the model's forward writes to."""
    before = {name: buffer.detach().clone() for name, buffer in work.model.named_buffers()}
    inputs = work.inputs.clone()
    with running(work.model):
        inputs(work.model)
        after = dict(work.model.named_buffers())
        return tuple(
            name
            for name, value in before.items()
            if name not in after or not is_equal(after[name], value)
        )
