"""Where a loop's time goes beside its model: data, waiting for a device, exchanging gradients."""

from __future__ import annotations

from ...records import Check
from .findings import Findings
from .judge import LOOP_WANTED, judged, percent, unmeasurable
from .spans import Span, without
from .trace import BACKWARD, BATCH, COMPILED, MODEL, STEP, Trace

MOST_DATA = 0.10
MOST_BESIDE = 0.25
MOST_WAITS = 1.5  # one a step, and those of an epoch's beginning
MOST_EXCHANGE = 0.20
HOST_READS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero")
DEVICE_WAITS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "hipStreamSynchronize",
)
COLLECTIVES = ("gloo:", "nccl:", "c10d::")


def check_data_loading(found: Findings) -> Check:
    """The share of the loop that waits for batches."""
    name, trace = "data loading", found.seen.trace
    if not found.is_loop:
        return unmeasurable(name, f"a workload loads no data; {LOOP_WANTED}")
    batches = trace.named(BATCH)
    if not batches:
        return unmeasurable(
            name,
            "no DataLoader ran; batches from a list or a generator cannot be distinguished from "
            "the rest of the loop",
        )
    has_workers = bool(trace.named(f"{BATCH}_MultiProcessing"))
    share = _share(trace.ms(without(batches, _workers_start(trace))), _running_ms(trace))
    workers = (
        "the workers do not keep up: raise num_workers or prefetch_factor, or compute costly parts "
        "of the data once and keep them"
    )
    alone = (
        "batches are made in the loop's own process: DataLoader(…, num_workers=2, "
        "persistent_workers=True) makes them beside it"
    )
    pinned = "; with pin_memory=True copies to the GPU overlap" if found.seen.is_on_device else ""
    figure = f"{percent(share)} of the loop waits for the DataLoader"
    return judged(name, share, MOST_DATA, figure, (workers if has_workers else alone) + pinned)


def check_beside_the_model(found: Findings) -> Check:
    """End to end against the model alone."""
    name, trace = "beside the model", found.seen.trace
    if not found.is_loop:
        return unmeasurable(name, f"a workload is its model alone; {LOOP_WANTED}")
    model = model_time(trace)
    if not model:
        return unmeasurable(name, "no model, backward pass or optimizer ran in this thread")
    wall, inside = _running_ms(trace), trace.ms(model)
    share = _share(wall - inside, wall)
    figure = (
        f"{wall:.3g} ms end to end, {inside:.3g} ms of it in models, backward passes and "
        f"optimizers: {percent(share)} lies beside them"
    )
    return judged(name, share, MOST_BESIDE, figure, _parts_beside(trace, model))


def check_host_waits(found: Findings) -> Check:
    """How often the host waits for the device to read a value."""
    name, trace, steps = "host synchronisations", found.seen.trace, found.seen.steps
    if not steps:
        return unmeasurable(
            name, "no step was seen: neither an optimizer nor a model ran in this thread"
        )
    apart = (BATCH, STEP)  # what these read lies on the host anyway
    is_on_device = found.seen.is_on_device
    count = (
        trace.count(*DEVICE_WAITS) if is_on_device else trace.count(*HOST_READS, apart_from=apart)
    )
    each = count / steps
    if is_on_device:
        remedy = (
            "keep losses and metrics on the GPU and read them every hundred steps: each .item(), "
            ".cpu(), nonzero and `if tensor:` waits"
        )
        return judged(
            name, each, MOST_WAITS, f"the host waits for the GPU {each:.3g} times a step", remedy
        )
    figure = f"{each:.3g} a step (.item(), nonzero, `if tensor:`)"
    if each > MOST_WAITS:
        return unmeasurable(
            name, f"{figure}: next to free on a CPU; on a GPU each would make the host wait"
        )
    return judged(name, each, MOST_WAITS, figure)


def check_gradient_exchange(found: Findings) -> Check:
    """The share of the loop in which processes exchange gradients and nothing else happens."""
    name, trace = "gradient synchronisation", found.seen.trace
    on_device = trace.kernels("nccl")
    exchange = on_device or trace.named(*COLLECTIVES)
    if not exchange:
        return unmeasurable(name, "one process: no collective of torch.distributed ran")
    computing = without(trace.kernels(), on_device) if on_device else trace.named("aten::")
    share = _share(trace.ms(without(exchange, computing)), trace.wall_ms)
    figure = (
        f"{percent(share)} of the loop exchanges tensors between processes while nothing is "
        "computed"
    )
    remedy = (
        "exchange less often (accumulate gradients under no_sync()), less (a communication hook "
        "such as PowerSGD or bf16) or in larger "
        "pieces (bucket_cap_mb)"
    )
    return judged(name, share, MOST_EXCHANGE, figure, remedy)


def model_time(trace: Trace) -> list[Span]:
    """The time in models, backward passes and optimizers, on the host or on the device; modules
    inside a data loader are data.
    """
    spans = without(trace.named(MODEL, BACKWARD, STEP, COMPILED), trace.named(BATCH))
    return [*spans, *trace.kernels()]


def _parts_beside(trace: Trace, model: list[Span]) -> str:
    """What lies beside the model, the largest part first, with what to do about it."""
    data = without(trace.named(BATCH), started := _workers_start(trace))
    operators = without(trace.named("aten::"), [*model, *data, *started])
    rest = without([trace.loop], [*model, *data, *operators, *started])
    parts = [
        (trace.ms(data), "for data (see data loading)"),
        (
            trace.ms(operators),
            "in torch operators outside any module (preparing batches, losses, metrics: fewer or "
            "larger ones)",
        ),
        (
            trace.ms(rest),
            "in plain Python, logging and files (do it less often, or beside the loop)",
        ),
    ]
    whole = _running_ms(trace)
    shares = [
        f"{percent(_share(ms, whole))} {what}"
        for ms, what in sorted(parts, reverse=True)
        if ms > 0.02 * whole
    ]
    return "of the loop, " + ", ".join(shares)


def _workers_start(trace: Trace) -> list[Span]:
    """The wait for the first batch of worker processes, most of it for the workers themselves: once
    a run, not once a step.
    """
    batches = sorted(trace.named(f"{BATCH}_MultiProcessing"))
    return batches[:1] if len(batches) > 1 else []


def _running_ms(trace: Trace) -> float:
    return trace.wall_ms - trace.ms(_workers_start(trace))


def _share(part: float, whole: float) -> float:
    return max(0.0, min(1.0, part / whole)) if whole > 0 else 0.0
