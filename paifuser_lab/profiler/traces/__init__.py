"""Traces of torch's profiler: written with layer names on them, and any saved one read back as a
stream and summed up.
"""

from __future__ import annotations

from .reading import read_trace
from .writing import trace

__all__ = ["read_trace", "trace"]
