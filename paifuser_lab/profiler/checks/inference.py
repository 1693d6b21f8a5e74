"""Checks of inference: eval mode, no autograd graph, and the metric."""

from __future__ import annotations

from ...records import counted, readable_share
from .findings import LOOP_HINT, Findings, Judged, listed

MAX_DROP = 0.01


def check_eval_mode(findings: Findings) -> Judged | str:
    """No dropout or batch-norm is in training mode during inference."""
    training = findings.run.training
    if findings.is_loop and findings.run.is_training:
        return "the loop trains, which wants training mode"
    if findings.is_loop and not findings.run.calls:
        return "no model was called in this thread"
    kinds = listed([f"{layer} ({kind})" for layer, kind in training.items()])
    origin = (
        ""
        if findings.is_loop
        else "; measured in eval mode here, which the profiler sets and puts back"
    )
    if not training:
        return Judged(0, 0, "no dropout or batch-norm is in training mode")
    figure = (
        f"{counted(len(training), 'layer')} in training mode, where answers change from call to "
        f"call: {kinds}{origin}"
    )
    return Judged(len(training), 0, figure, "call model.eval() before inference")


def check_graph_in_inference(findings: Findings) -> Judged | str:
    """No autograd graph is built without a backward pass."""
    run = findings.run
    if not findings.is_loop:
        return f"a workload runs without gradients here; {LOOP_HINT}"
    if run.is_training:
        return "the loop trains, which wants gradients"
    if not run.calls:
        return "no model was called in this thread"
    figure = (
        f"{run.grown} of {counted(run.calls, 'call')} built a graph for gradients, and none was "
        "taken"
    )
    if not run.grown:
        figure = f"none of {counted(run.calls, 'call')} built a graph for gradients"
    return Judged(
        run.grown,
        0,
        figure,
        "run inference under torch.inference_mode(): less memory, less time",
    )


def check_accuracy(findings: Findings) -> Judged | str:
    """The metric has not dropped against the baseline's, relative to it."""
    work = findings.subject.work
    if work is None:
        return "a loop has no metric; hand in a workload that has one, or a variant"
    if work.metric is None or work.test is None:
        return (
            "the workload has no metric or no test data; give both: lab.Workload(…, test=…, "
            "metric=…)"
        )
    if findings.metrics is None:
        reason = "nothing to compare with; hand in a variant, or give baseline_metric=…"
        return "stopped before it was taken" if findings.is_interrupted else reason
    baseline, now = findings.metrics
    lost = work.metric_lost(baseline, now)
    drop = lost / abs(baseline) if baseline else lost
    figure = (
        f"{work.metric_name} {now:.4f} against {baseline:.4f}: {readable_share(abs(drop))} "
        f"{'less' if now < baseline else 'more'}"
    )
    figure = f"{work.metric_name} {now:.4f}, the same as before" if not drop else figure
    remedy = (
        "undo the last step, choose a wider format for the most sensitive layers, or train "
        "the variant a little"
    )
    return Judged(drop, MAX_DROP, figure, remedy)
