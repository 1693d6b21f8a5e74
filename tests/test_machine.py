"""The machine: facts, ceilings, the cache, published devices, containers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from paifuser_lab import machine
from paifuser_lab.devices import DEVICES
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import hardware, thread_choices, threads
from paifuser_lab.records import Accelerator, Ceiling, Hardware


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PAIFUSER_HARDWARE", raising=False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real measurements of small things."""
    monkeypatch.setattr(machine, "SIZES", (32,))
    monkeypatch.setattr(machine, "ENOUGH_S", 0.0)
    monkeypatch.setattr(machine, "MEBIBYTE", 1 << 10)
    monkeypatch.setattr(machine, "_is_disturbed", lambda ceilings: False)


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread counts that were measured, each with made-up figures."""
    counts: list[int] = []

    def measure(count: int, facts: Hardware) -> Ceiling:
        counts.append(count)
        return Ceiling(threads=count, fp32_gflops=10.0 * count, bandwidth_gbs=5.0 * count)

    monkeypatch.setattr(machine, "_cpu_ceiling", measure)
    monkeypatch.setattr(machine, "_cuda_names", lambda: ())
    return counts


@pytest.fixture
def restored_threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_facts_are_plausible(measurements: list[int]) -> None:
    here = hardware()
    assert here.name and here.source == "measured" and here.torch_version == torch.__version__
    assert 1 <= here.physical_cores <= here.logical_cores <= (psutil.cpu_count() or 1)
    assert 1 << 26 < here.memory_bytes <= psutil.virtual_memory().total
    assert set(here.isa) <= set(machine.ISA.values())
    assert all(size >= 1 << 10 for size in here.caches_bytes.values())


def test_every_ceiling_is_positive_at_each_thread_choice(quick: None) -> None:
    here = hardware()
    assert tuple(one.threads for one in here.ceilings) == thread_choices()
    for one in here.ceilings:
        assert all(figure is None or figure > 0 for figure in one.model_dump().values())
        assert one.bf16_gflops and one.int8_gops


def test_measuring_leaves_threads_random_numbers_and_precision_as_they_were(quick: None, restored_threads: int) -> None:
    random_state = torch.get_rng_state()
    torch.set_num_threads(1)
    hardware()
    assert torch.get_num_threads() == 1
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_float32_matmul_precision() == "highest"


def test_fp32_is_true_fp32_and_the_users_choice_comes_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with machine._true_fp32():
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_threads_come_back_after_the_block_and_after_an_exception(restored_threads: int) -> None:
    with threads(restored_threads + 1):
        assert torch.get_num_threads() == restored_threads + 1
    with pytest.raises(ZeroDivisionError), threads(restored_threads + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == restored_threads


def test_no_threads_at_all_is_refused() -> None:
    with pytest.raises(MeasureError, match="0 threads"), threads(0):
        pass


@pytest.mark.parametrize(("cores", "choices"), [((1, 1), (1,)), ((2, 4), (1, 2)), ((8, 8), (1, 8))])
def test_thread_choices_are_one_and_all_physical_cores(
    cores: tuple[int, int], choices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_cores", lambda: cores)
    assert thread_choices() == choices


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
    facts = machine._facts()
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
    assert there.source == "published" and there.name == there.accelerators[0].name and there.note
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
        "_cpu_ceiling",
        lambda count, facts: Ceiling(threads=count, fp32_gflops={1: 90.0, 2: fp32}[count], bandwidth_gbs=18.0),
    )
    assert ("busy" in machine._measured(machine._facts(), ()).note) is is_disturbed


def test_a_precision_that_torch_refuses_is_none_and_a_larger_size_that_fails_is_not_needed() -> None:
    def refuse(size: int, device: torch.device) -> Callable[[], object]:
        raise NotImplementedError

    def small_only(size: int, device: torch.device) -> Callable[[], object]:
        if size > machine.SIZES[0]:
            raise torch.OutOfMemoryError
        return lambda: None

    cpu = torch.device("cpu")
    assert machine._best_rate(refuse, cpu, lambda run: 1e-3) is None
    assert machine._best_rate(small_only, cpu, lambda run: 1e-3) == pytest.approx(2 * machine.SIZES[0] ** 3 / 1e-3 / 1e9)


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
    cards = [SimpleNamespace(name=name, total_memory=8 << 20, major=9, minor=0, multi_processor_count=132) for name in names]
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
    card = machine._accelerator(0, torch.device("cpu"), fake_cuda("NVIDIA H100"))
    assert (card.name, card.kind, card.compute_capability, card.multiprocessors) == ("NVIDIA H100", "cuda", (9, 0), 132)
    assert card.memory_bytes == 8 << 20
    assert card.ceiling.threads == 1 and card.ceiling.fp32_gflops > 0 and card.ceiling.bandwidth_gbs > 0


def test_cuda_devices_are_named_and_no_cuda_is_no_device() -> None:
    assert machine._cuda_names(fake_cuda("A", "B")) == ("A", "B")
    assert machine._cuda_names(fake_cuda()) == ()


def test_equal_cards_are_measured_once_and_an_unusable_one_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(index: int, device: torch.device, cuda: object) -> Accelerator:
        measured.append(index)
        if index == 1:
            raise RuntimeError("no kernel image is available\nlong story")
        return DEVICES["L4"].device

    monkeypatch.setattr(machine, "_accelerator", measure)
    found, note = machine._accelerators(("L4", "old", "L4", "old"), fake_cuda())
    assert measured == [0, 1] and len(found) == 2
    assert note == "old is left out: no kernel image is available"


def test_a_device_left_out_is_tried_again_the_next_time(measurements: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cuda_names", lambda: ("L4",))
    monkeypatch.setattr(machine, "_accelerators", lambda names: ((), "L4 is left out: it was full"))
    assert "full" in hardware().note
    monkeypatch.setattr(machine, "_accelerators", lambda names: ((DEVICES["L4"].device,), ""))
    assert hardware().target == hardware().accelerators[0].ceiling == DEVICES["L4"].device.ceiling


GROUPS_2 = "0::/user/job\n"
GROUPS_1 = "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/\n"


@pytest.mark.parametrize(
    ("files", "quotas", "limits"),
    [
        ({}, [], []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}, [], []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, [1.5], []),
        ({"proc/self/cgroup": GROUPS_2, "sys/fs/cgroup/user/cpu.max": "400000 100000"}, [4.0], []),
        ({"proc/self/cgroup": GROUPS_2, "sys/fs/cgroup/user/job/memory.max": "4096"}, [], [4096]),
        (
            {
                "proc/self/cgroup": GROUPS_1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "9223372036854771712",
            },
            [2.0],
            [9223372036854771712],
        ),
        (
            {
                "proc/self/cgroup": GROUPS_1,
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000",
            },
            [],
            [],
        ),
    ],
)
def test_a_containers_limits_are_read(files: dict[str, str], quotas: list[float], limits: list[int], tmp_path: Path) -> None:
    root = write(tmp_path, files)
    assert machine._cpu_quotas(root) == quotas
    assert machine._memory_limits(root) == limits


def test_cores_honour_affinity_siblings_and_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [0, 1, 2, 3, 4, 5], raising=False)
    topology = {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    root = write(tmp_path, topology)
    assert machine._cores(root) == (4, 6)
    write(root, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "350000 100000"})
    assert machine._cores(root) == (3, 3)
    write(root, {"sys/fs/cgroup/cpu.max": "50000 100000"})
    assert machine._cores(root) == (1, 1)


X86 = """processor : 0
model name : Xeon
flags : fpu fma avx2 avx512f avx512_vnni amx_tile amx_bf16 amx_int8

