"""The frames of a video file. Only packets are read here; workers decode them. Built on PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..._files import checked_path, size_of
from ...errors import FileError, first_line
from ..frame import Frame, Pictures
from ..optional import pyav
from ..source import Group
from ..stages.decode import frames_of, turned

DECODED_BYTES = 256 << 20  # of the decoded frames of a group, which a worker holds at a time
MICROSECONDS = 1_000_000
MOST_FRAMES = 32  # of a group
LONGEST = 600  # frames of a group of pictures whose first ones are decoded for each of its parts
WHOLE = {"mjpeg", "prores"}  # codecs whose frames refer to no others
REFRESHED = {"h264", "hevc"}  # whose pictures may be refreshed in pieces, without whole keyframes
# codecs whose groups of pictures decode alone to what the file decodes to in turn
SPLIT = WHOLE | REFRESHED | {"vp8", "vp9", "av1", "mpeg1video", "mpeg2video", "gif"}

# how many frames a group has, and what it sends
Portion = tuple[int, Pictures | list[Frame]]


class Packet(NamedTuple):
    """An encoded frame: its content, and when it is shown."""

    content: bytes
    time: int
    is_keyframe: bool


class VideoFile:
    """A video file, split at its keyframes into groups that decode alone.

    With `encoded=False` frames are decoded here and sent as images; where a worker is another
    process that is slower, as a frame in 4K has 25 MB. So are those of a file that cannot be split.
    `notes` has what was found on the way.
    """

    can_reopen = True

    def __init__(
        self, path: str | Path, *, encoded: bool = True, group_frames: int | None = None
    ) -> None:
        self.path = checked_path(path)
        self.name = self.path.name
        self.notes: list[str] = []
        self._end_s = 0.0  # when the last frame read so far is shown
        with _opened(self.path) as (container, stream):
            context = stream.codec_context
            is_avi = container.format.name == "avi"  # its header counts empty frames, too
            self.frames: int | None = None if is_avi else stream.frames or None
            self.seconds = 0.0 if is_avi else (container.duration or 0) / MICROSECONDS
            self.codec = str(context.codec.name)
            self.extradata = bytes(context.extradata or b"")
            self.time_base = Fraction(stream.time_base)
            self.rate = Fraction(stream.average_rate or stream.guessed_rate or 30)
            first = _first_frame(container, self.name)
            self.rotation = int(first.rotation)
            self.width, self.height = first.width, first.height
            self.obstacle = self._obstacle(container, stream) if encoded else ""
        self.encoded = encoded and not self.obstacle
        if self.rotation % 180:
            self.width, self.height = self.height, self.width
        fitting = DECODED_BYTES // (3 * self.width * self.height)
        self.group_frames = group_frames or max(1, min(MOST_FRAMES, fitting))

    def __repr__(self) -> str:
        return f"VideoFile({self.name}: {self.width}×{self.height}, {self.codec})"

    def _obstacle(self, container: Any, stream: Any) -> str:
        """Why the file cannot be split, by its codec and its packets up to the next keyframe."""
        kind = str(stream.codec_context.codec.canonical_name or self.codec)
        if kind not in SPLIT:
            return f"its codec is {kind}"
        if container.format.name == "avi" and kind not in WHOLE:
            return "AVI does not say when frames are shown"
        packets = (packet for packet in self._until_damage(container.demux(stream)) if packet.size)
        for packet in islice(packets, LONGEST):
            if packet.pts is None and kind not in WHOLE:
                return "it does not say when frames are shown"
            if packet.is_keyframe and kind in REFRESHED:
                return "" if self._is_whole(packet) else "its keyframes are not whole pictures"
        return ""

    def _is_whole(self, packet: Any) -> bool:
        """Whether a keyframe is a picture without any other frame."""
        time = (packet.pts,)
        alone = Pictures(self.codec, self.extradata, (bytes(packet),), time, time, self.time_base)
        try:
            frame = next(frames_of(alone), None)
        except pyav().FFmpegError:
            return False
        return frame is not None and frame.pict_type == pyav().video.frame.PictureType.I

    def groups(self, start: int = 0) -> Iterator[Group]:
        """The groups from number `start` on; those before are only read, not decoded."""
        self.notes.clear()
        self._end_s = 0.0
        if self.obstacle:
            self.notes.append(
                f"{self.name} is decoded in one place, not on workers: {self.obstacle}."
            )
        first = 0
        with _opened(self.path) as (container, stream):
            found = self._encoded(container, stream) if self.encoded else self._decoded(container)
            for sequence, (count, payload) in enumerate(found):
                if sequence >= start:
                    yield Group(sequence, first, count, payload)
                first += count
        if self.frames is not None and first < self.frames:
            self.notes.append(
                f"{self.name} declares {self.frames} frames and has {first}: it was cut short."
            )
        elif self.frames is None and self._end_s + 1 < self.seconds:
            self.notes.append(
                f"{self.name} declares {self.seconds:.1f} s, and its frames end at "
                f"{self._end_s:.1f} s: it was cut short."
            )

    def _decoded(self, container: Any) -> Iterator[Portion]:
        frames: list[Frame] = []
        for index, decoded in enumerate(self._until_damage(container.decode(video=0))):
            time, base = (
                (index, 1 / self.rate)
                if decoded.pts is None
                else (decoded.pts, Fraction(decoded.time_base))
            )
            image = turned(decoded.to_ndarray(format="rgb24"), self.rotation)
            frames.append(Frame(image, time, base))
            if len(frames) == self.group_frames:
                yield len(frames), frames
                frames = []
        if frames:
            yield len(frames), frames

    def _encoded(self, container: Any, stream: Any) -> Iterator[Portion]:
        before: list[Packet] = []
        waiting: list[Packet] = []  # of whole groups of pictures, until they are enough
        for pictures in self._pictures(container, stream):
            if not _is_closed(pictures):
                yield from self._parts([], waiting)
                yield from self._parts(before, pictures)
                waiting = []
            elif waiting and len(waiting) + len(pictures) > self.group_frames:
                yield from self._parts([], waiting)
                waiting = pictures
            else:
                waiting = [*waiting, *pictures]
            before = pictures
        yield from self._parts([], waiting)

    def _pictures(self, container: Any, stream: Any) -> Iterator[list[Packet]]:
        """Packets from a keyframe to the next whose frames are all shown after those before it."""
        pictures: list[Packet] = []
        latest = 0  # time shown in `pictures`, before the keyframe that may end it
        for packet in self._until_damage(container.demux(stream)):
            if not packet.size:
                continue  # marks the end
            time = packet.pts
            if time is None and stream.codec_context.codec.canonical_name in WHOLE:
                time = packet.dts
            if time is None:
                raise FileError(
                    f"{self.name} does not say when its frames are shown, so that its parts cannot "
                    "be put in order; read it with VideoFile(path, encoded=False)."
                )
            if packet.is_keyframe and pictures and time > latest:
                yield pictures
                pictures = []
            if len(pictures) == LONGEST:
                raise FileError(
                    f"{self.name} has no keyframe within {LONGEST} frames, so that workers cannot "
                    "decode its parts; read it with VideoFile(path, encoded=False)."
                )
            latest = max(time, latest) if pictures else time
            pictures.append(Packet(bytes(packet), time, packet.is_keyframe))
        if pictures:
            yield pictures

    def _parts(self, before: list[Packet], packets: list[Packet]) -> Iterator[Portion]:
        """Parts of `group_frames` frames at most, each with all packets that precede its own."""
        times = sorted({packet.time for packet in packets})
        for start in range(0, len(times), self.group_frames):
            shown = times[start : start + self.group_frames]
            end = 1 + max(index for index, packet in enumerate(packets) if packet.time in shown)
            sent = (*before, *packets[:end])
            yield (
                len(shown),
                Pictures(
                    codec=self.codec,
                    extradata=self.extradata,
                    packets=tuple(packet.content for packet in sent),
                    times=tuple(packet.time for packet in sent),
                    shown=tuple(shown),
                    time_base=self.time_base,
                    rotation=self.rotation,
                ),
            )

    def _until_damage(self, units: Iterator[Any]) -> Iterator[Any]:
        """What can be read before the file is damaged, which leaves a note."""
        try:
            for unit in units:
                if unit.pts is not None:
                    self._end_s = max(self._end_s, float(unit.pts * unit.time_base))
                yield unit
        except pyav().FFmpegError as error:
            self.notes.append(
                f"{self.name} is damaged and was read up to there: {first_line(error)}."
            )


def _is_closed(pictures: list[Packet]) -> bool:
    """Whether no frame is shown before the keyframe, as one that refers to another group is."""
    return all(packet.time >= pictures[0].time for packet in pictures)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """The file's container and its video stream; errors name the file and what is wrong."""
    av = pyav()
    try:
        if not size_of(path):
            raise FileError(f"{path.name} is empty; give a video file.")
        container = av.open(str(path))
    except av.FFmpegError as error:
        raise FileError(
            f"Cannot read {path.name} as a video: {error.strerror}; is it one, and complete?"
        ) from error
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or first_line(error)}.") from error
    with container:
        if not container.streams.video:
            kinds = sorted({stream.type for stream in container.streams})
            only = f", only {' and '.join(kinds)}" if kinds else ""
            raise FileError(f"{path.name} has no video{only}; give a file with pictures.")
        yield container, container.streams.video[0]


def _first_frame(container: Any, name: str) -> Any:
    """The first frame that can be decoded: it has the size and the rotation."""
    try:
        first = next(iter(container.decode(video=0)), None)
    except pyav().FFmpegError as error:
        raise FileError(f"No frame of {name} can be decoded: {error.strerror}.") from error
    if first is None:
        raise FileError(f"{name} has a video without frames; there is nothing to stream.")
    return first
