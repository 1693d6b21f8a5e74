"""Writes frames to a video file. Built on PyAV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..._files import DISK_FULL, cannot_write, checked_path
from ...errors import FileError, StreamError, first_line
from ..frame import Frame
from ..optional import pyav
from ..sink import AtomicFile
from ..stage import Result
from ..stages.encode import Encoded, FrameEncoder, configure

FORMATS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska"}


class VideoSink:
    """A video of the frames, each at its own time; a frame that was set aside leaves a gap.

    Frames that the stage `Encode` encoded on the workers are only joined; others are encoded here.
    The file appears when the stream has ended well.
    """

    is_resumable = False

    def __init__(
        self, path: str | Path, *, rate: float | Fraction = 25, codec: str | None = None
    ) -> None:
        self.path = checked_path(path)
        self.name = self.path.name
        self.rate, self.codec = Fraction(rate).limit_denominator(100_000), codec
        if self.path.suffix.lower() not in FORMATS:
            raise FileError(f"{self.name} is no video's name; let it end in {', '.join(FORMATS)}.")
        if self.path.is_dir():
            raise FileError(f"{self.path} is a folder; give the video's file.")
        pyav()
        self._file: AtomicFile | None = None
        self._container: Any = None
        self._stream: Any = None
        self._encoder: FrameEncoder | None = None
        self._like: Encoded | None = None
        self._times: list[Fraction] = []  # of frames that the encoder holds
        self._latest: Fraction | None = None
        self.frames = 0

    def open(self, token: str | None) -> None:
        """Begin the file, beside its place."""
        self.abort()
        self._latest, self.frames, self._times = None, 0, []
        self._file = AtomicFile(self.path)

    def write(self, results: Sequence[Result]) -> str | None:
        """Append the frames of a group."""
        for result in results:
            if result.error is None:
                self._append(result.value)
        return None

    def close(self) -> None:
        """Finish the file and put it in its place."""
        if self._file is None:
            return
        if self._encoder is not None:
            self._mux(self._encoder.encode(None))
        if self._container is None:
            self.abort()
            raise StreamError(f"No frame came for {self.name}; there is no video to write.")
        with self._written():
            self._container.close()
        self._container = self._encoder = self._like = None
        file, self._file = self._file, None
        file.commit()

    def abort(self) -> None:
        """Leave no file behind."""
        container, self._container = self._container, None
        file, self._file = self._file, None
        self._encoder = self._like = None
        if container is not None:
            try:
                container.close()
            except pyav().FFmpegError:
                pass  # the rest of a file that is removed
        if file is not None:
            file.discard()

    def _append(self, frame: Any) -> None:
        if not isinstance(frame, Frame) or (frame.image is None and frame.packet is None):
            raise StreamError(
                f"{self.name} takes frames with an image; let the last stage return frames."
            )
        time = frame.time * frame.time_base
        if self._latest is not None and time <= self._latest:
            raise StreamError(
                f"A frame at {float(time):.3f} s comes after one at {float(self._latest):.3f} s; "
                "the times of a video's frames rise."
            )
        self._latest = time
        self._times.append(time)
        if frame.packet is not None:
            self._mux([frame.packet])
            return
        if self._encoder is None:
            self._encoder = FrameEncoder(frame, self.codec, rate=self.rate)
        self._mux(self._encoder.encode(frame))

    def _mux(self, packets: list[Encoded]) -> None:
        """Write packets; without B-frames each is that of the earliest frame that waits."""
        for encoded in packets:
            if self._container is None:
                self._begin(encoded)
            self._check_alike(encoded)
            packet = pyav().Packet(encoded.content)
            packet.time_base = encoded.time_base
            packet.pts = packet.dts = round(self._times.pop(0) / encoded.time_base)
            packet.is_keyframe = encoded.is_keyframe
            packet.stream = self._stream
            with self._written():
                self._container.mux(packet)
            self.frames += 1

    def _begin(self, first: Encoded) -> None:
        assert self._file is not None
        self._like = first
        with self._written():
            self._container = pyav().open(
                str(self._file.path),
                "w",
                format=FORMATS[self.path.suffix.lower()],
                options=_options(self.path, first.time_base),
            )
            self._stream = self._container.add_stream(first.codec, rate=self.rate)
            context = self._stream.codec_context
            configure(context, first.codec, first.width, first.height, first.time_base, self.rate)
            self._container.start_encoding()
        self._check_header(bytes(context.extradata or b""))

    def _check_header(self, header: bytes) -> None:
        if self._like is not None and header != self._like.extradata:
            self.abort()
            raise StreamError(
                f"Frames of {self.name} were encoded by another version or at another rate; give "
                "Encode and VideoSink the same rate, and the workers the same PyAV."
            )

    def _check_alike(self, encoded: Encoded) -> None:
        like = self._like
        if like is not None and (encoded.width, encoded.height) != (like.width, like.height):
            self.abort()
            raise StreamError(
                f"{self.name} has frames of {like.width}×{like.height} and of "
                f"{encoded.width}×{encoded.height}; resize them to one size before."
            )

    @contextmanager
    def _written(self) -> Iterator[None]:
        """An error of writing as a sentence, and no part of the file left."""
        try:
            yield
        except pyav().FFmpegError as error:
            self.abort()
            if error.errno in DISK_FULL:
                raise cannot_write(f"{self.name} into {self.path.parent}", error) from error
            raise FileError(f"Cannot write {self.name}: {first_line(error)}.") from error


def _options(path: Path, base: Fraction) -> dict[str, str]:
    """Those of the format, of which Matroska has none: its times are milliseconds."""
    is_matroska = FORMATS[path.suffix.lower()] == "matroska"
    return {} if is_matroska else {"video_track_timescale": str(base.denominator)}
