"""Runs the benchmark of kernels, from probes to the table, within a number of seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from ...errors import MeasureError, PaifuserError, keep_when_stopped, message_of
from ...kernels import errors_by_density
from ...kernels.nvrtc import nvrtc
from ...kernels.runners import Runner, runner_of
from ...machine.ceilings import cuda_accelerators, cuda_names
from ...machine.host import host_facts
from ...progress import progress
from ..runner import Words
from .cases import Case, Inputs, cases, error_of, exact, floor_bytes, named, unwritten
from .peers import Peer
from .preflight import emulated, probed
from .record import OURS, DensityError, KernelBench, KernelCase
from .timing import Run, calls_of, captured, event_clock, timed_in_turn

SECONDS = 420.0
ROUNDS = 15
# sizes of the attention whose error by density is measured; the dtype is one that the kernel takes
TOKENS, SIZE, TYPE = 1024, 64, torch.bfloat16
NO_TIME = "left out, no time was left; raise --seconds"
NO_GPU = (
    "There is no GPU that torch can use, so nothing can be timed; `--on cpu` checks the same "
    "kernels, at small shapes, against float64 in the emulator."
)


def bench(
    words: Words = None,
    *,
    on: Annotated[
        str, typer.Option(help="gpu, or cpu: small shapes in the emulator, nothing timed.")
    ] = "gpu",
    seconds: Annotated[float, typer.Option(help="Time for all of it.", min=1)] = SECONDS,
) -> KernelBench:
    """Check every CUDA kernel against float64, then time it against torch, as shares of the
    machine's ceilings.
    """
    if on not in ("gpu", "cpu"):
        raise MeasureError(f"Kernels run on gpu or cpu, not on {on!r}.")
    if on == "gpu" and not torch.cuda.is_available():
        raise MeasureError(NO_GPU)
    start = time.monotonic()
    chosen = named(cases(is_small=on == "cpu"), tuple(words or ()))
    torch.manual_seed(0)
    result = (
        _on_gpu(chosen, start + seconds, torch.device("cuda")) if on == "gpu" else _on_cpu(chosen)
    )
    return result.model_copy(update={"seconds": time.monotonic() - start})


def _on_cpu(chosen: Sequence[Case]) -> KernelBench:
    run, device = emulated(), torch.device("cpu")
    probes = probed("cpu")
    results, remarks = _each(chosen, lambda _, case: _checked(case, case.make(device), run))
    return KernelBench(
        machine=host_facts().label,
        ran_on="the emulator",
        torch_version=torch.__version__,
        compiler="g++",
        probes=probes,
        cases=results,
        densities=errors_on_synthetic_data(device),
        remarks=(*remarks, "Nothing was timed: the emulator cannot predict a GPU's time."),
    )


def _on_gpu(chosen: Sequence[Case], deadline: float, device: torch.device) -> KernelBench:
    properties: Any = torch.cuda.get_device_properties(device)
    accelerators, note = cuda_accelerators(cuda_names()[:1])
    run = runner_of(device)
    assert run is not None
    probes = probed("cuda")

    def measure(index: int, case: Case) -> KernelCase:
        share = (deadline - time.monotonic()) / (len(chosen) - index)
        result = _timed(case, device, run, properties.L2_cache_size, time.monotonic() + share)
        torch.cuda.empty_cache()
        return result

    with torch.no_grad():
        results, remarks = _each(chosen, measure)
        densities, more = _densities(device)
    return KernelBench(
        machine=host_facts().label,
        ran_on=str(properties.name),
        torch_version=torch.__version__,
        compiler=_compiler(),
        ceiling=accelerators[0].ceiling if accelerators else None,
        probes=probes,
        cases=results,
        densities=densities,
        remarks=(*remarks, *more, *([note] if note else [])),
    )


def _each(
    chosen: Sequence[Case], measure: Callable[[int, Case], KernelCase]
) -> tuple[tuple[KernelCase, ...], tuple[str, ...]]:
    """The result of every case; a failure is recorded, an interrupt ends all."""
    results: list[KernelCase] = []
    with progress("cases", len(chosen)) as shown, keep_when_stopped() as ending:
        for index, case in enumerate(chosen):
            shown.advance(doing=case.name)
            try:
                results.append(measure(index, case))
            except Exception as error:  # reported in its row
                failures = {OURS: message_of(error)}
                results.append(_blank(case, 0).model_copy(update={"failures": failures}))
    remark = "Interrupted: the results until then are shown."
    return tuple(results), (remark,) if ending.is_stopped else ()


def _densities(device: torch.device) -> tuple[tuple[DensityError, ...], tuple[str, ...]]:
    try:
        return errors_on_synthetic_data(device), ()
    except Exception as error:  # reported among the remarks
        return (), (f"The error by density is not known: {message_of(error)}",)


def _blank(case: Case, floor: int) -> KernelCase:
    return KernelCase(
        kernel=case.kernel.name, name=case.name, floor_bytes=floor, operations=case.operations
    )


def _compiler() -> str:
    try:
        return f"NVRTC {nvrtc().version}"
    except PaifuserError:
        return "no NVRTC"


def _checked(case: Case, inputs: Inputs, run: Runner, expected: Tensor | None = None) -> KernelCase:
    """Check our output against float64; without a fallback, so that failures are reported."""
    out = unwritten(case.kernel, inputs)
    blank = _blank(case, floor_bytes(inputs, out))
    try:
        run(case.kernel.plan(out, *inputs))
        reference = exact(case.kernel, inputs) if expected is None else expected
        error = error_of(out, reference, case.subject.allowed(inputs, reference))
        return blank.model_copy(update={"errors": {OURS: error}})
    # a declined input, the emulator's findings, CUDA's own errors: they are the result
    except Exception as problem:
        return blank.model_copy(update={"failures": {OURS: message_of(problem)}})


def _timed(
    case: Case, device: torch.device, run: Runner, cache_bytes: int, until: float
) -> KernelCase:
    """Ours and every peer that there is time for: checked against float64, then timed in turn."""
    sets = case.sets(device, cache_bytes)
    expected = exact(case.kernel, sets[0])
    allowed = case.subject.allowed(sets[0], expected)
    result = _checked(case, sets[0], run, expected)
    errors, failures = dict(result.errors), dict(result.failures)
    candidates: dict[str, tuple[Run, int]] = {}
    torch._dynamo.reset()
    rivals = sorted(case.subject.peers(), key=lambda peer: peer.seconds)
    for peer in rivals if OURS in failures else [_ours(case), *rivals]:
        if peer.seconds and time.monotonic() + peer.seconds > until:
            failures[peer.name] = NO_TIME
            continue
        try:
            function, prepared = peer.build(), [peer.prepare(inputs) for inputs in sets]
            output = function(*prepared[0])
            if not peer.is_aside:
                errors[peer.name] = error_of(output, expected, allowed)
            calls = calls_of([partial(function, *arguments) for arguments in prepared])
            candidates[peer.name] = captured(calls), len(calls)
        except Exception as error:  # what a peer cannot do is part of the result
            failures[peer.name] = message_of(error)
    us = timed_in_turn(candidates, event_clock, ROUNDS) if candidates else {}
    asides = tuple(peer.name for peer in rivals if peer.is_aside)
    return result.model_copy(
        update={"errors": errors, "failures": failures, "us": us, "asides": asides}
    )


def _ours(case: Case) -> Peer:
    return Peer(
        OURS, lambda: partial(_without_fallback, getattr(torch.ops.paifuser, case.kernel.name)), 0.0
    )


def _without_fallback(operator: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Call the operator; a fallback to torch is an error, since its time would be torch's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*runs in torch, not in its CUDA kernel")
        return operator(*inputs)


def errors_on_synthetic_data(device: torch.device) -> tuple[DensityError, ...]:
    """The error by density on two kinds of synthetic data."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3, 1, 4, TOKENS, SIZE, generator=generator)
    walk = noise.cumsum(3)
    data = {
        "similar neighbours (a random walk)": walk / walk.std(3, keepdim=True),
        "independent random numbers, the worst case": noise,
    }
    return tuple(
        DensityError(data=name, errors=errors_by_density(*tokens.to(device, TYPE)))
        for name, tokens in data.items()
    )
