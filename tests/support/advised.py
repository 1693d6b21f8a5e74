"""Profiles and coefficients of advice that a test can compute with by hand."""

from __future__ import annotations

from typing import Any

from paifuser_lab import Profile
from paifuser_lab.profiler.expected import KINDS, Calibration, Coefficients
from paifuser_lab.records import Ceiling, Hardware, LayerProfile, OperatorProfile

# an engine leaves a tenth of the calls and a fifth of the passes, pruning half of the products …
LEFT = {"entry": 0.0, "conversions": 0.0, "calls": 0.1, "passes": 0.2, "folded": 0.0, "fused": 0.0}


def plain_calibration(error: float = 0.0, **left: float) -> Calibration:
    """Coefficients in round numbers: what is not named stays as it is."""
    return Calibration(
        fitted_to="nothing",
        models=3,
        steps={
            name: Coefficients(
                left={term: (LEFT | left).get(term, 1.0) for term in kind.terms}, error=error
            )
            for name, kind in KINDS.items()
        },
    )


def row(layer: str, kind: str = "Conv2d", ms: float = 1.0, **facts: Any) -> LayerProfile:
    """A layer that takes some ms; what it is bound by is computing, at half of its roof, unless
    facts say otherwise.
    """
    usual = {
        "calls": 1,
        "self_ms": ms,
        "total_ms": ms,
        "share": ms / 10,
        "flops": int(ms * 5e7),
        "macs": int(ms * 25e6),
        "read_bytes": int(ms * 1e5),
        "written_bytes": int(ms * 1e5),
        "roof_ms": ms / 2,
        "verdict": "compute",
        "dtype": "float32",
        "output_shapes": ((1, 16, 8, 8),),
        "operators": (operator("convolution", ms),),
    }
    return LayerProfile(layer=layer, kind=kind, **(usual | facts))


def operator(name: str, ms: float, calls: int = 1, **facts: int) -> OperatorProfile:
    return OperatorProfile(name=name, calls=calls, ms=ms, **facts)


def profile(*rows: LayerProfile, **facts: Any) -> Profile:
    """A model with these layers, that takes 10 ms."""
    whole = row(
        "",
        "Model",
        0.0,
        total_ms=10.0,
        share=1.0,
        operators=(),
        verdict=None,
        flops=0,
        macs=0,
        roof_ms=0.0,
    )
    usual: dict[str, Any] = {
        "workload": "model",
        "machine": "a machine",
        "threads": 1,
        "vector_width": 16,
        "latency_ms": 10.0,
        "latency_spread_ms": (9.9, 10.1),
        "rounds_ms": (10.0,),
        "slowdown_while_profiling": 0.1,
        "watching_us": 1.0,
        "call_us": 1.0,
        "operator_us": 1.0,
        "layers": (*([] if rows and not rows[0].layer else [whole]), *rows),
        "ceiling": Ceiling(threads=1, fp32_gflops=100.0, bandwidth_gbs=10.0),
    }
    return Profile(**(usual | facts))


def normalised(**facts: Any) -> tuple[LayerProfile, LayerProfile]:
    norm = row("norm", "BatchNorm2d", verdict="memory", macs=0, reads_from=("conv",), **facts)
    return row("conv", ms=2.0), norm


def activation(**facts: Any) -> LayerProfile:
    relu = operator("relu", 1.0, flops=25_000, read_bytes=100_000, written_bytes=100_000)
    return row(
        "relu",
        "ReLU",
        verdict="memory",
        macs=0,
        flops=25_000,
        reads_from=("conv",),
        operators=(relu,),
        **facts,
    )


def paper(ceiling: Ceiling) -> Hardware:
    """A machine with these ceilings."""
    return Hardware(
        name="paper",
        source="measured",
        physical_cores=1,
        logical_cores=1,
        memory_bytes=1,
        ceilings=(ceiling,),
    )
