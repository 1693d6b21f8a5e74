"""The commands of `python -m benchmarks`, a file for each group."""

from .documents import bench

__all__ = ["bench"]
