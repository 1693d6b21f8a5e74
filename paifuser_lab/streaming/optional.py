"""The packages of the extra `stream`: PyAV for video, PyArrow for Parquet."""

from __future__ import annotations

from typing import Any

from ..errors import MissingExtraError


def pyav() -> Any:
    """PyAV; raises if it is not installed."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", extra="stream", needed_for="Video") from error
    return av


def pyarrow() -> Any:
    """PyArrow with its Parquet reader; raises if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="stream", needed_for="Parquet") from error
    return pyarrow
