"""What this machine can do: instruction sets, cores, caches and measured ceilings. Stands on psutil and torch.

psutil knows neither control groups (a container's share of the machine) nor caches and instruction sets: those are read here.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import torch

from ._files import cache_folder
from .devices import find_device
from .errors import FileError, MeasureError
from .records import Accelerator, Ceiling, Hardware

ROOT = Path("/")
ENOUGH_S = 0.1  # a figure is the best of repetitions that take this long together
LONG_S = 0.015  # a product that takes this long is large enough; less, and a neighbour's time slice ends the growth too early
SIZES = (256, 512, 1024, 2048, 4096, 8192)
MEBIBYTE = 1 << 20

# As Linux, macOS and torch.cpu spell them → as we do; in the order in which they are listed.
ISA = {
    "avx2": "avx2", "avx2_0": "avx2", "fma": "fma", "fma3": "fma", "avx512f": "avx512f", "avx512_f": "avx512f",
    "avx512_vnni": "avx512_vnni", "avx512vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16", "avx512_fp16": "avx512_fp16",
    "avx_vnni": "avx_vnni", "amx_tile": "amx_tile", "amx_bf16": "amx_bf16", "amx_int8": "amx_int8", "amx_fp16": "amx_fp16",
    "asimd": "neon", "neon": "neon", "advsimd": "neon", "asimdhp": "fp16", "feat_fp16": "fp16", "fp16_arith": "fp16",
    "asimddp": "dotprod", "feat_dotprod": "dotprod", "dot": "dotprod", "bf16": "bf16", "feat_bf16": "bf16",
    "i8mm": "i8mm", "feat_i8mm": "i8mm", "sve": "sve", "sve2": "sve2", "sme": "sme", "feat_sme": "sme",
}  # fmt: skip
CACHES = {
    "L1d": ("l1d_cache_size", "hw.l1dcachesize", "hw.perflevel0.l1dcachesize"),
    "L2": ("l2_cache_size", "hw.l2cachesize", "hw.perflevel0.l2cachesize"),
    "L3": ("l3_cache_size", "hw.l3cachesize"),
}

Clock = Callable[[Callable[[], object]], float]  # runs something once, gives the seconds it took
Build = Callable[[int, torch.device], Callable[[], object]]  # prepares a square product of a size
_one_at_a_time = threading.Lock()


def hardware(*, refresh: bool = False) -> Hardware:
    """What this machine can do, measured once and then kept; PAIFUSER_HARDWARE=H100 puts a published device in its place."""
    wanted = os.environ.get("PAIFUSER_HARDWARE", "").strip()
    published = find_device(wanted) if wanted else None
    with _one_at_a_time:
        here = _this_machine(refresh=refresh)
    if published is None:
        return here
    device, origin = published
    note = f"{device.name}: {origin}. The CPU is this machine's."
    return here.model_copy(update={"name": device.name, "source": "published", "accelerators": (device,), "note": note})


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads inside the block, and as many as before after it."""
    if count < 1:
        raise MeasureError(f"torch cannot work with {count} threads; use 1 to {_cores()[1]} on this machine.")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_choices() -> tuple[int, ...]:
    """The thread counts worth comparing here: one, and all physical cores."""
    return tuple(sorted({1, _cores()[0]}))


# Measured once, kept in the cache: the facts are cheap and always fresh, only ceilings are kept.


def _this_machine(*, refresh: bool) -> Hardware:
    facts, devices = _facts(), _cuda_names()
    name = f"hardware-{_digest(facts, devices)}.json"
    kept = None if refresh else _kept(name)
    if kept is None:
        kept = _measured(facts, devices)
        if len(kept.accelerators) == len(devices):  # a device left out, full perhaps, is tried again the next time
            kept = _keep(kept, name)
    return facts.model_copy(update={"ceilings": kept.ceilings, "accelerators": kept.accelerators, "note": kept.note})


def _digest(facts: Hardware, devices: tuple[str, ...]) -> str:
    key = [facts.name, facts.isa, facts.physical_cores, facts.logical_cores, facts.torch_version, devices]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _kept(name: str) -> Hardware | None:
    """The record of an earlier run; None where there is none or it is damaged."""
    with suppress(FileError, OSError):
        record = Hardware.load(cache_folder() / name)
        return record if record.ceilings else None
    return None


def _keep(record: Hardware, name: str) -> Hardware:
    """A cache that cannot be written costs seconds the next time, not the answer now."""
    try:
        record.save(cache_folder() / name)
    except (FileError, OSError) as error:
        return record.model_copy(update={"note": f"{record.note} Measured anew each time: {error}".strip()})
    return record


def _measured(facts: Hardware, devices: tuple[str, ...]) -> Hardware:
    ceilings = tuple(_cpu_ceiling(count, facts) for count in thread_choices())
    accelerators, note = _accelerators(devices)
    if _is_disturbed(ceilings):
        note = f"{note} The cores were busy while this was measured; hardware(refresh=True) measures again.".strip()
    return facts.model_copy(update={"ceilings": ceilings, "accelerators": accelerators, "note": note})


