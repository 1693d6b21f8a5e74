"""The host: facts about the CPU, a container's limits, and how many threads to use."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import host
from paifuser_lab.machine.host import thread_choices, threads


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


def test_instruction_sets_and_caches_are_plausible() -> None:
    here = host.host_facts()
    assert set(here.isa) <= set(host.ISA.values())
    assert all(size >= 1 << 10 for size in here.caches_bytes.values())


def test_free_memory_is_within_what_a_container_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < host.free_memory() < psutil.virtual_memory().total
    monkeypatch.setattr(host, "_memory_limits", lambda root: [1 << 20])
    assert host.free_memory() == 0


def test_what_others_use_of_the_cores_is_what_was_busy_without_this_process() -> None:
    before = host.CoreUse(wall_s=1.0, own_s=5.0, busy_s=50.0, cores=4)
    assert host.others_share(before, host.CoreUse(2.0, 7.0, 53.0, 4)) == pytest.approx(0.25)
    assert host.others_share(before, host.CoreUse(2.0, 7.0, 51.9, 4)) == 0.0, (
        "ticks are coarse, never negative"
    )
    assert host.others_share(before, before) == 0.0
    beside = {(7, "a cell"): 1.5}, {(7, "a cell"): 2.0, (8, "a new one"): 0.5}
    first, last = before._replace(other_threads_s=beside[0]), (2.0, 7.0, 53.0, 4, beside[1])
    assert host.others_share(first, host.CoreUse(*last)) == pytest.approx(0.5)
    served, last = before._replace(serving_s={8: 1.0}), (2.0, 7.0, 53.0, 4, {}, {8: 1.5, 9: 0.25})
    assert host.others_share(served, host.CoreUse(*last)) == pytest.approx(0.25 / 4), "not others"


def test_only_the_cores_of_this_process_count_and_only_while_they_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"user": 4.0, "guest": 1.0, "system": 2.0, "idle": 100.0, "iowait": 7.0, "steal": 3.0}
    times = namedtuple("times", fields)  # type: ignore[misc]
    monkeypatch.setattr(host, "own_cpus", lambda: [0, 2])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [times(**fields)] * 3)
    reading = host.core_use()
    assert (reading.cores, reading.busy_s) == (2, 2 * (4.0 + 2.0 + 3.0))


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
    monkeypatch.setattr("paifuser_lab.machine.host.usable_cores", lambda: cores)
    assert thread_choices() == choices


GROUPS_2 = "0::/user/job\n"
GROUPS_1 = "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/\n"


@pytest.mark.parametrize(
    ("files", "quotas", "limits"),
    [
        ({}, [], []),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
                "sys/fs/cgroup/memory.max": "max\n",
            },
            [],
            [],
        ),
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
def test_a_containers_limits_are_read(
    files: dict[str, str], quotas: list[float], limits: list[int], tmp_path: Path
) -> None:
    root = write(tmp_path, files)
    assert host._cpu_quotas(root) == quotas
    assert host._memory_limits(root) == limits


def test_cores_honour_affinity_siblings_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        psutil.Process, "cpu_affinity", lambda self: [0, 1, 2, 3, 4, 5], raising=False
    )
    topology = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}"
        for cpu in range(8)
    }
    root = write(tmp_path, topology)
    assert host.usable_cores(root) == (4, 6)
    write(root, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "350000 100000"})
    assert host.usable_cores(root) == (3, 3)
    write(root, {"sys/fs/cgroup/cpu.max": "50000 100000"})
    assert host.usable_cores(root) == (1, 1)


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
    monkeypatch.delenv("PAIFUSER_CPU", raising=False)
    assert host._isa(host._description(write(tmp_path, {"proc/cpuinfo": text}))) == isa


def test_one_variable_makes_a_processor_count_as_one_with_avx2_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("PAIFUSER_CPU", "avx2")
    newer = X86.replace("flags :", "flags : avx_vnni avx512_bf16")
    assert host._isa(host._description(write(tmp_path, {"proc/cpuinfo": newer}))) == ("avx2", "fma")


def test_the_cpus_name_and_caches_come_from_sysctl_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(stdout=SYSCTL))
    described = host._description(tmp_path)
    assert (host._cpu_name(described), host._isa(described)) == ("Apple M2", ("neon", "bf16"))
    assert host._caches(tmp_path, described) == {"L2": 4096}


def test_without_either_file_torch_describes_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Windows")
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"avx2": True, "avx512_f": False, "l2_cache_size": 1024, "cpu_name": "Ryzen"},
    )
    described = host._description(tmp_path)
    assert (host._cpu_name(described), host._isa(described)) == ("Ryzen", ("avx2",))
    assert host._caches(tmp_path, described) == {"L2": 1024}


def test_caches_are_what_one_core_sees(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cache"
    caches = [
        ("1", "Data", "48K"),
        ("1", "Instruction", "32K"),
        ("2", "Unified", "2M"),
        ("3", "Unified", "30720K"),
    ]
    for index, (level, kind, size) in enumerate(caches):
        write(
            tmp_path,
            {
                f"{folder}/index{index}/{name}": text
                for name, text in zip(("level", "type", "size"), (level, kind, size), strict=True)
            },
        )
    assert host._caches(tmp_path, {}) == {"L1d": 48 << 10, "L2": 2 << 20, "L3": 30 << 20}