processor : 1
model name : another
"""
ARM = "processor : 0\nFeatures : fp asimd asimddp sve i8mm bf16\n"
SYSCTL = """hw.optional.neon: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_I8MM: 0
machdep.cpu.brand_string: Apple M2
hw.l2cachesize: 4096
"""


@pytest.mark.parametrize(
    ("text", "isa"),
    [
        (X86, ("avx2", "fma", "avx512f", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8")),
        (ARM, ("neon", "dotprod", "bf16", "i8mm", "sve")),
        (SYSCTL, ("neon", "bf16")),
    ],
)
def test_instruction_sets_have_tidy_names(
    text: str, isa: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert machine._isa(machine._description(write(tmp_path, {"proc/cpuinfo": text}))) == isa


def test_the_cpus_name_and_caches_come_from_sysctl_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(stdout=SYSCTL))
    described = machine._description(tmp_path)
    assert machine._cpu_name(described) == "Apple M2" and machine._isa(described) == ("neon", "bf16")
    assert machine._caches(tmp_path, described) == {"L2": 4096}


def test_where_neither_file_is_there_torch_describes_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Windows")
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_f": False, "l2_cache_size": 1024, "cpu_name": "Ryzen"}
    )
    described = machine._description(tmp_path)
    assert (machine._cpu_name(described), machine._isa(described)) == ("Ryzen", ("avx2",))
    assert machine._caches(tmp_path, described) == {"L2": 1024}


def test_caches_are_what_one_core_sees(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cache"
    caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "30720K")]
    for index, (level, kind, size) in enumerate(caches):
        write(
            tmp_path,
            {
                f"{folder}/index{index}/{name}": text
                for name, text in zip(("level", "type", "size"), (level, kind, size), strict=True)
            },
        )
    assert machine._caches(tmp_path, {}) == {"L1d": 48 << 10, "L2": 2 << 20, "L3": 30 << 20}
