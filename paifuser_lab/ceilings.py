"""What this machine reaches at best: square products and large copies, timed on the CPU and on CUDA devices. Stands on torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from .cores import threads
from .errors import MeasureError
from .records import Accelerator, Ceiling, Hardware

ENOUGH_S = 0.1  # a figure is the best of repetitions that take this long together
LONG_S = 0.015  # a product that takes this long is large enough; less, and a neighbour's time slice ends the growth too early
SIZES = (256, 512, 1024, 2048, 4096, 8192)
MEBIBYTE = 1 << 20

Clock = Callable[[Callable[[], object]], float]  # runs something once, gives the seconds it took
Build = Callable[[int, torch.device], Callable[[], object]]  # prepares a square product of a size


def is_disturbed(ceilings: tuple[Ceiling, ...]) -> bool:
    """More threads that reach less than one thread were waiting for a neighbour: that is no ceiling."""
    return any(one.fp32_gflops < ceilings[0].fp32_gflops or one.bandwidth_gbs < ceilings[0].bandwidth_gbs for one in ceilings)


def cpu_ceiling(count: int, facts: Hardware) -> Ceiling:
    """What the CPU reaches with so many threads."""
    # A copy well past the last cache: eight times what one core sees of it, since servers have several.
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


def cuda_names(cuda: Any = torch.cuda) -> tuple[str, ...]:
    """The CUDA devices that torch sees, by name; none without CUDA."""
    return tuple(cuda.get_device_name(index) for index in range(cuda.device_count())) if cuda.is_available() else ()


def cuda_accelerators(names: tuple[str, ...], cuda: Any = torch.cuda) -> tuple[tuple[Accelerator, ...], str]:
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
