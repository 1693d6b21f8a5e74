"""Choose a batch size: latency, throughput and memory by batch, and the knee."""

from __future__ import annotations

from .sweep import batch_size

__all__ = ["batch_size"]
