"""Peak rates of this machine: square matrix products and large copies, timed on CPU and CUDA.

A rate measured while other processes used the cores carries warnings, see `contention`. Built on
torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import torch

from ..errors import MeasureError
from ..records import Accelerator, Ceiling, Hardware
from .contention import Timing, others_warnings, timing_warnings
from .host import core_use, threads

MIN_TOTAL_S = 0.1  # a rate is the best of repetitions that take this long together
# a product that takes this long is large enough; with less, another process's time slice would end
# the growth too early
LARGE_PRODUCT_S = 0.015
SIZES = (256, 512, 1024, 2048, 4096, 8192)
ROUNDS = 5  # of products compared
MEBIBYTE = 1 << 20


Clock = Callable[[Callable[[], object]], float]  # runs a call once and returns its seconds
Build = Callable[[int, torch.device], Callable[[], object]]  # prepares a product of a size


@cache
def product_speedup(dtype: torch.dtype) -> float:
    """How many times as fast as in fp32 this CPU multiplies small matrices in another format, with
    torch's threads: a few milliseconds instead of the seconds that ceilings take, and of torch as
    it is set up in this process. Below 1 the format is emulated.
    """
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        plain, other = (
            _product(kind)(SIZES[0], torch.device("cpu")) for kind in (torch.float32, dtype)
        )
        plain(), other()
        rounds = [(_wall_clock(plain), _wall_clock(other)) for _ in range(ROUNDS)]
    return min(plain_s for plain_s, _ in rounds) / max(1e-9, min(other_s for _, other_s in rounds))


class Rate(NamedTuple):
    """Billions of operations or bytes a second, and the timing it was computed from."""

    value: float
    timing: Timing


def cpu_ceiling(count: int, facts: Hardware) -> Ceiling:
    """The peak rates of the CPU with `count` threads."""
    # A copy well past the last-level cache: eight times the part that one core sees, since servers
    # have several.
    copy_bytes = min(
        max(128 * MEBIBYTE, 8 * facts.caches_bytes.get("L3", 0)),
        512 * MEBIBYTE,
        facts.memory_bytes // 8,
    )
    with threads(count):
        before = core_use()
        ceiling = _ceiling(torch.device("cpu"), _wall_clock, count=count, copy_bytes=copy_bytes)
        others = others_warnings(before, core_use())
    return ceiling.model_copy(update={"warnings": (*others, *ceiling.warnings)})


def _ceiling(device: torch.device, clock: Clock, *, count: int, copy_bytes: int) -> Ceiling:
    builds: dict[str, Build] = {
        "fp32_gflops": _product(torch.float32),
        "bf16_gflops": _product(torch.bfloat16),
        "fp16_gflops": _product(torch.float16),
        "int8_gops": _int8_product,
    }
    with torch.inference_mode(), torch.autocast(device.type, enabled=False), _true_fp32():
        rates = {name: _best_rate(build, device, clock) for name, build in builds.items()}
        if rates["fp32_gflops"] is None:
            raise MeasureError(
                f"torch cannot multiply fp32 matrices on {device}; is this torch built for it?"
            )
        source = torch.ones(copy_bytes // 4, dtype=torch.float32, device=device)
        target = torch.zeros_like(source)
        timing = _time(lambda: target.copy_(source), clock)
        rates["bandwidth_gbs"] = Rate(2 * source.nbytes / timing.fastest_s / 1e9, timing)
    known = {name: rate for name, rate in rates.items() if rate is not None}
    cores = count if device.type == "cpu" else None
    warnings = [
        text for name, rate in known.items() for text in timing_warnings(name, rate.timing, cores)
    ]
    values = {name: rate.value for name, rate in known.items()}
    return Ceiling.model_validate({"threads": count, **values, "warnings": warnings})


@contextmanager
def _true_fp32() -> Iterator[None]:
    """Compute fp32 without TF32 or bf16; set by backend, as get_float32_matmul_precision raises
    where the user did so.
    """
    mkldnn: Any = torch.backends.mkldnn
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, mkldnn.matmul)
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def _best_rate(build: Build, device: torch.device, clock: Clock) -> Rate | None:
    """The best rate over growing sizes until a product takes long; None if torch has no kernel."""
    best: Rate | None = None
    for size in SIZES:
        try:
            timing = _time(build(size, device), clock)
        # NotImplementedError and running out of memory are RuntimeErrors
        except (RuntimeError, AttributeError):
            break
        value = 2 * size**3 / timing.fastest_s / 1e9
        best = Rate(value, timing) if best is None or value > best.value else best
        if timing.fastest_s > LARGE_PRODUCT_S:
            break
    return best


def _time(run: Callable[[], object], clock: Clock) -> Timing:
    """Time several runs; other processes only slow a run down, so the fastest is the truest."""
    run()
    cpu, times = time.process_time(), [clock(run)]
    while len(times) < 3 or (sum(times) < MIN_TOTAL_S and len(times) < 20):
        times.append(clock(run))
    fastest = max(min(times), 1e-9)
    return Timing(fastest, max(median(times), fastest), sum(times), time.process_time() - cpu)


def _wall_clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _product(dtype: torch.dtype) -> Build:
    """The matrix product of a linear layer; with the weight transposed, emulated precisions are ten
    times slower.
    """

    def build(size: int, device: torch.device) -> Callable[[], object]:
        # Its own generator leaves the global random state unchanged.
        generator = torch.Generator(device).manual_seed(0)
        left, right = (
            torch.randn(size, size, generator=generator, device=device, dtype=torch.float32).to(
                dtype
            )
            for _ in range(2)
        )
        return lambda: torch.nn.functional.linear(left, right)

    return build


def _int8_product(size: int, device: torch.device) -> Callable[[], object]:
    """oneDNN's int8 product where available (on AVX2 sixty times as fast as torch._int_mm, which is
    a plain loop there), else torch._int_mm.
    """
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randint(0, 9, (size, size), generator=generator, device=device, dtype=torch.int8)
        for _ in range(2)
    )
    if device.type == "cpu":
        with suppress(RuntimeError, AttributeError):
            return _onednn_product(left.to(torch.uint8), right)
    return lambda: torch._int_mm(left, right.t())


def _onednn_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object]:
    """The operator that Inductor uses in int8 models; it runs once here to raise on a CPU without
    it.
    """
    onednn = torch.ops.onednn
    packed = onednn.qlinear_prepack(right, list(left.shape))
    scales, zeros = (
        torch.ones(len(right), dtype=torch.float32, device="cpu"),
        torch.zeros(len(right), dtype=torch.int64, device="cpu"),
    )

    def run() -> object:
        return onednn.qlinear_pointwise(
            left, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    run()
    return run


# CUDA devices. `cuda` is torch.cuda, or a test's stand-in.


def cuda_names(cuda: Any = torch.cuda) -> tuple[str, ...]:
    """The CUDA devices that torch sees, by name; none without CUDA."""
    return (
        tuple(cuda.get_device_name(index) for index in range(cuda.device_count()))
        if cuda.is_available()
        else ()
    )


def cuda_accelerators(
    names: tuple[str, ...], cuda: Any = torch.cuda
) -> tuple[tuple[Accelerator, ...], str]:
    """The devices, and a note on those that this torch cannot use; cards of one name are measured
    once.
    """
    measured: dict[str, Accelerator] = {}
    failures: dict[str, str] = {}
    for index, name in enumerate(names):
        if name in measured or name in failures:
            continue
        try:
            measured[name] = _accelerator(index, torch.device("cuda", index), cuda)
        except (MeasureError, RuntimeError) as error:
            failures[name] = f"{name} is left out: {str(error).partition(chr(10))[0]}"
    return tuple(measured[name] for name in names if name in measured), " ".join(failures.values())


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
        ceiling = _ceiling(
            device, clock, count=1, copy_bytes=min(512 * MEBIBYTE, facts.total_memory // 8)
        )
        cuda.empty_cache()
    return Accelerator(
        name=facts.name,
        kind="cuda",
        memory_bytes=facts.total_memory,
        compute_capability=(facts.major, facts.minor),
        multiprocessors=facts.multi_processor_count,
        ceiling=ceiling,
    )
