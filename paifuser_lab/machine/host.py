"""Facts about this machine: CPU name, instruction sets, cores, caches, memory, and core usage.

Built on psutil and torch.cpu. psutil reports neither control groups (a container's share of the
machine) nor caches and instruction sets: those are read here. `root` is the root of the file
system, or a test's folder of made-up files.
"""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

from ..arguments import MAX_THREADS
from ..errors import MeasureError
from ..records import Hardware
from .openmp import notebook_shell

ROOT = Path("/")

# Our name → its spellings by Linux, macOS and torch.cpu, in the order in which they are listed.
_SPELLINGS = {
    "avx2": "avx2 avx2_0",
    "fma": "fma fma3",
    "avx512f": "avx512f avx512_f",
    "avx512_vnni": "avx512_vnni avx512vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "avx_vnni": "avx_vnni",
    "amx_tile": "amx_tile",
    "amx_bf16": "amx_bf16",
    "amx_int8": "amx_int8",
    "amx_fp16": "amx_fp16",
    "neon": "asimd neon advsimd",
    "fp16": "asimdhp feat_fp16 fp16_arith",
    "dotprod": "asimddp feat_dotprod dot",
    "bf16": "bf16 feat_bf16",
    "i8mm": "i8mm feat_i8mm",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme feat_sme",
}
ISA = {spelling: name for name, own in _SPELLINGS.items() for spelling in own.split()}
# What PAIFUSER_CPU=avx2 hides: this processor then counts as one with AVX2 alone.
NEWER_THAN_AVX2 = ("avx512", "avx_vnni", "amx")
CACHES = {
    "L1d": ("l1d_cache_size", "hw.l1dcachesize", "hw.perflevel0.l1dcachesize"),
    "L2": ("l2_cache_size", "hw.l2cachesize", "hw.perflevel0.l2cachesize"),
    "L3": ("l3_cache_size", "hw.l3cachesize"),
}
# Parts of the names of browsers' processes. Which of them draws the notebook cannot be told.
BROWSERS = (
    "chrom", "headless_shell", "msedge", "brave", "opera", "vivaldi", "safari", "webkit",
    "firefox", "isolated web", "web content",
)  # fmt: skip

# by id, those that serve or show this process; None are the others
_known: dict[int, psutil.Process | None] = {}


def device_name(device: torch.device) -> str:
    """The name of a GPU, or of this machine's processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else host_facts().name


def host_facts(root: Path = ROOT) -> Hardware:
    """The facts known without measuring: no ceilings, no accelerators."""
    described = _description(root)
    physical, logical = usable_cores(root)
    return Hardware(
        name=_cpu_name(described),
        source="measured",
        isa=_isa(described),
        physical_cores=physical,
        logical_cores=logical,
        caches_bytes=_caches(root, described),
        memory_bytes=min((psutil.virtual_memory().total, *_memory_limits(root))),
        ceilings=(),
        torch_version=torch.__version__,
    )


def free_memory() -> int:
    """The bytes that this process may still take: psutil's are the machine's, not a container's."""
    granted = host_facts().memory_bytes - psutil.Process().memory_info().rss
    return max(0, min(psutil.virtual_memory().available, granted))


def _description(root: Path) -> dict[str, str]:
    """The system's description of its CPU: /proc/cpuinfo, sysctl, or torch.cpu."""
    if platform.system() == "Darwin":
        text = subprocess.run(
            ["/usr/sbin/sysctl", "hw", "machdep.cpu"], capture_output=True, text=True, check=False
        ).stdout
    else:
        text = _text(root / "proc/cpuinfo")
    if not text:
        return {
            key: str(int(value) if isinstance(value, bool) else value)
            for key, value in torch.cpu.get_capabilities().items()
        }
    # reversed, so that the first core's values win
    pairs = (line.partition(":") for line in reversed(text.splitlines()))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_name(described: dict[str, str]) -> str:
    names = (
        described.get(key, "")
        for key in ("model name", "machdep.cpu.brand_string", "cpu_name", "Model")
    )
    return next(
        (name for name in names if name), platform.processor() or platform.machine() or "CPU"
    )


def _isa(described: dict[str, str]) -> tuple[str, ...]:
    """The instruction sets that affect precisions: words in Linux's flags, or keys that are 1."""
    words = {key.rpartition(".")[2].casefold() for key, value in described.items() if value == "1"}
    words.update(described.get("flags", "").split(), described.get("Features", "").split())
    known = tuple(dict.fromkeys(name for word, name in ISA.items() if word in words))
    if os.environ.get("PAIFUSER_CPU") == "avx2":
        return tuple(name for name in known if not name.startswith(NEWER_THAN_AVX2))
    return known


def usable_cores(root: Path = ROOT) -> tuple[int, int]:
    """The physical and logical cores that this process may use; a quota is rounded down."""
    cpus = own_cpus()
    siblings = {
        _text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        for cpu in cpus
    } - {""}
    physical = len(siblings) or psutil.cpu_count(logical=False) or len(cpus)
    logical = min((len(cpus), *(max(1, int(quota)) for quota in _cpu_quotas(root))))
    return min(physical, logical), logical


def own_cpus() -> list[int]:
    """The indices of the CPUs that this process may run on."""
    affinity = getattr(psutil.Process(), "cpu_affinity", None)  # macOS has none
    return list(affinity() if affinity else range(psutil.cpu_count() or 1))


