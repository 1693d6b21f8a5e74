"""Where frames come from.

video        a video file, whose packets workers decode
images       a folder of images, a column of a Parquet file; images made as by a camera
"""

from .images import GROUP, Camera, ImageFolder, ParquetImages
from .video import VideoFile

__all__ = ["GROUP", "Camera", "ImageFolder", "ParquetImages", "VideoFile"]
