"""The performance checklist, check by check: `checklist` in run.py, and the registry CHECKS beside
it.

    watched once      watch.py (the loop), trace.py (operators), model_watch.py, gradient_watch.py,
    spans.py (time)
    found out         subject.py (a loop or a workload), findings.py (watched, timed, evaluated)
    judged            loops.py, gradients.py, modes.py, accuracy.py, settings.py, each a function of
    the findings; judge.py

A new check is one function and one line in CHECKS.
"""

from __future__ import annotations

from .run import CHECKS, checklist

__all__ = ["CHECKS", "checklist"]
