"""Checks of inference: eval mode, no graph for gradients, and a metric as good as before."""

from __future__ import annotations

from ...records import Check, counted
from .findings import Findings
from .judge import LOOP_WANTED, judged, listed, percent, unmeasurable

MOST_DROP = 0.01


def check_eval_mode(found: Findings) -> Check:
    """No dropout and no batch-norm in training mode where nothing is trained."""
    name, training = "eval mode", found.seen.training
    if found.is_loop and found.seen.is_training:
        return unmeasurable(name, "the loop trains, which wants training mode")
    if found.is_loop and not found.seen.calls:
        return unmeasurable(name, "no model was called in this thread")
    kinds = listed([f"{layer} ({kind})" for layer, kind in training.items()])
    handed = (
        ""
        if found.is_loop
        else "; measured in eval mode here, which the profiler sets and puts back"
    )
    if not training:
        return judged(name, 0, 0, "no dropout or batch-norm is in training mode")
    figure = (
        f"{counted(len(training), 'layer')} in training mode, where answers change from call to "
        f"call: {kinds}{handed}"
    )
    return judged(name, len(training), 0, figure, "call model.eval() before inference")


def check_graph_in_inference(found: Findings) -> Check:
    """No autograd graph is built whose gradients are never computed."""
    name, seen = "gradients in inference", found.seen
    if not found.is_loop:
        return unmeasurable(name, f"a workload runs without gradients here; {LOOP_WANTED}")
    if seen.is_training:
        return unmeasurable(name, "the loop trains, which wants gradients")
    if not seen.calls:
        return unmeasurable(name, "no model was called in this thread")
    figure = (
        f"{seen.grown} of {counted(seen.calls, 'call')} built a graph for gradients, and none was "
        "taken"
    )
    if not seen.grown:
        figure = f"none of {counted(seen.calls, 'call')} built a graph for gradients"
    return judged(
        name,
        seen.grown,
        0,
        figure,
        "run inference under torch.inference_mode(): less memory, less time",
    )


def check_accuracy(found: Findings) -> Check:
    """The metric against the baseline's, as a share of it."""
    name, work = "accuracy", found.subject.work
    if work is None:
        return unmeasurable(
            name, "a loop has no metric; hand in a workload that has one, or a variant"
        )
    if work.metric is None or work.test is None:
        return unmeasurable(
            name,
            "the workload has no metric or no test data; give both: lab.Workload(…, test=…, "
            "metric=…)",
        )
    if found.metrics is None:
        why = "nothing to compare with; hand in a variant, or give baseline_metric=…"
        return unmeasurable(name, "stopped before it was taken" if found.is_interrupted else why)
    baseline, now = found.metrics
    drop = (baseline - now) / abs(baseline) if baseline else baseline - now
    figure = (
        f"{work.metric_name} {now:.4f} against {baseline:.4f}: {percent(abs(drop))} "
        f"{'less' if drop > 0 else 'more'}"
    )
    figure = f"{work.metric_name} {now:.4f}, the same as before" if not drop else figure
    remedy = (
        "undo the last step, choose a wider format for the most sensitive layers, or train "
        "the variant a little"
    )
    return judged(name, drop, MOST_DROP, figure, remedy)
