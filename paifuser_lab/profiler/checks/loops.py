"""Checks of a loop's time outside its model: data, waiting for a device, gradient exchange."""

from __future__ import annotations

from ...records.text import three_figures
from .findings import LOOP_HINT, Findings, Judged, percent
from .trace import BACKWARD, BATCH, COMPILED, MODEL, STEP, Span, Trace, without

MAX_DATA = 0.10
MAX_BESIDE = 0.25
MAX_WAITS = 1.5  # one a step, and some at the start of an epoch
MAX_EXCHANGE = 0.20
HOST_READS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero")
DEVICE_WAITS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "hipStreamSynchronize",
)
COLLECTIVES = ("gloo:", "nccl:", "c10d::")


def check_data_loading(findings: Findings) -> Judged | str:
    """The loop hardly waits for batches."""
    trace = findings.run.trace
    if not findings.is_loop:
        return f"a workload loads no data; {LOOP_HINT}"
    batches = trace.named(BATCH)
    if not batches:
        return (
            "no DataLoader ran; batches from a list or a generator cannot be distinguished from "
            "the rest of the loop"
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
    pinned = "; with pin_memory=True copies to the GPU overlap" if findings.run.is_on_device else ""
    figure = f"{percent(share)} of the loop waits for the DataLoader"
    return Judged(share, MAX_DATA, figure, (workers if has_workers else alone) + pinned)


def check_beside_the_model(findings: Findings) -> Judged | str:
    """The loop takes hardly longer than its model."""
    trace = findings.run.trace
    if not findings.is_loop:
        return f"a workload is its model alone; {LOOP_HINT}"
    model = model_time(trace)
    if not model:
        return "no model, backward pass or optimizer ran in this thread"
    wall, inside = _running_ms(trace), trace.ms(model)
    share = _share(wall - inside, wall)
    figure = (
        f"{three_figures(wall)} ms end to end, {three_figures(inside)} ms of it in models, "
        f"backward passes and optimizers: {percent(share)} lies beside them"
    )
    return Judged(share, MAX_BESIDE, figure, _parts_beside(trace, model))


def check_host_waits(findings: Findings) -> Judged | str:
    """The host rarely waits for the device to read a value."""
    trace, steps = findings.run.trace, findings.run.steps
    if not steps:
        return "no step was seen: neither an optimizer nor a model ran in this thread"
    if findings.run.is_on_device:
        each = trace.count(*DEVICE_WAITS) / steps
        remedy = (
            "keep losses and metrics on the GPU and read them every hundred steps: each .item(), "
            ".cpu(), nonzero and `if tensor:` waits"
        )
        figure = f"the host waits for the GPU {three_figures(each)} times a step"
        return Judged(each, MAX_WAITS, figure, remedy)
    # the loader and the optimizer read values that are on the host anyway
    each = trace.count(*HOST_READS, apart_from=(BATCH, STEP)) / steps
    figure = f"{three_figures(each)} a step (.item(), nonzero, `if tensor:`)"
    if each > MAX_WAITS:
        return f"{figure}: next to free on a CPU; on a GPU each would make the host wait"
    return Judged(each, MAX_WAITS, figure)


def check_gradient_exchange(findings: Findings) -> Judged | str:
    """The loop hardly waits for processes to exchange gradients."""
    trace = findings.run.trace
    on_device = trace.kernels("nccl")
    exchange = on_device or trace.named(*COLLECTIVES)
    if not exchange:
        return "one process: no collective of torch.distributed ran"
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
    return Judged(share, MAX_EXCHANGE, figure, remedy)


def model_time(trace: Trace) -> list[Span]:
    """The time in models, backward passes and optimizers; modules in a data loader are data."""
    spans = without(trace.named(MODEL, BACKWARD, STEP, COMPILED), trace.named(BATCH))
    return [*spans, *trace.kernels()]


def _parts_beside(trace: Trace, model: list[Span]) -> str:
    """The parts of the time outside the model, the largest first, each with advice."""
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
        f"{percent(_share(ms, whole))} {part}"
        for ms, part in sorted(parts, reverse=True)
        if ms > 0.02 * whole
    ]
    return "of the loop, " + ", ".join(shares)


def _workers_start(trace: Trace) -> list[Span]:
    """The wait for the first batch of worker processes, mostly for their start: once a run."""
    batches = sorted(trace.named(f"{BATCH}_MultiProcessing"))
    return batches[:1] if len(batches) > 1 else []


def _running_ms(trace: Trace) -> float:
    return trace.wall_ms - trace.ms(_workers_start(trace))


def _share(part: float, whole: float) -> float:
    return max(0.0, min(1.0, part / whole)) if whole > 0 else 0.0
