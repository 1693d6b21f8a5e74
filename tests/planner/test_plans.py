"""The plan: the candidates by the hardware's figures, the choice by measuring, and the reason of
each step.
"""

from __future__ import annotations

from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.cli.program import plan as plan_command
from paifuser_lab.errors import WorkloadError
from paifuser_lab.machine.datasheets import DEVICES
from paifuser_lab.memory.pools import PoolGain
from paifuser_lab.planner import plans, space
from paifuser_lab.planner.ranking import EXACT
from paifuser_lab.records import Ceiling, Comparison, Hardware, Measurement, Origin
from tests.support.advised import paper
from tests.support.drawn import comparison_of
from tests.support.models import Mapped, Small, ids, images, small
from tests.support.processor import Processor

ALL = ("eager", "inductor", "onnxruntime", "openvino")


def machine(
    bf16: float | None = None, fp16: float | None = None, int8: float | None = None
) -> Hardware:
    ceiling = Ceiling(
        threads=2,
        fp32_gflops=100,
        bf16_gflops=bf16,
        fp16_gflops=fp16,
        int8_gops=int8,
        bandwidth_gbs=10,
    )
    return paper(ceiling)


class Stub:
    """Replaces `built`, `screen` and `compare`: rows whose latency and error the test sets by words
    in their labels; those of the comparison by `again`.
    """

    def __init__(
        self, ms: dict[str, float], error: dict[str, float], again: dict[str, float]
    ) -> None:
        self.ms, self.error, self.again, self.labels, self.seconds = ms, error, again, [], 0.0
        self.screened = 0  # how many recipes
        self.timed: list[str] = []  # which of them longer

    def built(self, work: Workload, recipes: list[Recipe], seconds: float) -> Any:
        self.labels, self.seconds = [recipe.label for recipe in recipes], seconds
        return [SimpleNamespace(recipe=recipe) for recipe in recipes], []

    def screen(self, work: Workload, variants: Any, rounds: int) -> Comparison:
        self.screened = len(variants)
        screened = self.compared(work, variants, rounds)
        rows = [row.model_copy(update={"rounds": rounds}) for row in screened.rows]
        return screened.model_copy(update={"rows": tuple(rows)})

    def compare(self, work: Workload, *variants: Any, seconds: float, metric: bool) -> Comparison:
        self.ms = self.ms | self.again
        self.timed = [one.recipe.label for one in variants]
        return self.compared(work, variants, rounds=30)

    def compared(self, work: Workload, variants: Any, rounds: int) -> Comparison:
        rows = [self.row(f"baseline · {count} threads", ()) for count in (1, 2)]
        rows += [
            self.row(one.recipe.label, tuple(step.label for step in one.recipe.steps))
            for one in variants
        ]
        return comparison_of(*rows, workload=work.name, rounds=rounds)

    def row(self, label: str, steps: tuple[str, ...]) -> Measurement:
        ms = next(
            (
                ms
                for words, ms in self.ms.items()
                if all(word in label for word in words.split("+"))
            ),
            10.0,
        )
        if ms < 0:
            return Measurement(name=label, steps=steps, threads=1, failure="it broke")
        error = next((error for words, error in self.error.items() if words in label), 1e-6)
        return Measurement(
            name=label, steps=steps, threads=1, latency_ms=ms, speedup=10 / ms, relative_error=error
        )


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plan for a simulated machine: `plan(work, ms={...}, on=machine(...))` returns the recipe and
    the stub.
    """
    monkeypatch.setattr(space, "thread_choices", lambda: (1, 2))
    monkeypatch.setattr(space, "available_engines", lambda: ALL)
    monkeypatch.setattr(plans, "faster_threads", lambda work: 2)

    def planned(
        work: Workload,
        *,
        on: Hardware | None = None,
        ms: Any = None,
        error: Any = None,
        again: Any = None,
        **options: Any,
    ) -> tuple[Recipe, Stub]:
        stub = Stub(ms or {}, error or {}, again or {})
        monkeypatch.setattr(plans, "hardware", lambda: on or machine())
        for name in ("built", "screen", "compare"):
            monkeypatch.setattr(plans, name, getattr(stub, name))
        return lab.plan(work, **options), stub

    return planned


@pytest.mark.parametrize(
    ("on", "max_error", "tried"),
    [
        (machine(), 0.02, None),
        (machine(bf16=120), 0.02, None),
        (machine(bf16=300), 0.02, "bf16"),
        (machine(bf16=300), 1e-4, None),
        (machine(bf16=50, fp16=300), 0.02, "fp16"),
        (machine(bf16=300, fp16=300), 0.02, "bf16"),
    ],
)
def test_16_bits_are_tried_only_where_they_are_faster_and_the_error_allows_it(
    on: Hardware, max_error: float, tried: str | None, plan: Any
) -> None:
    _, stub = plan(small(), on=on, max_error=max_error)
    assert {half for half in ("bf16", "fp16") for label in stub.labels if half in label} == (
        {tried} if tried else set()
    )


def test_every_engine_is_tried_with_every_sensible_number_of_threads(plan: Any) -> None:
    _, stub = plan(small())
    assert len(stub.labels) == len(set(stub.labels)) >= 2 * (2 + 3)
    for engine in ALL:
        assert {
            count
            for count in "12"
            for label in stub.labels
            if engine in label and f"· {count} thread" in label
        } == {
            "1",
            "2",
        }
    assert all(label.startswith("fold batch-norm") for label in stub.labels)
    _, stub = plan(small(), engines=iter(("onnxruntime",)), seconds=7.0)
    assert (
        all("onnxruntime" in label for label in stub.labels)
        and len(stub.labels) >= 2
        and 3.5 < stub.seconds <= 4.55
    ), "two thirds of the seconds are to build in"


def test_a_model_without_images_or_batch_norm_is_offered_neither_layout_nor_fold(plan: Any) -> None:
    _, stub = plan(Workload(Mapped(), {"ids": ids()}))
    assert (
        not any("channels" in label or "fold" in label for label in stub.labels)
        and len(stub.labels) >= 2 * 4
    )


def test_the_fastest_is_taken_with_a_sentence_for_each_step(plan: Any) -> None:
    recipe, stub = plan(small(), ms={"openvino · 2": 2.0, "onnxruntime · 2": 3.0})
    assert recipe.label == "fold batch-norm → openvino · 2 threads" and recipe.workload == "small"
    assert all(step.why for step in recipe.steps)
    assert recipe.steps[-1].why == (
        "2.00 ms against 10.0 ms as it was (5.00 ×, output error 1.0e-06); next best: fold "
        "batch-norm → onnxruntime · 2 threads with 3.00 ms"
    )
    assert recipe.steps[0].why.startswith("1 batch-norm layers follow")
    assert recipe.evidence is not None and len(recipe.evidence.rows) == len(stub.labels) + 2
    assert Recipe.from_text(recipe.to_text()).explain() == recipe.explain()


@pytest.mark.parametrize("ms", [{"openvino · 2": 2.0}, {"baseline": 1.0}], ids=["steps", "none"])
def test_a_plan_names_its_workload_as_it_was_loaded(ms: dict[str, float], plan: Any) -> None:
    work = small()
    work.origin = Origin(name="net.py:make", batch=1, seed=0)
    assert plan(work, ms=ms)[0].workload == plan(work, seconds=0)[0].workload == "net.py:make"


def test_the_reason_for_a_layout_has_the_number_of_candidates(plan: Any) -> None:
    recipe, stub = plan(small(), ms={"channels last+eager · 1": 1.0})
    assert [step.kind for step in recipe.steps] == ["fold", "layout", "backend"]
    assert recipe.steps[1].why.startswith(
        f"part of the fastest of {len(stub.labels)} recipes measured here"
    )


def test_the_reasons_count_what_was_measured_and_name_what_keeps_the_error(plan: Any) -> None:
    ms = {"inductor": -1.0, "bf16": 0.5, "channels last+eager · 1": 1.0}
    recipe, stub = plan(small(), on=machine(bf16=300), ms=ms, error={"bf16": 0.03}, max_error=0.02)
    kept = [label for label in stub.labels if "inductor" not in label and "bf16" not in label]
    assert f"part of the fastest of {len(kept)} recipes measured here" in recipe.steps[1].why
    next_best = recipe.steps[2].why.partition("next best: ")[2]
    assert "channels last" in next_best and "bf16" not in next_best


def test_a_candidate_with_too_large_an_error_is_not_taken(plan: Any) -> None:
    ms, error = {"bf16+inductor": 1.0, "bf16": 1.5, "openvino": 5.0}, {"bf16": 0.03}
    recipe, _ = plan(small(), on=machine(bf16=300), ms=ms, error=error, max_error=0.02)
    assert "openvino" in recipe.label and "bf16" not in recipe.label
    recipe, _ = plan(small(), on=machine(bf16=300), ms=ms, error=error, max_error=0.05)
    assert "bf16" in recipe.label and "inductor" in recipe.label


@pytest.mark.parametrize(
    ("ms", "chosen"),
    [
        (
            {"channels last+eager · 1": 5.0, "eager · 1": 5.1, "openvino · 1": 5.0},
            "fold batch-norm → eager · 1 thread",
        ),
        ({"eager · 1": 5.4, "openvino · 1": 5.0}, "fold batch-norm → openvino · 1 thread"),
        (
            {"onnxruntime · 2": 5.0, "openvino · 2": 5.1},
            "fold batch-norm → onnxruntime · 2 threads",
        ),
    ],
)
def test_among_equals_the_simpler_is_taken(ms: dict[str, float], chosen: str, plan: Any) -> None:
    assert plan(small(), ms=ms)[0].label == chosen


def test_the_nearest_to_the_fastest_are_timed_longer_alone_and_decide(plan: Any) -> None:
    near = {"openvino · 2": 2.0, "onnxruntime · 2": 2.1, "eager": 9.0}
    recipe, stub = plan(small(), ms=near, again={"openvino · 2": 2.4})
    assert stub.screened == len(stub.labels) > 2
    assert sorted(stub.timed) == [
        f"fold batch-norm → {engine} · 2 threads" for engine in ("onnxruntime", "openvino")
    ]
    assert "onnxruntime" in recipe.label
    assert recipe.steps[-1].why.startswith("2.10 ms against 10.0 ms as it was")
    assert recipe.steps[-1].why.endswith("openvino · 2 threads with 2.40 ms")
    rows = recipe.evidence.rows if recipe.evidence else ()
    assert len(rows) == len({row.name for row in rows}) == len(stub.labels) + 2
    assert {row.name for row in rows if row.rounds is None} == {
        *stub.timed,
        "baseline · 1 threads",
        "baseline · 2 threads",
    }
    assert {row.rounds for row in rows} == {None, plans.SCREENING}


def test_where_no_time_is_left_the_few_rounds_decide(plan: Any) -> None:
    near = {"openvino · 2": 2.0, "onnxruntime · 2": 2.1}
    recipe, stub = plan(small(), ms=near, seconds=0.01)
    assert stub.timed == [] and "openvino" in recipe.label
    slow = {"openvino · 2": 800.0, "onnxruntime · 2": 810.0, "batch": 1e4, "baseline": 1e4}
    assert len(plan(small(), ms=slow, seconds=200)[1].timed) == 1
    assert len(plan(small(), ms=slow, seconds=220)[1].timed) == 2


def test_what_has_the_threads_of_the_unchanged_model_is_built_first_and_what_compiles_after(
    plan: Any,
) -> None:
    labels = plan(small())[1].labels
    counts = ["2 threads" in label for label in labels]
    assert counts == sorted(counts, reverse=True)
    last = [("pool" in label, "inductor" in label) for label in labels if "2 threads" in label]
    assert last == sorted(last) and last[0] != last[-1]


@pytest.mark.parametrize(
    "ms", [{"baseline": 1.0}, {"fold": -1.0}], ids=["nothing is faster", "everything fails"]
)
def test_where_nothing_is_faster_the_recipe_is_empty_with_evidence(
    ms: dict[str, float], plan: Any
) -> None:
    recipe, _ = plan(small(), ms=ms)
    assert recipe == Recipe() and recipe.evidence is not None and recipe.workload == "small"


def test_a_failing_engine_does_not_prevent_the_choice_of_another(plan: Any) -> None:
    recipe, _ = plan(small(), ms={"openvino": -1.0, "inductor": 4.0})
    assert "inductor" in recipe.label


def test_an_unavailable_engine_is_refused(plan: Any) -> None:
    with pytest.raises(
        WorkloadError, match="engine 'tensorrt' is not available; choose from eager, inductor"
    ):
        plan(small(), engines=("tensorrt",))


@pytest.mark.parametrize(
    ("engines", "last"), [(None, "openvino"), (("eager",), "layout"), (("inductor",), "layout")]
)
def test_without_time_the_figures_decide(engines: Any, last: str, plan: Any) -> None:
    recipe, stub = plan(small(), seconds=0, engines=engines)
    assert stub.labels == [] and recipe.evidence is None and all(step.why for step in recipe.steps)
    assert last in (recipe.steps[-1].label, recipe.steps[-1].kind)


@pytest.mark.parametrize(
    ("device", "half", "sentence"),
    [
        ("V100", "fp16", "computes 125 TFLOP/s in fp16 and 15.7 in fp32"),
        ("H100", "bf16", "computes 990 TFLOP/s in bf16 and 67 in fp32"),
    ],
)
def test_a_named_device_gets_a_plan_of_its_own_with_reasons(
    device: str, half: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = DEVICES[device].device
    from paifuser_lab.machine import machine as machines

    monkeypatch.setattr(machines, "_this_machine", lambda refresh: machine())
    monkeypatch.setenv("PAIFUSER_HARDWARE", device)
    recipe = lab.plan(small(), max_error=0.02)
    assert [step.kind for step in recipe.steps] == ["fold", "layout", "precision", "backend"]
    assert recipe.steps[2].default == half and recipe.steps[3].name == "inductor"
    assert (
        sentence in recipe.explain()
        and published.name in recipe.explain()
        and all(step.why for step in recipe.steps)
    )
    assert lab.plan(small()).label == "fold batch-norm → channels last → inductor"


@pytest.mark.parametrize(
    "device", [key for key, sheet in DEVICES.items() if sheet.device.kind != "cuda"]
)
def test_a_device_that_inductor_does_not_compile_for_is_planned_without_it(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paifuser_lab.machine import machine as machines

    monkeypatch.setattr(machines, "_this_machine", lambda refresh: machine())
    monkeypatch.setenv("PAIFUSER_HARDWARE", device)
    recipe = lab.plan(small(), max_error=0.02)
    assert [step.kind for step in recipe.steps] == ["fold", "precision", "backend"]
    assert recipe.steps[-1].name == "eager"
    assert (
        f"Inductor does not compile for {DEVICES[device].device.name}, an NPU" in recipe.explain()
    )
    assert "fuses" not in recipe.explain() and "channels-last" not in recipe.explain()


@pytest.mark.parametrize(
    ("kind", "capability", "reason"),
    [
        ("cuda", (7, 0), ""),
        ("cuda", None, ""),
        ("cuda", (6, 1), "compute capability 6.1"),
        ("npu", None, "an NPU"),
    ],
)
def test_the_reason_for_or_against_inductor_follows_from_the_device(
    kind: Any, capability: tuple[int, int] | None, reason: str, plan: Any
) -> None:
    device = DEVICES["V100"].device.model_copy(
        update={"name": "device x", "kind": kind, "compute_capability": capability}
    )
    published = machine().model_copy(update={"source": "published", "accelerators": (device,)})
    recipe, _ = plan(small(), on=published)
    assert (
        recipe.steps[-1].name == ("eager" if reason else "inductor")
        and reason in recipe.steps[-1].why
    )
    only_fuse, _ = plan(small(), on=published, engines=["inductor"])
    assert ("backend" in [step.kind for step in only_fuse.steps]) == (not reason), (
        "an engine that may not be taken is not planned"
    )


def test_a_real_plan_is_measured_and_can_be_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "thread_choices", lambda: (1,))
    work = lab.load("resnet18-tiny")
    recipe = lab.plan(work, seconds=120, engines=("eager", "onnxruntime"))
    assert recipe.evidence is not None and all(row.failure is None for row in recipe.evidence.rows)
    chosen = lab.apply(work, recipe)
    assert all(step.why for step in recipe.steps) and chosen.recipe.explain() == recipe.explain()
    names = [row.name for row in recipe.evidence.rows]
    assert len(names) == len(set(names)) and (not recipe.steps or recipe.label in names)


def test_planning_leaves_the_model_as_it_was(plan: Any) -> None:
    model = nn.Sequential(Small(), nn.Dropout()).train()
    plan(Workload(model, images()))
    assert (
        all(module.training for module in model if not isinstance(module, Small)) and model.training
    )
    assert not any(module._forward_hooks for module in model.modules()) and torch.is_grad_enabled()


def test_int8_is_tried_where_the_hardware_is_fast_in_it_and_some_error_is_allowed(
    plan: Any,
) -> None:
    work = lab.load("resnet18-tiny")
    assert not any(
        word in label
        for label in plan(work, on=machine(int8=400), max_error=0.02)[1].labels
        for word in ("prune", "reuse", "int8 weights", "int8-weights")
    )
    recipe, stub = plan(
        work,
        on=machine(int8=400),
        ms={"int8+openvino": 1.0},
        error={"int8": 0.015},
        max_error=0.02,
    )
    assert (
        any(step.options == {"default": "int8"} for step in recipe)
        and recipe[-1].options["name"] == "openvino"
    )
    assert sum("int8" in label and "onnxruntime" in label for label in stub.labels) > 0
    assert not any(
        "int8" in label for label in plan(work, on=machine(int8=110), max_error=0.02)[1].labels
    )
    assert not any(
        "int8" in label for label in plan(work, on=machine(int8=400), max_error=0.005)[1].labels
    )


def test_int8_is_tried_without_vnni_too(plan: Any, processor: Processor) -> None:
    processor.lacks_vnni()
    labels = plan(lab.load("resnet18-tiny"), on=machine(int8=400), max_error=0.02)[1].labels
    assert any("int8" in label and "openvino" in label for label in labels)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a memory pool would spare a call here."""
    facts: dict[str, Any] = {"gain": PoolGain(faults=45_000, fault_us=0.25, call_ms=100.0)}
    for module in (space,):
        monkeypatch.setattr(module, "pool_gain", lambda work: facts["gain"])
    return facts


