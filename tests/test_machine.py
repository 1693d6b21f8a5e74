"""The machine: the record, its cache, published devices."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from paifuser_lab import ceilings, machine
from paifuser_lab.devices import DEVICES
from paifuser_lab.errors import MeasureError
from paifuser_lab.host import host_facts
from paifuser_lab.machine import hardware, thread_choices
from paifuser_lab.records import Ceiling, Hardware


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PAIFUSER_HARDWARE", raising=False)


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread counts that were measured, each with made-up figures."""
    counts: list[int] = []

    def measure(count: int, facts: Hardware) -> Ceiling:
        counts.append(count)
        return Ceiling(threads=count, fp32_gflops=10.0 * count, bandwidth_gbs=5.0 * count)

    monkeypatch.setattr(machine, "cpu_ceiling", measure)
    monkeypatch.setattr(machine, "cuda_names", lambda: ())
    return counts


def test_facts_are_plausible(measurements: list[int]) -> None:
    here = hardware()
    assert here.name
    assert (here.source, here.torch_version) == ("measured", torch.__version__)
    assert 1 <= here.physical_cores <= here.logical_cores <= (psutil.cpu_count() or 1)
    assert 1 << 26 < here.memory_bytes <= psutil.virtual_memory().total


def test_what_is_measured_is_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZES": (32,), "ENOUGH_S": 0.0, "MEBIBYTE": 1 << 10}.items():
        monkeypatch.setattr(ceilings, name, value)
    first = hardware()
    assert tuple(one.threads for one in first.ceilings) == thread_choices()
    assert hardware() == first


def test_the_second_call_reads_the_cache(measurements: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first = hardware()
    monkeypatch.setattr(machine, "_measured", lambda *_: pytest.fail("measured again"))
    assert hardware() == first


def test_refresh_measures_again(measurements: list[int]) -> None:
    hardware()
    hardware(refresh=True)
    assert measurements == [*thread_choices(), *thread_choices()]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"record": "Hardware", "format": 1, "data": {"name": 3}}', '{"record": "Ceiling"}']
)
def test_a_damaged_cache_is_measured_anew(damage: str, measurements: list[int], tmp_path: Path) -> None:
    first = hardware()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_text(damage)
    assert hardware() == first
    assert Hardware.load(file) == first


def test_a_kept_record_without_ceilings_is_measured_anew(measurements: list[int], tmp_path: Path) -> None:
    first = hardware()
    (file,) = (tmp_path / "cache").iterdir()
    first.model_copy(update={"ceilings": ()}).save(file)
    assert hardware() == first


def test_a_cache_that_cannot_be_written_does_not_stop_the_answer(
    measurements: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "file" / "cache"))
    assert "Measured anew each time" in hardware().note


def test_another_torch_or_another_device_is_another_measurement(measurements: list[int]) -> None:
    facts = host_facts()
    other = facts.model_copy(update={"torch_version": "0.0"})
    assert len({machine._digest(facts, ()), machine._digest(other, ()), machine._digest(facts, ("NVIDIA L4",))}) == 3


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
    assert there.note
    assert there.target == DEVICES[name].device.ceiling
    assert there.target.bandwidth_gbs < there.target.fp32_gflops < (there.target.fp16_gflops or 0)
    assert (there.isa, there.physical_cores, there.ceilings) == (here.isa, here.physical_cores, here.ceilings)
    assert Hardware.load(there.save(tmp_path / "there.json")) == there


def test_a_published_device_does_not_reach_the_cache(measurements: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(("fp32", "is_disturbed"), [(3.0, True), (150.0, False)])
def test_two_threads_that_reach_less_than_one_were_disturbed_and_the_record_says_so(
    fp32: float, is_disturbed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "thread_choices", lambda: (1, 2))
    monkeypatch.setattr(
        machine,
        "cpu_ceiling",
        lambda count, facts: Ceiling(threads=count, fp32_gflops={1: 90.0, 2: fp32}[count], bandwidth_gbs=18.0),
    )
    assert ("busy" in machine._measured(host_facts(), ()).note) is is_disturbed


def test_a_device_left_out_is_tried_again_the_next_time(measurements: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_names", lambda: ("L4",))
    monkeypatch.setattr(machine, "cuda_accelerators", lambda names: ((), "L4 is left out: it was full"))
    assert "full" in hardware().note
    monkeypatch.setattr(machine, "cuda_accelerators", lambda names: ((DEVICES["L4"].device,), ""))
    assert hardware().target == hardware().accelerators[0].ceiling == DEVICES["L4"].device.ceiling
