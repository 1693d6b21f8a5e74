"""The packages of the extra `stream`: PyAV for video, PyArrow for Parquet."""

from __future__ import annotations

from typing import Any

from ..errors import optional_module


def pyav() -> Any:
    """PyAV; raises if it is not installed."""
    return optional_module("av", extra="stream", needed_for="Video")


def pyarrow() -> Any:
    """PyArrow with its Parquet reader; raises if it is not installed."""
    optional_module("pyarrow.parquet", extra="stream", needed_for="Parquet")
    import pyarrow

    return pyarrow
