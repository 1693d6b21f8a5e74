"""Traces of torch's profiler: write them with layer names, and summarise any saved one."""

from .reading import read_trace
from .writing import trace

__all__ = ["read_trace", "trace"]
