"""Engines: each is called like the model it replaces and gives the same output, or raises."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload, engines
from paifuser_lab.engines import available_engines, build_engine, exported, inductor
from paifuser_lab.errors import MissingExtraError, RecipeError, StepError
from paifuser_lab.measure import output_error
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.workload import Inputs
from tests.support.engines import EXPORTED, PARAMETERS
from tests.support.models import Branching, Counting, Mapped, Scaled, Scribbling, Small, ids, images

each_export = pytest.mark.parametrize("engine", EXPORTED)
each = pytest.mark.parametrize("engine", PARAMETERS.values())
# where the exported engines share the code, one is enough
of_each_kind = pytest.mark.parametrize("engine", ["eager", "replay", EXPORTED[0]])


def total_output(predict: Any, test: Any) -> float:
    return float(sum(predict(batch).double().sum() for batch in test))


def largest_output(predict: Any, test: Any) -> float:
    return float(max(predict(batch).abs().max() for batch in test))


def first_logits(predict: Any, test: Any) -> float:
    return float(predict(test[0])["logits"].abs().sum())


def run_in(work: Workload, engine: str, **options: Any) -> lab.Variant:
    return lab.apply(work, Recipe([{"backend": {"name": engine, "threads": 1, **options}}]))


def assert_same(output: Any, expected: Any) -> None:
    """Assert equal structure, types and constants, and tensors equal up to rounding."""
    flat, spec = torch.utils._pytree.tree_flatten(output)
    others, other_spec = torch.utils._pytree.tree_flatten(expected)
    assert spec == other_spec
    for left, right in zip(flat, others, strict=True):
        if isinstance(left, Tensor):
            assert left.dtype == right.dtype
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
        else:
            assert left == right


class Structured(nn.Module):
    """A model whose output has the structure named by `shape`."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.line, self.shape = nn.Linear(4, 3), shape
        self.register_buffer("anchors", torch.arange(3.0))

    def forward(self, x: Tensor) -> Any:
        y = self.line(x)
        outputs: dict[str, Any] = {
            "tensor": lambda: y,
            "tuple": lambda: (y, y * 2),
            "list": lambda: [y],
            "dict": lambda: {"b": y, "a": y + 1},
            "nested": lambda: ({"deep": [y, {"er": (y * 3,)}]}, y.argmax(1)),
            "none": lambda: (None, y, None),
            "constants": lambda: (y, 3, "text", 1.5, True),
            "a constant tensor": lambda: (y, self.anchors),
            "the input": lambda: (x, y),
            "twice the same": lambda: (y, y),
            "truths": lambda: y > 0,
            "a scalar": lambda: y.sum(),
            "sizes": lambda: (y, x.shape[0]),
        }
        return (
            outputs[self.shape]()
            if self.shape != "everything"
            else {name: output() for name, output in outputs.items()}
        )


SHAPES = ("tensor", "tuple", "none", "everything")


@each
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_have_the_models_structure_types_and_constants(engine: str, shape: str) -> None:
    model = Structured(shape).eval()
    engine_model = build_engine(engine, model, Inputs.of(x := torch.randn(3, 4)), 1)
    with torch.no_grad():
        assert_same(engine_model(x), model(x))
        other = torch.randn(3, 4)
        assert_same(engine_model(other), model(other))


@of_each_kind
def test_sizes_in_the_output_are_those_of_the_call(engine: str) -> None:
    model = Structured("sizes").eval()
    engine_model = build_engine(engine, model, Inputs.of(torch.randn(3, 4)), 1)
    with torch.no_grad():
        for rows in (3, 5, 3):
            assert_same(engine_model(x := torch.randn(rows, 4)), model(x))


