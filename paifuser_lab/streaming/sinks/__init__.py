"""Where answers go.

video        a video of the frames
parquet      a table of the answers
"""

from __future__ import annotations

from .parquet import ParquetSink
from .video import VideoSink

__all__ = ["ParquetSink", "VideoSink"]
