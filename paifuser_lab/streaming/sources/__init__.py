"""Where frames come from.

video        a video file, whose packets workers decode
images       a folder of images; images made as by a camera
parquet      a column of encoded images
"""

from __future__ import annotations

from .images import Camera, ImageFolder
from .parquet import ParquetImages
from .video import VideoFile

__all__ = ["Camera", "ImageFolder", "ParquetImages", "VideoFile"]