@pytest.mark.parametrize(("shape", "times"), [("dict", 1), ("sizes", 2)])
def test_the_model_is_asked_again_only_for_what_depends_on_the_shapes(
    shape: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = exported._OutputStructure

    def counted(module: nn.Module, inputs: Inputs) -> Any:
        asked.append(inputs)
        return real(module, inputs)

    monkeypatch.setattr(exported, "_OutputStructure", counted)
    model = Structured(shape).eval()
    engine_model = build_engine("onnxruntime", model, Inputs.of(torch.randn(3, 4)), 1)
    with torch.no_grad():
        for rows in (5, 5):
            assert_same(engine_model(x := torch.randn(rows, 4)), model(x))
    assert len(asked) == times


@of_each_kind
def test_arguments_may_be_keywords_defaults_and_constants(engine: str) -> None:
    work = Workload(Mapped(), {"ids": ids(), "mask": torch.ones(2, 5)})
    model, engine_model = work.model.eval(), run_in(work, engine).model
    batch = ids(2)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {"ids": batch, "mask": torch.ones(2, 5)}),
        ((), {"mask": torch.zeros(2, 5), "ids": batch}),
        ((batch,), {"mask": torch.ones(2, 5)}),
        ((batch, torch.ones(2, 5), 3.0), {}),
        ((batch,), {"scale": 2.0}),
        ((batch,), {}),
    ]
    with torch.no_grad():
        for args, kwargs in calls:
            assert_same(engine_model(*args, **kwargs), model(*args, **kwargs))


@each
def test_other_batch_sizes_give_the_models_output(engine: str) -> None:
    work = Workload(Small(), images(4))
    engine_model = run_in(work, engine).model
    with torch.no_grad():
        for batch in (4, 1, 3, 7, 2, 4, 1, 5):
            assert_same(engine_model(x := images(batch)), work.model(x))
    sessions = getattr(engine_model, "sessions", {})
    assert len(set(map(id, sessions.values()))) <= 2, (
        "one file for the example, one for all other batches"
    )


@each_export
def test_test_data_run_in_parts_of_the_example_s_batch_without_another_export(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [images(6), images(2), images(5)]
    work = Workload(Small(), images(2), test=batches[:2], metric=total_output)
    engine_model: Any = run_in(work, engine).model
    with monkeypatch.context() as patch:
        patch.setattr(exported, "export_onnx", lambda *_, **__: pytest.fail("it exported"))
        assert work.evaluate(engine_model) == pytest.approx(work.evaluate(), rel=1e-5)
    assert len(engine_model.sessions) == 1
    work.test = batches  # five are no multiple of two
    assert work.evaluate(engine_model) == pytest.approx(work.evaluate(), rel=1e-5)
    assert len(engine_model.sessions) == 2
    assert_same(engine_model(batches[0]), work.model(batches[0]))  # at once outside an evaluation
    assert len(engine_model.sessions) == 3


def test_test_data_run_in_parts_no_longer_than_an_export_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exported, "MOST_PARTS_S", 0.0)
    work = Workload(Small(), images(2), test=[images(6)], metric=total_output)
    engine_model: Any = run_in(work, "onnxruntime").model
    assert work.evaluate(engine_model) == pytest.approx(work.evaluate(), rel=1e-5)
    assert len(engine_model.sessions) == 2


def test_test_data_with_another_constant_are_run_with_that() -> None:
    batches = [{"ids": ids(4), "scale": 1.01}]
    work = Workload(Mapped(), {"ids": ids(2), "scale": 1.0}, test=batches, metric=first_logits)
    engine_model: Any = run_in(work, "onnxruntime").model
    assert work.evaluate(engine_model) == pytest.approx(work.evaluate(), rel=1e-4)


