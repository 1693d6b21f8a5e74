"""The machine: the record, its cache, published devices."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
import torch

from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import ceilings, hardware, machine, machine_label, thread_choices
from paifuser_lab.machine.datasheets import DEVICES
from paifuser_lab.machine.host import host_facts
from paifuser_lab.records import Ceiling, Hardware


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PAIFUSER_HARDWARE", raising=False)
    machine._returned.clear()


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread counts that were measured, each with made-up figures."""
    counts: list[int] = []
    now = machine._now()

    def measure(count: int, facts: Hardware) -> Ceiling:
        counts.append(count)
        return Ceiling(threads=count, fp32_gflops=10.0 * count, bandwidth_gbs=5.0 * count)

    monkeypatch.setattr(machine, "cpu_ceiling", measure)
    monkeypatch.setattr(machine, "_now", lambda: now)
    monkeypatch.setattr(machine, "cuda_names", lambda: ())
    return counts


def test_facts_are_plausible(measurements: list[int]) -> None:
    here = hardware()
    assert here.name
    assert (here.source, here.torch_version) == ("measured", torch.__version__)
    assert 1 <= here.physical_cores <= here.logical_cores <= (psutil.cpu_count() or 1)
    assert 1 << 26 < here.memory_bytes <= psutil.virtual_memory().total


def test_the_measured_record_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZES": (32,), "MIN_TOTAL_S": 0.0, "MEBIBYTE": 1 << 10}.items():
        monkeypatch.setattr(ceilings, name, value)
    first = hardware()
    assert tuple(ceiling.threads for ceiling in first.ceilings) == thread_choices()
    assert hardware() == first


def test_the_second_call_reads_the_cache(
    measurements: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hardware()
    monkeypatch.setattr(machine, "_measured", lambda *_: pytest.fail("measured again"))
    assert hardware() == first


def test_refresh_measures_again(measurements: list[int]) -> None:
    hardware()
    hardware(refresh=True)
    assert measurements == [*thread_choices(), *thread_choices()]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"record": "Hardware", "format": 1, "data": {"name": 3}}',
        '{"record": "Ceiling"}',
    ],
)
def test_a_damaged_cache_is_measured_again(
    damage: str, measurements: list[int], tmp_path: Path
) -> None:
    first = hardware()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_text(damage)
    assert hardware() == first
    assert Hardware.load(file) == first


def test_a_cached_record_without_ceilings_is_measured_again(
    measurements: list[int], tmp_path: Path
) -> None:
    first = hardware()
    (file,) = (tmp_path / "cache").iterdir()
    first.model_copy(update={"ceilings": ()}).save(file)
    assert hardware() == first


def test_a_cache_that_cannot_be_written_does_not_raise(
    measurements: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "file" / "cache"))
    assert "Measured anew each time" in hardware().note


def test_another_torch_or_another_device_is_another_measurement(measurements: list[int]) -> None:
    facts = host_facts()
    other = facts.model_copy(update={"torch_version": "0.0"})
    assert (
        len(
            {
                machine._digest(facts, ()),
                machine._digest(other, ()),
                machine._digest(facts, ("NVIDIA L4",)),
            }
        )
        == 3
    )


def test_the_record_survives_json(measurements: list[int], tmp_path: Path) -> None:
    here = hardware()
    assert Hardware.load(here.save(tmp_path / "here.json")) == here
    assert Hardware.model_validate_json(here.model_dump_json()) == here


