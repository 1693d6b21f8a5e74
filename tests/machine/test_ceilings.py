"""Ceilings: the CPU's, CUDA's, and what measuring leaves alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from paifuser_lab.machine import ceilings, contention
from paifuser_lab.machine.datasheets import DEVICES
from paifuser_lab.machine.host import CoreUse, host_facts, thread_choices
from paifuser_lab.records import Accelerator
from paifuser_lab.records.hardware import RATES


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real measurements of small things."""
    monkeypatch.setattr(ceilings, "SIZES", (32,))
    monkeypatch.setattr(ceilings, "MIN_TOTAL_S", 0.0)
    monkeypatch.setattr(ceilings, "MEBIBYTE", 1 << 10)


@pytest.mark.parametrize("count", thread_choices())
def test_every_ceiling_is_positive_at_each_thread_choice(count: int, quick: None) -> None:
    ceiling = ceilings.cpu_ceiling(count, host_facts())
    assert ceiling.threads == count
    assert all(rate is None or rate > 0 for rate in (getattr(ceiling, name) for name in RATES))
    assert None not in (ceiling.bf16_gflops, ceiling.int8_gops)


def test_measuring_leaves_threads_random_state_and_precision_unchanged(quick: None) -> None:
    random_state = torch.get_rng_state()
    before = torch.get_num_threads()
    ceilings.cpu_ceiling(before + 1, host_facts())
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_float32_matmul_precision() == "highest"


def test_fp32_is_true_fp32_and_the_users_choice_comes_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with ceilings._true_fp32():
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_precision_that_torch_refuses_is_none_and_a_larger_size_that_fails_is_not_needed() -> (
    None
):
    def refuse(size: int, device: torch.device) -> Callable[[], object]:
        raise NotImplementedError

    def small_only(size: int, device: torch.device) -> Callable[[], object]:
        if size > ceilings.SIZES[0]:
            raise torch.OutOfMemoryError
        return lambda: None

    cpu = torch.device("cpu")
    assert ceilings._best_rate(refuse, cpu, lambda run: 1e-3) is None
    assert ceilings._best_rate(small_only, cpu, lambda run: 1e-3).value == pytest.approx(
        2 * ceilings.SIZES[0] ** 3 / 1e-3 / 1e9
    )


@pytest.mark.parametrize(
    ("timing", "count", "words"),
    [
        (contention.Timing(0.010, 0.011, 0.1, 0.2), 2, ""),
        (
            contention.Timing(0.010, 0.014, 0.1, 0.2),
            2,
            "the middle repetition took 1.40 times the fastest",
        ),
        (contention.Timing(0.010, 0.011, 0.1, 0.12), 2, "fp32: 2 threads had 1.20 cores"),
        (contention.Timing(0.010, 0.011, 0.1, 0.06), 1, "fp32: 1 thread had 0.60 cores"),
        (contention.Timing(0.010, 0.011, 0.1, 0.0), None, ""),
        (contention.Timing(0.001, 0.009, 0.01, 0.0), 2, ""),
    ],
    ids=["quiet", "spread", "two threads", "one thread", "on a device", "too short to tell"],
)
def test_repetitions_show_other_processes(
    timing: contention.Timing, count: int | None, words: str
) -> None:
    warnings = contention.timing_warnings("fp32_gflops", timing, count)
    assert words in "".join(warnings)
    assert bool(warnings) is bool(words)


def test_a_serial_operator_gets_no_warning() -> None:
    timing = contention.Timing(0.010, 0.011, 0.1, 0.1)
    assert contention.timing_warnings("fp16_gflops", timing, 2) == []
    assert contention.timing_warnings("fp32_gflops", timing, 2)


@pytest.mark.parametrize(
    ("busy_s", "words"), [(2.1, ""), (3.0, "other processes had 25% of the cores")]
)
def test_the_cores_share_of_other_processes_is_reported(
    busy_s: float, words: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([CoreUse(0.0, 0.0, 10.0, 2), CoreUse(2.0, 2.0, 10.0 + busy_s, 2)])
    monkeypatch.setattr(ceilings, "core_use", lambda: next(readings))
    assert ceilings.cpu_ceiling(1, host_facts()).warnings == ((words,) if words else ())


def test_each_rate_is_checked_by_its_own_repetitions(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ceilings, "timing_warnings", lambda name, timing, count: [f"{name} {count}"]
    )
    known = ceilings.cpu_ceiling(1, host_facts())
    names = [name for name in RATES if getattr(known, name) is not None]
    assert [text for text in known.warnings if "processes" not in text] == [
        f"{name} 1" for name in names
    ]


class FakeEvent:
    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: FakeEvent) -> float:
        return (end.at - self.at) * 1e3


def fake_cuda(*names: str) -> SimpleNamespace:
    cards = [
        SimpleNamespace(
            name=name, total_memory=8 << 20, major=9, minor=0, multi_processor_count=132
        )
        for name in names
    ]
    return SimpleNamespace(
        is_available=lambda: bool(cards),
        device_count=lambda: len(cards),
        get_device_name=lambda index: cards[index].name,
        get_device_properties=lambda index: cards[index],
        Event=FakeEvent,
        device=lambda index: nullcontext(),
        empty_cache=lambda: None,
    )


def test_a_cuda_device_is_measured_with_events(quick: None) -> None:
    card = ceilings._accelerator(0, torch.device("cpu"), fake_cuda("NVIDIA H100"))
    assert (card.name, card.kind, card.compute_capability, card.multiprocessors) == (
        "NVIDIA H100",
        "cuda",
        (9, 0),
        132,
    )
    assert card.memory_bytes == 8 << 20
    assert card.ceiling.threads == 1
    assert min(card.ceiling.fp32_gflops, card.ceiling.bandwidth_gbs) > 0


def test_cuda_devices_are_named_and_no_cuda_is_no_device() -> None:
    assert ceilings.cuda_names(fake_cuda("A", "B")) == ("A", "B")
    assert ceilings.cuda_names(fake_cuda()) == ()


def test_equal_cards_are_measured_once_and_an_unusable_one_is_left_out_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []

    def measure(index: int, device: torch.device, cuda: object) -> Accelerator:
        measured.append(index)
        if index == 1:
            raise RuntimeError("no kernel image is available\nlong story")
        return DEVICES["L4"].device

    monkeypatch.setattr(ceilings, "_accelerator", measure)
    devices, note = ceilings.cuda_accelerators(("L4", "old", "L4", "old"), fake_cuda())
    assert (measured, len(devices)) == ([0, 1], 2)
    assert note == "old is left out: no kernel image is available"


def test_a_format_is_as_fast_as_its_fastest_product_beside_fp32_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter([9.0, 7.0, 1.0, 30.0, 8.0, 4.0, 2.0, 5.0, 6.0, 6.0])  # fp32 and bf16 in turn
    kinds = []

    def clock(run: Callable[[], object]) -> float:
        kinds.append(run().dtype)
        return next(seconds)

    monkeypatch.setattr(ceilings, "_wall_clock", clock)
    ceilings.product_speedup.cache_clear()
    try:
        assert ceilings.product_speedup(torch.bfloat16) == 1.0 / 4.0
        assert kinds == [torch.float32, torch.bfloat16] * 5
        assert ceilings.product_speedup(torch.bfloat16) == 1.0 / 4.0  # measured once
    finally:
        ceilings.product_speedup.cache_clear()