class Centred(nn.Module):
    """Examples are compared with each other."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def test_a_model_that_compares_the_examples_of_a_batch_has_them_together() -> None:
    work = Workload(Centred(), torch.randn(2, 4), test=[torch.randn(6, 4)], metric=largest_output)
    engine_model: Any = run_in(work, "onnxruntime").model
    assert work.evaluate(engine_model) == pytest.approx(work.evaluate(), rel=1e-5)


@of_each_kind
def test_other_image_sizes_give_the_models_output(engine: str) -> None:
    work = Workload(Small(), images(1))
    engine_model = run_in(work, engine).model
    with torch.no_grad():
        for size in (8, 9, 8):
            assert_same(engine_model(x := images(2, size)), work.model(x))


@of_each_kind
def test_the_batch_of_a_positional_and_a_keyword_input_grows_together(engine: str) -> None:
    work = Workload(Mapped(), Inputs((ids(2),), {"mask": torch.ones(2, 5)}))
    engine_model = run_in(work, engine).model
    with torch.no_grad():
        for batch in (3, 1, 4):
            assert_same(
                engine_model(x := ids(batch), mask=torch.ones(batch, 5)),
                work.model(x, mask=torch.ones(batch, 5)),
            )
    assert len(set(map(id, getattr(engine_model, "sessions", {}).values()))) <= 2


def test_a_constant_that_changes_after_the_batch_did_is_not_forgotten() -> None:
    work = Workload(Mapped(), {"ids": ids(2), "scale": 1.0})
    engine_model = run_in(work, "onnxruntime").model
    with torch.no_grad():
        for batch, scale in ((3, 1.0), (3, 5.0), (4, 5.0), (4, 1.0)):
            assert_same(
                engine_model(ids=(x := ids(batch)), scale=scale), work.model(ids=x, scale=scale)
            )


def test_a_branch_on_the_batch_size_is_not_frozen_into_the_file() -> None:
    work = Workload(Branching(), torch.randn(1, 4))
    engine_model = run_in(work, "onnxruntime").model
    with torch.no_grad():
        for batch in (1, 2, 6, 3):
            assert_same(engine_model(x := torch.randn(batch, 4)), work.model(x))


def test_few_sessions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "MAX_SESSIONS", 2)
    engine_model: Any = run_in(Workload(Small(), images(1)), "onnxruntime").model
    example = next(iter(engine_model.sessions))
    for size in (9, 10, 11):
        engine_model(images(1, size))
    of_one_shape = {*engine_model.sessions.values()} - {*engine_model.open_sessions.values()}
    assert example in engine_model.sessions
    assert len(of_one_shape) <= exported.MAX_SESSIONS


def test_a_batch_that_returns_is_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_model: Any = run_in(Workload(Small(), images(1)), "onnxruntime").model
    batches = range(1, exported.MAX_SESSIONS + 4)
    for batch in batches:
        engine_model(images(batch))
    monkeypatch.setattr(exported, "_outputs_agree", lambda *_: pytest.fail("it compared again"))
    for batch in batches:
        assert len(engine_model(images(batch))) == batch


@each
def test_inputs_in_any_memory_order_and_with_gradients_are_taken(engine: str) -> None:
    work = Workload(Small(), images(2))
    engine_model = run_in(work, engine).model
    x = images(2)
    with torch.no_grad():
        expected = work.model(x)
        assert_same(engine_model(x.to(memory_format=torch.channels_last)), expected)
        assert_same(engine_model(x.transpose(0, 1).contiguous().transpose(0, 1)), expected)
    assert_same(engine_model(x.clone().requires_grad_()).detach(), expected)


@of_each_kind
def test_attributes_that_the_engine_lacks_come_from_the_model(engine: str) -> None:
    engine_model: Any = run_in(Workload(Mapped(), {"ids": ids()}), engine).model
    assert engine_model.config == {"hidden": 6}
    assert engine_model.helper() == "helped"
    assert engine_model.table.num_embeddings == 11
    with pytest.raises(AttributeError, match="nothing_like_it"):
        engine_model.nothing_like_it  # noqa: B018


@each
@pytest.mark.parametrize("inside", [1, 3])
def test_a_call_restores_the_number_of_threads(engine: str, inside: int) -> None:
    work = Workload(Small(), images())
    before = torch.get_num_threads()
    variant = lab.apply(work, Recipe([{"backend": {"name": engine, "threads": inside}}]))
    variant.model(images())
    assert torch.get_num_threads() == before
    assert variant.threads == inside
    assert variant.has_own_threads


def test_the_eager_engine_restores_the_number_of_threads_after_an_error() -> None:
    seen: list[int] = []

    class CountingThreads(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return x.view(2, 2)

    engine_model = build_engine("eager", CountingThreads(), Inputs.of(torch.ones(4)), 3)
    engine_model(torch.ones(4))
    with pytest.raises(RuntimeError):
        engine_model(torch.ones(5))
    assert seen == [3, 3] and torch.get_num_threads() != 3


@pytest.mark.parametrize("engine", ["replay", *EXPORTED])
@pytest.mark.parametrize("rebinds", [False, True])
def test_a_model_that_writes_buffers_is_refused(engine: str, rebinds: bool) -> None:
    work = Workload(Counting(rebinds=rebinds), torch.randn(2, 4))
    with pytest.raises(
        StepError,
        match=(
            r"forward changes buffer 'calls', which \w+ would not keep; use eager or "
            "inductor"
        ),
    ):
        run_in(work, engine)
    variant = run_in(work, "eager")
    variant.model(torch.randn(2, 4))
    assert variant.model.calls.item() == 1 and work.model.calls.item() == 0


@each
def test_a_model_that_writes_into_its_input_gives_the_right_output(engine: str) -> None:
    work = Workload(Scribbling(), torch.zeros(2, 4))
    variant = run_in(work, engine)
    with torch.no_grad():
        assert_same(variant.model(torch.zeros(2, 4)), work.output())


class Unexportable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) if float(x.sum().item()) > -1e9 and x.tolist() else x


@each_export
def test_the_error_of_a_failed_export_is_one_sentence(engine: str) -> None:
    with pytest.raises(
        StepError, match=r"cannot be applied to Unexportable: ONNX export failed: "
    ) as caught:
        run_in(Workload(Unexportable(), torch.randn(2, 4)), engine)
    assert "\n" not in str(caught.value)


def test_a_model_is_exported_once_for_all_engines_and_again_when_its_output_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exports: list[bool] = []
    real = exported.export_onnx

    def counted(*args: Any, open_batch: bool = False) -> Any:
        exports.append(open_batch)
        return real(*args, open_batch=open_batch)

    monkeypatch.setattr(exported, "export_onnx", counted)
    work = Workload(Scaled(), torch.randn(2, 4))
    for threads in (1, 2):
        run_in(work, "onnxruntime", threads=threads)
    assert exports == [False]
    work.model.scale = 2.0
    assert_same(run_in(work, "onnxruntime").model(work.inputs.args[0]), work.output())
    assert exports == [False, False]


@pytest.mark.parametrize("engine", EXPORTED[1:])
def test_bf16_weights_run_in_openvino(engine: str) -> None:
    work = Workload(Small(), images(2))
    variant = lab.apply(
        work,
        Recipe([{"precision": {"default": "bf16"}}, {"backend": {"name": engine, "threads": 1}}]),
    )
    with torch.no_grad():
        output, expected = variant.model(x := images(2)), work.model(x)
    assert output.dtype == torch.float32 and output_error(expected, output)[0] < 0.05


@each_export
def test_the_weights_of_an_exported_variant_are_the_models(engine: str) -> None:
    work = Workload(Small(), images())
    assert weights_hash(run_in(work, engine).module) == weights_hash(work.model)


@each_export
def test_a_model_of_the_zoo_runs_with_other_batch_sizes(engine: str) -> None:
    work, larger = lab.load("bert-base-tiny"), lab.load("bert-base-tiny", batch=3)
    engine_model = run_in(work, engine).model
    with torch.no_grad():
        assert_same(work.inputs(engine_model), work.output())
        assert output_error(larger.output(), larger.inputs(engine_model))[0] < 1e-3


def test_an_engine_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from paifuser_lab.converter import openvino

    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    openvino.openvino_core.cache_clear()
    with pytest.raises(
        MissingExtraError, match=r"backend 'openvino' needs openvino.*paifuser-lab\[backends\]"
    ):
        build_engine("openvino", Small().eval(), Inputs.of(images()), 1)
    openvino.openvino_core.cache_clear()
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "openvino" else object())
    assert available_engines() == ("eager", "replay", "inductor", "onnxruntime")


def test_many_models_of_one_class_are_all_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch caches compiled code by a function's code object, compiles one 8 times, then silently
    runs it eagerly.
    """
    compiled: list[int] = []
    real = torch.compile

    def counting(graph: torch.fx.GraphModule, example: Any) -> Any:
        compiled.append(len(graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(
        inductor.torch, "compile", lambda function: real(function, backend=counting)
    )
    models = [nn.Sequential(nn.Linear(2, 2), nn.Tanh()).eval() for _ in range(12)]
    engine_models = [
        build_engine("inductor", model, Inputs.of(torch.ones(1, 2)), 1) for model in models
    ]
    assert len(compiled) == 12 > torch._dynamo.config.recompile_limit
    for model, engine_model in zip(models, engine_models, strict=True):
        x = torch.randn(1, 2)
        assert_same(engine_model(x), model(x).detach())
    assert len(compiled) == 12, "a second call compiles nothing"
    torch._dynamo.reset()


def test_a_copy_of_a_compiled_model_runs_with_its_own_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = torch.compile
    monkeypatch.setattr(inductor.torch, "compile", lambda function: real(function, backend="eager"))
    x = torch.randn(1, 2)
    engine_model = build_engine("inductor", nn.Linear(2, 2).eval(), Inputs.of(x), 1)
    copied = copy.deepcopy(engine_model)
    with torch.no_grad():
        expected = copied(x)
        for weight in copied.parameters():
            weight.mul_(2)
        assert_same(copied(x), copied.module(x))
        assert_same(engine_model(x), expected)
    torch._dynamo.reset()


def test_frozen_inductor_reports_the_number_of_prepacked_operators() -> None:
    from torch._inductor import config

    work = Workload(Mapped(), {"ids": ids(), "mask": torch.ones(2, 5)})
    variant = run_in(work, "inductor", freeze=True)
    assert_same(variant.model(**work.inputs.kwargs), work.output())
    (note,) = (note for note in variant.notes if note.startswith("frozen"))
    assert note.split()[1].isdigit() or "no operator" in note
    assert config.freezing is False and weights_hash(variant.module) == weights_hash(work.model)


def test_inductor_runs_a_smaller_last_batch_and_keeps_buffers() -> None:
    work = Workload(Counting(), torch.randn(4, 4))
    variant = run_in(work, "inductor")
    assert variant.model.calls.item() == 0
    assert_same(variant.model(x := torch.randn(3, 4)), work.model.line(x).detach())
    assert variant.model.calls.item() == 1


@pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed")
def test_openvino_may_compute_in_bf16_with_a_larger_tolerance() -> None:
    work = lab.load("resnet18-tiny")
    plain = lab.apply(work, Recipe([{"backend": {"name": "openvino", "threads": 1}}]))
    rounding = lab.apply(
        work, Recipe([{"backend": {"name": "openvino", "threads": 1, "bf16": True}}])
    )
    assert rounding.recipe.label == "openvino in bf16 · 1 thread"
    assert rounding.model.computes_in_bf16 and not plain.model.computes_in_bf16
    assert plain.reports[-1].relative_error < 1e-4 and rounding.reports[-1].relative_error < 0.05
    with pytest.raises(RecipeError, match="bf16 belongs to openvino, not to eager"):
        Recipe([{"backend": {"bf16": True}}])
