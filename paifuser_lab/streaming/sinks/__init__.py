"""Where answers go.

video        a video of the frames
parquet      a table of the answers
atomic       a file that appears once it is complete
"""

from __future__ import annotations

from .parquet import ParquetSink
from .video import VideoSink

__all__ = ["ParquetSink", "VideoSink"]
