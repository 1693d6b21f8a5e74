"""Sums and concatenations in int8: what enters them is rounded too, so that a runtime computes them
on whole numbers.

sources.py    whose values an operator reads, and where they meet, seen in one run
planning.py   which values are rounded before they meet, and by whom
answers.py    a module whose answer is rounded
"""

from __future__ import annotations

from .plan import SumsPlan, plan_sums
from .rounded_output import round_answers, rounded_answers

__all__ = ["SumsPlan", "plan_sums", "round_answers", "rounded_answers"]