class CoreUse(NamedTuple):
    """How long the cores have been busy, in seconds; two readings give the use in between.

    `other_threads_s`: the CPU time of each Python thread of this process but the one that measures;
    `serving_s`: that of each process that serves or shows this one.
    """

    wall_s: float
    own_s: float
    busy_s: float
    cores: int
    other_threads_s: dict[tuple[int, str], float] = {}
    serving_s: dict[int, float] = {}


def core_use(thread: int | None = None) -> CoreUse:
    """The busy time so far of the cores that this process may use, in all and by this process.

    `thread`: the one that measures; the calling one where none is named.
    """
    own = set(own_cpus())
    cpus = [times for cpu, times in enumerate(psutil.cpu_times(percpu=True)) if cpu in own]
    # A guest's time is part of `user` as well; time that a hypervisor takes away counts as busy.
    skipped = ("idle", "iowait", "guest", "guest_nice")
    busy = sum(sum(times) - sum(getattr(times, name, 0.0) for name in skipped) for times in cpus)
    return CoreUse(
        time.perf_counter(),
        time.process_time(),
        busy,
        len(cpus) or 1,
        _other_threads(thread),
        serving_seconds(),
    )


def _other_threads(thread: int | None) -> dict[tuple[int, str], float]:
    """The CPU seconds of every Python thread but this one; none where the system does not tell.

    Threads that torch made itself belong to the thread that called it, and are not listed.
    """
    thread = thread or threading.get_ident()
    names = {
        other.native_id: other.name for other in threading.enumerate() if other.ident != thread
    }
    with suppress(psutil.Error, OSError):
        return {
            (used.id, name): used.user_time + used.system_time
            for used in psutil.Process().threads()
            if (name := names.get(used.id)) is not None
        }
    return {}


def serving_seconds() -> dict[int, float]:
    """The CPU seconds so far, by its id, of each process that started this one (a notebook's
    server, a terminal) and of each of a browser's, if this one runs a notebook.
    """
    global _known
    known = _known = {pid: _known[pid] if pid in _known else _serving(pid) for pid in psutil.pids()}
    spent = {}
    for pid, process in known.items():
        with suppress(psutil.Error):
            if process is not None:
                times = process.cpu_times()
                spent[pid] = float(times.user + times.system)
    return spent


def _serving(pid: int) -> psutil.Process | None:
    """The process if it serves or shows this one."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if pid in _ancestors():
            return process
        if notebook_shell() is not None and any(
            part in process.name().lower() for part in BROWSERS
        ):
            return process
    return None


@cache
def _ancestors() -> frozenset[int]:
    with suppress(psutil.Error):
        return frozenset(process.pid for process in psutil.Process().parents())
    return frozenset()


def thread_seconds(before: CoreUse, after: CoreUse) -> dict[str, float]:
    """The CPU seconds between two readings of each other Python thread, by its name."""
    spent: dict[str, float] = defaultdict(float)
    for key, seconds in after.other_threads_s.items():
        spent[key[1]] += seconds - before.other_threads_s.get(key, 0.0)
    return spent


def others_share(before: CoreUse, after: CoreUse) -> float:
    """The share of the cores' time between two readings that other processes used, and other
    Python threads of this one: a notebook's cell beside the workbench's worker.
    """
    served = sum(
        seconds - before.serving_s.get(pid, 0.0) for pid, seconds in after.serving_s.items()
    )
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s) - served
    others = max(0.0, others) + sum(thread_seconds(before, after).values())
    return others / max((after.wall_s - before.wall_s) * after.cores, 1e-9)


def _caches(root: Path, described: dict[str, str]) -> dict[str, int]:
    """The size of each cache as one core sees it."""
    known = ((level, described.get(key, "0")) for level, keys in CACHES.items() for key in keys)
    caches = {level: int(size) for level, size in known if size != "0"}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        if kind in ("Data", "Unified") and size[:-1].isdigit():
            caches[f"L{level}{'d' if kind == 'Data' else ''}"] = int(size[:-1]) * {
                "K": 1 << 10,
                "M": 1 << 20,
            }.get(size[-1], 1)
    return caches


def _cpu_quotas(root: Path) -> list[float]:
    """The CPU quotas, in cores, of the control groups around this process (versions 2 and 1)."""
    folders = list(_control_groups("cpu", root))
    pairs = [_numbers(folder / "cpu.max") for folder in folders]
    pairs += [
        _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
        for folder in folders
    ]
    return [pair[0] / pair[1] for pair in pairs if len(pair) == 2 and min(pair) > 0]


def _memory_limits(root: Path) -> Iterable[int]:
    """The memory limits of the control groups around this process."""
    files = (
        folder / name
        for folder in _control_groups("memory", root)
        for name in ("memory.max", "memory.limit_in_bytes")
    )
    return [limit for file in files for limit in _numbers(file) if limit > 0]


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's control group and of its ancestors."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / (controller if controllers else "")
            own = base / path.strip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(base))


def _numbers(path: Path) -> list[int]:
    return [int(word) for word in _text(path).split() if word.lstrip("-").isdigit()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run torch with `count` threads inside the block; the previous number is restored after it.
    None leaves the number as it is.
    """
    if count is None:
        yield
        return
    if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= count <= MAX_THREADS:
        raise MeasureError(
            f"torch cannot work with {count} threads; use 1 to {usable_cores()[1]} on this machine."
        )
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_choices() -> tuple[int, ...]:
    """The numbers of threads to compare on this machine: one, and all physical cores."""
    return tuple(sorted({1, usable_cores()[0]}))