# Ceilings.


def _is_disturbed(ceilings: tuple[Ceiling, ...]) -> bool:
    """More threads that reach less than one thread were waiting for a neighbour: that is no ceiling."""
    return any(one.fp32_gflops < ceilings[0].fp32_gflops or one.bandwidth_gbs < ceilings[0].bandwidth_gbs for one in ceilings)


def _cpu_ceiling(count: int, facts: Hardware) -> Ceiling:
    """A copy well past the last cache; eight times what one core sees of it, since servers have several."""
    copy_bytes = min(max(128 * MEBIBYTE, 8 * facts.caches_bytes.get("L3", 0)), 512 * MEBIBYTE, facts.memory_bytes // 8)
    with threads(count):
        return _ceiling(torch.device("cpu"), _wall_clock, count=count, copy_bytes=copy_bytes)


def _ceiling(device: torch.device, clock: Clock, *, count: int, copy_bytes: int) -> Ceiling:
    with torch.inference_mode(), torch.autocast(device.type, enabled=False), _true_fp32():
        fp32 = _best_rate(_product(torch.float32), device, clock)
        if fp32 is None:
            raise MeasureError(f"torch cannot multiply fp32 matrices on {device}; is this torch built for it?")
        return Ceiling(
            threads=count,
            fp32_gflops=fp32,
            bf16_gflops=_best_rate(_product(torch.bfloat16), device, clock),
            fp16_gflops=_best_rate(_product(torch.float16), device, clock),
            int8_gops=_best_rate(_int8_product, device, clock),
            bandwidth_gbs=_bandwidth(copy_bytes, device, clock),
        )


@contextmanager
def _true_fp32() -> Iterator[None]:
    """No TF32 or bf16 in fp32's place; by backend, as get_float32_matmul_precision raises where a user chose by backend."""
    products = (getattr(backend, "matmul", None) for backend in (torch.backends.cuda, torch.backends.mkldnn))
    backends: list[Any] = [product for product in products if hasattr(product, "fp32_precision")]
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def _best_rate(build: Build, device: torch.device, clock: Clock) -> float | None:
    """Billions of operations a second, best of sizes that grow until a product takes long; None where torch cannot do it."""
    best = 0.0
    for size in SIZES:
        try:
            seconds = _fastest(build(size, device), clock)
        except (RuntimeError, AttributeError):  # NotImplementedError and running out of memory are RuntimeErrors
            break
        best = max(best, 2 * size**3 / seconds / 1e9)
        if seconds > LONG_S:
            break
    return best or None


def _fastest(run: Callable[[], object], clock: Clock) -> float:
    """Neighbours on the cores only ever slow a run down, so the best of several is the truest."""
    run()
    times = [clock(run)]
    while len(times) < 3 or (sum(times) < ENOUGH_S and len(times) < 20):
        times.append(clock(run))
    return max(min(times), 1e-9)


def _wall_clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _product(dtype: torch.dtype) -> Build:
    """A linear layer's product; with its weight the other way round, emulated precisions are ten times slower."""

    def build(size: int, device: torch.device) -> Callable[[], object]:
        chance = torch.Generator(device).manual_seed(0)  # its own: the user's random numbers stay as they were
        left, right = (torch.randn(size, size, generator=chance, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
        return lambda: torch.nn.functional.linear(left, right)

    return build


def _int8_product(size: int, device: torch.device) -> Callable[[], object]:
    """oneDNN's int8 where there is one (on AVX2 sixty times torch._int_mm, which is a plain loop there), else torch._int_mm."""
    chance = torch.Generator(device).manual_seed(0)
    left, right = (torch.randint(0, 9, (size, size), generator=chance, device=device, dtype=torch.int8) for _ in range(2))
    if device.type == "cpu":
        with suppress(RuntimeError, AttributeError):
            return _onednn_product(left.to(torch.uint8), right)
    return lambda: torch._int_mm(left, right.t())


def _onednn_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object]:
    """The operator that inductor puts into int8 models; run once here, so that a CPU without it is known."""
    onednn = torch.ops.onednn
    packed = onednn.qlinear_prepack(right, list(left.shape))
    scales, zeros = (
        torch.ones(len(right), dtype=torch.float32, device="cpu"),
        torch.zeros(len(right), dtype=torch.int64, device="cpu"),
    )

    def run() -> object:
        return onednn.qlinear_pointwise(left, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")

    run()
    return run


def _bandwidth(copy_bytes: int, device: torch.device, clock: Clock) -> float:
    """Gigabytes a second of a large copy, read and written."""
    source = torch.ones(copy_bytes // 4, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    return 2 * source.nbytes / _fastest(lambda: target.copy_(source), clock) / 1e9


# CUDA devices. `cuda` is torch.cuda, or a test's stand-in.


def _cuda_names(cuda: Any = torch.cuda) -> tuple[str, ...]:
    return tuple(cuda.get_device_name(index) for index in range(cuda.device_count())) if cuda.is_available() else ()


def _accelerators(names: tuple[str, ...], cuda: Any = torch.cuda) -> tuple[tuple[Accelerator, ...], str]:
    """The devices, and a word on those that this torch cannot use; cards of one name are measured once."""
    found: dict[str, Accelerator] = {}
    failures: dict[str, str] = {}
    for index, name in enumerate(names):
        if name in found or name in failures:
            continue
        try:
            found[name] = _accelerator(index, torch.device("cuda", index), cuda)
        except (MeasureError, RuntimeError) as error:
            failures[name] = f"{name} is left out: {str(error).partition(chr(10))[0]}"
    return tuple(found[name] for name in names if name in found), " ".join(failures.values())


def _accelerator(index: int, device: torch.device, cuda: Any = torch.cuda) -> Accelerator:
    facts = cuda.get_device_properties(index)

    def clock(run: Callable[[], object]) -> float:
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    with cuda.device(index):
        ceiling = _ceiling(device, clock, count=1, copy_bytes=min(512 * MEBIBYTE, facts.total_memory // 8))
        cuda.empty_cache()
    return Accelerator(
        name=facts.name,
        kind="cuda",
        memory_bytes=facts.total_memory,
        compute_capability=(facts.major, facts.minor),
        multiprocessors=facts.multi_processor_count,
        ceiling=ceiling,
    )


# Facts. `root` is the file system's, or a test's folder of made-up files.


def _facts(root: Path = ROOT) -> Hardware:
    described = _description(root)
    physical, logical = _cores(root)
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


def _description(root: Path) -> dict[str, str]:
    """What the system says about its CPU, as keys and values: /proc/cpuinfo, sysctl, or torch.cpu."""
    if platform.system() == "Darwin":
        text = subprocess.run(["/usr/sbin/sysctl", "hw", "machdep.cpu"], capture_output=True, text=True, check=False).stdout
    else:
        text = _text(root / "proc/cpuinfo")
    if not text:
        return {key: str(int(value) if isinstance(value, bool) else value) for key, value in torch.cpu.get_capabilities().items()}
    pairs = (line.partition(":") for line in reversed(text.splitlines()))  # reversed: the first core's word is the last
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_name(described: dict[str, str]) -> str:
    names = (described.get(key, "") for key in ("model name", "machdep.cpu.brand_string", "cpu_name", "Model"))
    return next((name for name in names if name), platform.processor() or platform.machine() or "CPU")


def _isa(described: dict[str, str]) -> tuple[str, ...]:
    """The instruction sets that matter for choosing a precision: a word in Linux's flags, or a key that is 1."""
    words = {key.rpartition(".")[2].casefold() for key, value in described.items() if value == "1"}
    words.update(described.get("flags", "").split(), described.get("Features", "").split())
    return tuple(dict.fromkeys(tidy for word, tidy in ISA.items() if word in words))


def _cores(root: Path = ROOT) -> tuple[int, int]:
    """The cores, physical and logical, that this process may use; a quota's part of a core is not counted."""
    affinity = getattr(psutil.Process(), "cpu_affinity", None)  # macOS has none
    cpus = affinity() if affinity else range(psutil.cpu_count() or 1)
    siblings = {_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus} - {""}
    physical = len(siblings) or psutil.cpu_count(logical=False) or len(cpus)
    logical = min((len(cpus), *(max(1, int(quota)) for quota in _cpu_quotas(root))))
    return min(physical, logical), logical


def _caches(root: Path, described: dict[str, str]) -> dict[str, int]:
    """What one core sees of each cache."""
    known = ((level, described.get(key, "0")) for level, keys in CACHES.items() for key in keys)
    caches = {level: int(size) for level, size in known if size != "0"}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        if kind in ("Data", "Unified") and size[:-1].isdigit():
            caches[f"L{level}{'d' if kind == 'Data' else ''}"] = int(size[:-1]) * {"K": 1 << 10, "M": MEBIBYTE}.get(size[-1], 1)
    return caches


def _cpu_quotas(root: Path) -> list[float]:
    """How many cores' time the control groups around this process grant, version 2 and 1."""
    folders = list(_control_groups("cpu", root))
    pairs = [_numbers(folder / "cpu.max") for folder in folders]
    pairs += [_numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us") for folder in folders]
    return [pair[0] / pair[1] for pair in pairs if len(pair) == 2 and min(pair) > 0]


def _memory_limits(root: Path) -> Iterable[int]:
    """How much memory the control groups around this process grant."""
    files = (folder / name for folder in _control_groups("memory", root) for name in ("memory.max", "memory.limit_in_bytes"))
    return [limit for file in files for limit in _numbers(file) if limit > 0]


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders whose limits hold for this process: its own group's, and every one above it."""
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
