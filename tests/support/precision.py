"""The step `precision` alone, and how far an output is from another."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import paifuser_lab as lab


def chosen(work: lab.Workload, **options: Any) -> lab.Variant:
    return lab.apply(work, lab.Recipe([{"precision": options}]))


def error(actual: Tensor, expected: Tensor) -> float:
    """The relative L2 error."""
    return float((actual - expected).detach().double().norm() / expected.detach().double().norm())
