"""The bench of kernels, from probes to the table, within a number of seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...errors import MeasureError, PaifuserError, first_line
from ...kernels import errors_by_density
from ...kernels.nvrtc import nvrtc
from ...kernels.runners import Runner, runner_of
from ...machine.ceilings import cuda_accelerators, cuda_names
from ...machine.host import host_facts
from ...progress import progress
from .cases import Case, cases, floor_bytes
from .checking import Inputs, error_of, exact
from .checkout import emulated
from .peers import Peer
from .preflight import probed
from .record import OURS, DensityError, KernelBench, KernelCase
from .timing import Run, calls_of, captured, event_clock, sets_needed, timed_in_turn

SECONDS = 420.0
ROUNDS = 15
LEFT_OVER = 99  # in memory that integers are to fill
# Of the attention whose error by density is measured; the type is one that the kernel takes.
TOKENS, SIZE, TYPE = 1024, 64, torch.bfloat16
NO_TIME = "left out, no time was left; give more by --seconds"
NO_GPU = (
    "There is no GPU that torch can use, so that nothing can be timed; "
    "`--on cpu` holds the same kernels, at small shapes, to float64 in the emulator."
)


def bench(words: Sequence[str] = (), *, on: str = "gpu", seconds: float = SECONDS) -> KernelBench:
    """Probe, check, then time; `words` are parts of kernels' or cases' names."""
    if on not in ("gpu", "cpu"):
        raise MeasureError(f"Kernels run on gpu or cpu, not on {on!r}.")
    if on == "gpu" and not torch.cuda.is_available():
        raise MeasureError(NO_GPU)
    start = time.monotonic()
    chosen = _chosen(words, is_small=on == "cpu")
    torch.manual_seed(0)
    found = (
        _on_gpu(chosen, start + seconds, torch.device("cuda")) if on == "gpu" else _on_cpu(chosen)
    )
    return found.model_copy(update={"seconds": time.monotonic() - start})


def _chosen(words: Sequence[str], *, is_small: bool) -> tuple[Case, ...]:
    known = cases(is_small=is_small)
    found = tuple(
        case
        for case in known
        if not words or any(word in f"{case.kernel.name} {case.name}" for word in words)
    )
    if not found:
        raise MeasureError(
            f"No case is called {' or '.join(words)}; there are "
            f"{', '.join(case.name for case in known)}."
        )
    return found


def _on_cpu(chosen: Sequence[Case]) -> KernelBench:
    run, device = emulated(), torch.device("cpu")
    probes = probed("cpu")
    found, remarks = _each(chosen, lambda _, case: _checked(case, case.make(device), run))
    return KernelBench(
        machine=host_facts().label,
        ran_on="the emulator",
        torch_version=torch.__version__,
        compiler="g++",
        probes=probes,
        cases=found,
        densities=errors_on_made_up_data(device),
        remarks=(*remarks, "Nothing was timed: the emulator says nothing about a GPU's time."),
    )


def _on_gpu(chosen: Sequence[Case], deadline: float, device: torch.device) -> KernelBench:
    properties: Any = torch.cuda.get_device_properties(device)
    accelerators, note = cuda_accelerators(cuda_names()[:1])
    run = runner_of(device)
    assert run is not None
    probes = probed("cuda")

    def look(index: int, case: Case) -> KernelCase:
        share = (deadline - time.monotonic()) / (len(chosen) - index)
        found = _timed(case, device, run, properties.L2_cache_size, time.monotonic() + share)
        torch.cuda.empty_cache()
        return found

    with torch.no_grad():
        found, remarks = _each(chosen, look)
        densities, more = _densities(device)
    return KernelBench(
        machine=host_facts().label,
        ran_on=str(properties.name),
        torch_version=torch.__version__,
        compiler=_compiler(),
        ceiling=accelerators[0].ceiling if accelerators else None,
        probes=probes,
        cases=found,
        densities=densities,
        remarks=(*remarks, *more, *([note] if note else [])),
    )


def _each(
    chosen: Sequence[Case], look: Callable[[int, Case], KernelCase]
) -> tuple[tuple[KernelCase, ...], tuple[str, ...]]:
    """What every case found. One that fails as a whole (on a GPU that another left broken, say)
    ends alone; an interrupt ends all.
    """
    found: list[KernelCase] = []
    with progress("cases", len(chosen)) as shown:
        for index, case in enumerate(chosen):
            shown.advance(doing=case.name)
            try:
                found.append(look(index, case))
            except KeyboardInterrupt:
                return tuple(found), ("Interrupted: what was complete until then is shown.",)
            except Exception as error:  # said in its row
                found.append(_blank(case, 0).model_copy(update={"failures": {OURS: _said(error)}}))
    return tuple(found), ()


def _densities(device: torch.device) -> tuple[tuple[DensityError, ...], tuple[str, ...]]:
    try:
        return errors_on_made_up_data(device), ()
    except Exception as error:  # said among the remarks
        return (), (f"The error by density is not known: {_said(error)}",)


def _said(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, PaifuserError)
        else f"{type(error).__name__}: {first_line(error)}"
    )


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
    """Our answer against float64; without a fallback, so that what does not run is said."""
    out = case.kernel.empty(*inputs)
    out.fill_(float("nan") if out.is_floating_point() else LEFT_OVER)
    blank = _blank(case, floor_bytes(inputs, out))
    try:
        run(case.kernel.plan(out, *inputs))
        wanted = exact(case.kernel, inputs) if expected is None else expected
        return blank.model_copy(
            update={"errors": {OURS: error_of(out, wanted, case.allowed(inputs, wanted))}}
        )
    except (
        Exception
    ) as error:  # a reason of ours, the emulator's findings, CUDA's own errors: they are the result
        return blank.model_copy(update={"failures": {OURS: _said(error)}})


def _timed(
    case: Case, device: torch.device, run: Runner, cache_bytes: int, until: float
) -> KernelCase:
    """Ours and every peer that there is time for: first against float64, then in turn."""
    inputs = case.make(device)
    expected = exact(case.kernel, inputs)
    found = _checked(case, inputs, run, expected)
    sets = [inputs] + [
        case.make(device) for _ in range(sets_needed(found.floor_bytes, cache_bytes) - 1)
    ]
    errors, failures = dict(found.errors), dict(found.failures)
    candidates: dict[str, tuple[Run, int]] = {}
    torch._dynamo.reset()
    rivals = sorted(case.peers(), key=lambda peer: peer.seconds)
    for peer in rivals if OURS in failures else [_ours(case), *rivals]:
        if peer.seconds and time.monotonic() + peer.seconds > until:
            failures[peer.name] = NO_TIME
            continue
        try:
            function, given = peer.build(), [peer.prepare(one) for one in sets]
            made = function(*given[0])
            if not peer.is_aside:
                errors[peer.name] = error_of(made, expected, case.allowed(inputs, expected))
            calls = calls_of([partial(function, *one) for one in given])
            candidates[peer.name] = captured(calls), len(calls)
        except Exception as error:  # what a peer cannot do is part of the answer
            failures[peer.name] = _said(error)
    us = timed_in_turn(candidates, event_clock, ROUNDS) if candidates else {}
    asides = tuple(peer.name for peer in rivals if peer.is_aside)
    return found.model_copy(
        update={"errors": errors, "failures": failures, "us": us, "asides": asides}
    )


def _ours(case: Case) -> Peer:
    return Peer(
        OURS, lambda: partial(_in_its_kernel, getattr(torch.ops.paifuser, case.kernel.name)), 0.0
    )


def _in_its_kernel(operator: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """The operator, whose fallback to torch would be a time of torch under our name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*runs in torch, not in its CUDA kernel")
        return operator(*inputs)


def errors_on_made_up_data(device: torch.device) -> tuple[DensityError, ...]:
    """Two kinds of made-up data; what a model's own heads lose is to be measured on them, by
    `errors_by_density`.
    """
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3, 1, 4, TOKENS, SIZE, generator=generator)
    walk = noise.cumsum(3)
    walk = walk / walk.std(3, keepdim=True)
    return (
        DensityError(
            data="neighbours alike (a random walk)",
            errors=errors_by_density(*walk.to(device, TYPE)),
        ),
        DensityError(
            data="independent random numbers, the worst case",
            errors=errors_by_density(*noise.to(device, TYPE)),
        ),
    )
