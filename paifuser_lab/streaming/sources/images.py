"""The images of a folder, and images made as by a camera."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..._files import check_size, checked_path, folder_exists
from ...errors import FileError, StreamError
from ..frame import Frame, Photos, frame_of
from ..source import Group, Items

SUFFIXES = (".jpg", ".jpeg", ".png")
MOST_BYTES = 64 << 20
"""Of one image's file."""


class ImageFolder:
    """The JPEG and PNG files of a folder, in the order of their names; workers decode them."""

    can_reopen = True

    def __init__(self, folder: str | Path, *, group: int = 8, rate: float = 25.0) -> None:
        self.folder = checked_path(folder)
        self.name = self.folder.name
        if not folder_exists(self.folder):
            raise FileError(f"There is no folder {self.folder}.")
        self.paths = sorted(
            path for path in self.folder.iterdir() if path.suffix.lower() in SUFFIXES
        )
        if not self.paths:
            raise FileError(f"{self.folder} has no image ({', '.join(SUFFIXES)}).")
        self.group, self.time_base = _checked_group(group), _base(rate)

    def __repr__(self) -> str:
        return f"ImageFolder({self.name}: {len(self.paths)} images)"

    @property
    def frames(self) -> int | None:
        """The number of images."""
        return len(self.paths)

    def groups(self, start: int = 0) -> Iterator[Group]:
        """The groups from number `start` on."""
        size = self.group
        for sequence in range(start, -(-len(self.paths) // size)):
            first = sequence * size
            paths = self.paths[first : first + size]
            photos = Photos(
                tuple(_content(path) for path in paths),
                tuple(path.name for path in paths),
                tuple(range(first, first + len(paths))),
                self.time_base,
            )
            yield Group(sequence, first, len(paths), photos.packed())


def _content(path: Path) -> bytes:
    try:
        check_size(path, limit_bytes=MOST_BYTES)
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from error


class Camera(Items):
    """Images that a function makes, `rate` a second, as a camera would; `look(index)` returns an
    image, or None at the end.

    A group is sent `delay_ms` after its first image, full or not. `is_paced=False` does not wait
    between images.
    """

    def __init__(
        self,
        look: Callable[[int], Any],
        *,
        rate: float = 25.0,
        group: int = 4,
        delay_ms: float | None = 40.0,
        is_paced: bool = True,
        name: str = "camera",
    ) -> None:
        self.look, self.rate, self.is_paced = look, rate, is_paced
        self.time_base = _base(rate)
        super().__init__(self._images, group=group, delay_ms=delay_ms, name=name)

    def _images(self) -> Iterator[Frame]:
        began, index = clock.monotonic(), 0
        while (image := self.look(index)) is not None:
            if self.is_paced:
                clock.sleep(max(0.0, began + index / self.rate - clock.monotonic()))
            yield frame_of(image).with_(time=index, time_base=self.time_base)
            index += 1


def _base(rate: float) -> Fraction:
    if not 0 < rate < float("inf"):
        raise StreamError(f"A rate of {rate} images a second is not possible; give more than 0.")
    return 1 / Fraction(rate).limit_denominator(100_000)


def _checked_group(count: int) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise StreamError(f"A group of {count!r} images is not possible; give 1 or more.")
    return count