@pytest.mark.parametrize("name", DEVICES)
def test_each_published_device_takes_the_machines_place(
    name: str, measurements: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = hardware()
    monkeypatch.setenv("PAIFUSER_HARDWARE", name.lower())
    there = hardware()
    assert (there.source, there.name) == ("published", there.accelerators[0].name)
    assert there.note and machine_label() == here.label != there.label, "this machine measures"
    assert there.target == DEVICES[name].device.ceiling
    assert there.target.bandwidth_gbs < there.target.fp32_gflops < (there.target.fp16_gflops or 0)
    assert (there.isa, there.physical_cores, there.ceilings) == (
        here.isa,
        here.physical_cores,
        here.ceilings,
    )
    assert Hardware.load(there.save(tmp_path / "there.json")) == there


def test_a_published_device_does_not_reach_the_cache(
    measurements: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIFUSER_HARDWARE", " rtx 4090 ")
    assert "4090" in hardware().name
    monkeypatch.delenv("PAIFUSER_HARDWARE")
    assert hardware().source == "measured"


def test_an_unknown_device_is_refused_with_the_known_ones_before_anything_is_measured(
    measurements: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIFUSER_HARDWARE", "Z9000")
    with pytest.raises(MeasureError, match=r"'Z9000'.*V100.*H100.*910B"):
        hardware()
    assert measurements == []


def figures(monkeypatch: pytest.MonkeyPatch, *runs: dict[int, Ceiling]) -> None:
    """What is measured with each number of threads, one run after the other."""
    left = {count: [run[count] for run in runs] for count in runs[0]}
    monkeypatch.setattr(machine, "thread_choices", lambda: tuple(left))
    monkeypatch.setattr(machine, "cuda_names", lambda: ())
    monkeypatch.setattr(machine, "cpu_ceiling", lambda count, facts: left[count].pop(0))


def ceiling(threads: int, fp32: float, *warnings: str, **others: float) -> Ceiling:
    known = {"bandwidth_gbs": 18.0} | others
    return Ceiling(threads=threads, fp32_gflops=fp32, warnings=warnings, **known)


LOWERED = {
    "less": (ceiling(1, 90), ceiling(2, 3), (2,)),
    "hardly more": (ceiling(1, 102), ceiling(2, 107), (2,)),
    "more": (ceiling(1, 90), ceiling(2, 150), ()),
    "far more": (ceiling(1, 30), ceiling(2, 180), (1,)),
    "int8": (ceiling(1, 90, int8_gops=300), ceiling(2, 180, int8_gops=350), (2,)),
    "one thread's operator": (ceiling(1, 90, fp16_gflops=5), ceiling(2, 180, fp16_gflops=5), ()),
    "copies": (ceiling(1, 90, bandwidth_gbs=20), ceiling(2, 180, bandwidth_gbs=15), (2,)),
    "others": (ceiling(1, 90), ceiling(2, 180, "other processes had 40% of the cores"), (2,)),
}


@pytest.mark.parametrize(("single", "double", "busy"), LOWERED.values(), ids=LOWERED)
def test_a_ceiling_lowered_by_other_processes_gets_a_warning_and_the_record_a_note(
    single: Ceiling, double: Ceiling, busy: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures(monkeypatch, {1: single, 2: double})
    here = hardware()
    assert tuple(each.threads for each in here.ceilings if each.warnings) == busy
    assert ("busy" in here.note) is bool(busy)
    assert all(bool(each.caution) is bool(each.warnings) for each in here.ceilings)


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Another process asks, so much later."""
    age = machine._age_s
    monkeypatch.setattr(machine, "_age_s", lambda record: age(record) + seconds)
    machine._returned.clear()


def test_a_later_run_measures_a_busy_machine_again_and_keeps_the_better_of_each_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = {
        1: ceiling(1, 60, "fp32: 1 thread had 0.50 cores", bandwidth_gbs=20),
        2: ceiling(2, 107),
    }
    figures(monkeypatch, busy, {1: ceiling(1, 100), 2: ceiling(2, 190)})
    assert "busy" in hardware().note
    machine._returned.clear()
    assert hardware().ceilings[0].fp32_gflops == 60, "right after, the machine is as busy"
    later(monkeypatch, machine.REMEASURE_S)
    again = hardware()
    assert [ceiling.fp32_gflops for ceiling in again.ceilings] == [100, 190]
    assert again.ceilings[0].bandwidth_gbs == 20
    assert (again.note, again.measurements) == ("", 2)
    assert hardware() == again


def test_a_process_keeps_the_ceilings_that_it_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures(monkeypatch, {1: ceiling(1, 60, "busy"), 2: ceiling(2, 107)})
    first = hardware()
    later(monkeypatch, machine.REMEASURE_S)
    machine._returned.add(machine._file_name(host_facts(), ()))
    assert hardware() == first


def test_a_machine_that_is_always_busy_is_not_measured_endlessly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [{1: ceiling(1, 60, "busy"), 2: ceiling(2, 107, "busy")}] * machine.MAX_MEASUREMENTS
    figures(monkeypatch, *runs)
    for _ in range(machine.MAX_MEASUREMENTS + 2):
        here = hardware()
        later(monkeypatch, machine.REMEASURE_S)
        if machine._age_s(here) > machine.EXPIRY_S:
            break
    assert here.measurements == machine.MAX_MEASUREMENTS
    assert "busy" in here.note


def test_old_ceilings_are_replaced_also_by_lower_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    figures(
        monkeypatch,
        {1: ceiling(1, 100), 2: ceiling(2, 190)},
        {1: ceiling(1, 50), 2: ceiling(2, 95)},
    )
    hardware()
    later(monkeypatch, machine.EXPIRY_S)
    assert [ceiling.fp32_gflops for ceiling in hardware().ceilings] == [50, 95]


def test_a_record_of_an_earlier_version_loads_and_its_ceilings_are_measured_once_more(
    measurements: list[int], tmp_path: Path
) -> None:
    hardware()
    (file,) = (tmp_path / "cache").iterdir()
    content = json.loads(file.read_text())
    for new in ("measured_at", "measurements"):
        del content["data"][new]
    for ceiling in content["data"]["ceilings"]:
        del ceiling["warnings"]
    file.write_text(json.dumps(content))
    assert Hardware.load(file).ceilings[0].caution == ""
    measurements.clear()
    hardware()
    assert measurements == list(thread_choices())


def test_a_faster_layer_replaces_the_stored_rate_of_its_threads_only(
    measurements: list[int],
) -> None:
    here = hardware()
    count = here.ceilings[-1].threads
    machine.keep_faster(here, count, {"fp32_gflops": 25.0, "bandwidth_gbs": 1.0})
    assert hardware().ceiling(count) == here.ceiling(count).model_copy(update={"fp32_gflops": 25.0})
    assert hardware().ceilings[:-1] == here.ceilings[:-1]
    elsewhere = here.model_copy(update={"torch_version": "0.0"})
    machine.keep_faster(elsewhere, count, {"fp32_gflops": 500.0})
    assert hardware().ceiling(count).fp32_gflops == 25.0


def test_a_device_left_out_is_tried_again_the_next_time(
    measurements: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cuda_names", lambda: ("L4",))
    monkeypatch.setattr(
        machine, "cuda_accelerators", lambda names: ((), "L4 is left out: it was full")
    )
    assert "full" in hardware().note
    monkeypatch.setattr(machine, "cuda_accelerators", lambda names: ((DEVICES["L4"].device,), ""))
    assert hardware().target == hardware().accelerators[0].ceiling == DEVICES["L4"].device.ceiling


def test_a_published_device_is_what_its_row_says():
    card, chip = DEVICES["T4"].device, DEVICES["910B"].device
    assert (card.name, card.kind, card.memory_bytes) == ("NVIDIA T4", "cuda", 16 * 10**9)
    assert (card.compute_capability, card.multiprocessors) == ((7, 5), 40)
    assert card.ceiling.bf16_gflops is None and card.ceiling.int8_gops == 130_000
    assert (card.ceiling.fp16_gflops, card.ceiling.bandwidth_gbs) == (65_000, 320)
    assert (chip.kind, chip.compute_capability, chip.multiprocessors) == ("npu", None, None)
