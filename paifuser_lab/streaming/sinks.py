"""Sinks that write a file: a video (PyAV), or a table of the answers (PyArrow)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from .._files import DISK_FULL, cannot_write, checked_path, replacing
from ..errors import FileError, StreamError, first_line
from .frame import Frame
from .optional import pyarrow, pyav
from .stage import FrameError, Result
from .stages.answer import as_json
from .stages.encode import Encoded, configure

FORMATS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska"}
ROWS = 1024  # of a row group


class _FileSink:
    """A file that appears when the stream has ended well."""

    is_resumable = False

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self.name = self.path.name
        self._part = Path()  # what is written to, beside its place
        self._place: AbstractContextManager[Path] | None = None

    def open(self, token: str | None) -> None:
        """Begin the file, beside its place."""
        self.abort()
        place = replacing(self.path)
        self._part = place.__enter__()
        self._place = place

    def close(self) -> None:
        """Finish the file and put it in its place."""
        if self._place is None:
            return
        self._finish()
        place, self._place = self._place, None
        place.__exit__(None, None, None)

    def abort(self) -> None:
        """Leave no file behind."""
        self._drop()
        place, self._place = self._place, None
        if place is not None:
            error = StreamError(f"{self.name} was not finished.")
            place.__exit__(StreamError, error, None)

    def _finish(self) -> None:
        """Write what is left."""
        raise NotImplementedError

    def _drop(self) -> None:
        """Let go of the file that is written, if there is one."""
        raise NotImplementedError


class VideoSink(_FileSink):
    """A video of what `Encode` has encoded, each frame at its time; one set aside leaves a gap."""

    def __init__(self, path: str | Path, *, rate: float | Fraction = 25) -> None:
        super().__init__(path)
        self.rate = Fraction(rate).limit_denominator(100_000)
        if self.path.suffix.lower() not in FORMATS:
            raise FileError(f"{self.name} is no video's name; let it end in {', '.join(FORMATS)}.")
        if self.path.is_dir():
            raise FileError(f"{self.path} is a folder; give the video's file.")
        pyav()
        self._container: Any = None
        self._stream: Any = None
        self._like: Encoded | None = None
        self._latest: Fraction | None = None
        self._error: FrameError | None = None  # of the last frame that was set aside

    def open(self, token: str | None) -> None:
        super().open(token)
        self._latest = self._error = None

    def write(self, results: Sequence[Result]) -> str | None:
        for result in results:
            if result.error is None:
                self._append(result.value)
            else:
                self._error = result.error
        return None

    def _finish(self) -> None:
        if self._container is None:
            self.abort()
            if self._error is not None:
                raise StreamError(
                    f"Every frame for {self.name} was set aside, the last by "
                    f"{str(self._error).rstrip('.')}; there is no video to write."
                )
            raise StreamError(f"No frame came for {self.name}; there is no video to write.")
        with self._written():
            self._container.close()
        self._container = self._like = None

    def _drop(self) -> None:
        container, self._container, self._like = self._container, None, None
        if container is not None:
            with suppress(pyav().FFmpegError):  # the rest of a file that is removed
                container.close()

    def _append(self, frame: Any) -> None:
        encoded: Encoded | None = frame.packet if isinstance(frame, Frame) else None
        if encoded is None:
            raise StreamError(f"{self.name} takes encoded frames; let Encode be the last stage.")
        time = frame.time * frame.time_base
        if self._latest is not None and time <= self._latest:
            raise StreamError(
                f"A frame at {float(time):.3f} s comes after one at {float(self._latest):.3f} s; "
                "the times of a video's frames rise."
            )
        self._latest = time
        if self._container is None:
            self._begin(encoded)
        self._check_alike(encoded)
        packet = pyav().Packet(encoded.content)
        packet.time_base = encoded.time_base
        packet.pts = packet.dts = round(time / encoded.time_base)
        packet.is_keyframe = encoded.is_keyframe
        packet.stream = self._stream
        with self._written():
            self._container.mux(packet)

    def _begin(self, first: Encoded) -> None:
        self._like = first
        with self._written():
            self._container = pyav().open(
                str(self._part),
                "w",
                format=FORMATS[self.path.suffix.lower()],
                options=_options(self.path, first.time_base),
            )
            self._stream = self._container.add_stream(first.codec, rate=self.rate)
            context = self._stream.codec_context
            configure(context, first.codec, first.width, first.height, first.time_base, self.rate)
            self._container.start_encoding()
        if bytes(context.extradata or b"") != first.extradata:
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


class ParquetSink(_FileSink):
    """A table of index, seconds, name, answer as JSON, latency and error.

    The answer of a value that is no frame is the value itself.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        pyarrow()
        self._writer: Any = None
        self._rows: list[dict[str, Any]] = []

    def open(self, token: str | None) -> None:
        super().open(token)
        arrow = pyarrow()
        with self._written():
            self._writer = arrow.parquet.ParquetWriter(self._part, _schema(arrow))

    def write(self, results: Sequence[Result]) -> str | None:
        """Append the rows of a group; they are written a row group at a time."""
        self._rows += [_row(result) for result in results]
        if len(self._rows) >= ROWS:
            self._flush()
        return None

    def _finish(self) -> None:
        self._flush()
        with self._written():
            self._writer.close()
        self._writer = None

    def _drop(self) -> None:
        writer, self._writer, self._rows = self._writer, None, []
        if writer is not None:
            with suppress(OSError):  # the rest of a file that is removed
                writer.close()

    def _flush(self) -> None:
        arrow = pyarrow()
        rows, self._rows = self._rows, []
        with self._written():
            self._writer.write_table(arrow.Table.from_pylist(rows, schema=_schema(arrow)))

    @contextmanager
    def _written(self) -> Iterator[None]:
        """An error of writing as a sentence, and no part of the file left."""
        try:
            yield
        except OSError as error:
            self.abort()
            raise cannot_write(f"{self.name} into {self.path.parent}", error) from error


def _schema(arrow: Any) -> Any:
    text = arrow.string()
    number = arrow.float64()
    columns = {"index": arrow.int64(), "seconds": number, "name": text, "answer": text}
    return arrow.schema({**columns, "latency_ms": number, "error": text})


def _row(result: Result) -> dict[str, Any]:
    frame = result.value if isinstance(result.value, Frame) else None
    value = result.value if frame is None else frame.answer
    try:
        answer = json.dumps(as_json(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StreamError(
            f"The answer to frame {result.index} cannot be written: {error}; let the last stage "
            "return numbers, texts, lists or dicts."
        ) from error
    return {
        "index": result.index,
        "seconds": None if frame is None else frame.seconds,
        "name": "" if frame is None else frame.name,
        "answer": answer,
        "latency_ms": result.latency_ms,
        "error": "" if result.error is None else str(result.error),
    }
