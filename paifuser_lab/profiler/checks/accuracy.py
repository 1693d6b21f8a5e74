"""Whether the model still answers as well as it did."""

from __future__ import annotations

from ...records import Check
from .findings import Findings
from .judge import judged, percent, unmeasurable

MOST_DROP = 0.01


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
        "undo the last step, choose a wider number format for the most sensitive layers, or train "
        "the variant a little"
    )
    return judged(name, drop, MOST_DROP, figure, remedy)