def test_a_memory_pool_is_tried_in_eager_torch_where_page_faults_cost_much(
    plan: Any, held: dict[str, Any]
) -> None:
    _, stub = plan(small())
    pooled = [label for label in stub.labels if "memory pool" in label]
    assert len(pooled) == 2 * 3 and all("→ eager" in label for label in pooled)
    (change,) = [change for change in singles() if change.label == "Keep freed memory"]
    assert change.why == (
        "45,000 page faults a call at 0.25 µs each are 11.2 of 100 ms: at most 1.13 ×"
    )
    assert not any(
        "memory pool" in label for label in plan(small(), engines=("openvino",))[1].labels
    )


@pytest.mark.parametrize(
    "gain", [PoolGain(faults=7_000, fault_us=0.25, call_ms=100.0), None], ids=["cheap", "none"]
)
def test_a_memory_pool_is_not_tried_where_it_cannot_help(
    gain: PoolGain | None, plan: Any, held: dict[str, Any]
) -> None:
    held["gain"] = gain
    assert not any("memory pool" in label for label in plan(small())[1].labels)
    assert not any(change.label == "Keep freed memory" for change in singles())


def singles() -> list[space.Change]:
    return space.Space.of(small(), machine(), ("eager",)).singles()


def test_the_reason_for_a_memory_pool_is_what_it_was_measured_to_change(
    plan: Any, held: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Stub.row
    note = (
        "the memory pool helps (1.71 ×, 1.6–1.8); 45,264 page faults a call without it, 0 with it"
    )

    def with_notes(self: Stub, label: str, steps: tuple[str, ...]) -> Measurement:
        return row(self, label, steps).model_copy(update={"notes": ("other", note)})

    monkeypatch.setattr(Stub, "row", with_notes)
    recipe, _ = plan(small(), ms={"memory pool+eager · 1": 1.0})
    why = next(step.why for step in recipe if step.kind == "pool")
    assert why == f"{note}; estimated before: {held['gain'].sentence}"


def test_a_plan_is_exact_unless_an_error_is_allowed(plan: Any) -> None:
    fast = machine(bf16=300, int8=400)
    recipe, stub = plan(lab.load("resnet18-tiny"), on=fast, ms={"int8": 1.0, "bf16": 1.0})
    assert not any(name in label for label in stub.labels for name in ("int8", "bf16", "fp16"))
    assert all(step.kind != "precision" for step in recipe)
    assert any("openvino" in label for label in stub.labels), "engines in fp32 are exact"
    assert signature(plan_command).parameters["max_error"].default == EXACT
    allowed, _ = plan(lab.load("resnet18-tiny"), on=fast, ms={"int8": 1.0}, max_error=0.02)
    assert any(step.kind == "precision" for step in allowed)
