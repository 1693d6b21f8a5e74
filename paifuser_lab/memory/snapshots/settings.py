"""The allocator's settings, named and meant as torch documents PYTORCH_CUDA_ALLOC_CONF.

max_split_size_mb           blocks of at least this size are not split
max_non_split_rounding_mb   one of them serves requests that are smaller by less than this
roundup_power2_divisions    requests are rounded up to a division between powers of two
garbage_collection_threshold
                            past this share of the limit, old free segments are given back
                            before more is taken from the device
expandable_segments         one segment a stream and pool, which grows and shrinks by pages
large_segment_size_mb       the segment of a request between 1 and 10 MB, and the page of large
                            expandable segments
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...errors import FileError

MIB = 1 << 20
SMALLEST_BYTES = 512
SMALL_REQUEST_BYTES = MIB  # requests up to this size come from small segments
SMALL_SEGMENT_BYTES = 2 * MIB
WHOLE_SEGMENT_FROM_BYTES = 10 * MIB  # larger requests get a segment of their own size
ROUNDED_SEGMENT_BYTES = 2 * MIB
LARGE_MB, LEAST_LARGE_MB = 20, 11  # large_segment_size_mb: by default, and at the least
CLASSES = 16  # of sizes with divisions of their own: from 1 MB, a power of two each
MOST_TEXT = 10_000
# what a snapshot holds only in the text of the settings
IN_TEXT = re.compile(r"\b(large_segment_size_mb|max_non_split_rounding_mb)\s*:\s*(\d{1,6})\b")


@dataclass(frozen=True)
class Settings:
    """Settings of the simulated allocator; the defaults are torch's."""

    max_split_size_mb: int | None = None
    expandable_segments: bool = False
    garbage_collection_threshold: float = 0.0
    # a number for all sizes, or pairs of (size in MB, number) as torch has them: the first counts
    # for smaller sizes too, and sizes that are not named have none
    roundup_power2_divisions: int | tuple[tuple[int, int], ...] = 0
    large_segment_size_mb: int = LARGE_MB
    max_non_split_rounding_mb: int = LARGE_MB

    def __post_init__(self) -> None:
        large, rounding = self.large_segment_size_mb, self.max_non_split_rounding_mb
        for name, size, least in (
            ("large_segment_size_mb", large, LEAST_LARGE_MB),
            ("max_split_size_mb", self.max_split_size_mb, large),
            ("max_non_split_rounding_mb", None if rounding == LARGE_MB else rounding, large),
        ):
            if size is not None and size < least:
                raise FileError(f"{name} is {size}; torch takes only sizes from {least}.")
        if not 0 <= self.garbage_collection_threshold < 1:
            raise FileError(
                f"garbage_collection_threshold is {self.garbage_collection_threshold}; give a "
                "share between 0 and 1."
            )
        given = self.roundup_power2_divisions
        pairs = ((1, given),) if isinstance(given, int) else given
        for size, count in pairs:
            if size < 1 or size & (size - 1):
                raise FileError(f"The class of {size} MB is none; torch takes powers of two.")
            if count < 0 or count & (count - 1):
                raise FileError(
                    f"roundup_power2_divisions is {count}; torch takes only powers of two."
                )

    @classmethod
    def of_snapshot(cls, recorded: Mapping[str, Any]) -> Settings:
        """The settings that a snapshot was recorded under; defaults where it has none."""
        split = _number(recorded.get("max_split_size"), -1)
        threshold = _number(recorded.get("garbage_collection_threshold"), 0.0)
        divisions = recorded.get("roundup_power2_divisions")
        megabytes = int(split) // MIB
        text = recorded.get("PYTORCH_CUDA_ALLOC_CONF")
        named = IN_TEXT.findall(text[:MOST_TEXT]) if isinstance(text, str) else []
        sizes = {name: int(size) for name, size in named}
        large = max(sizes.get("large_segment_size_mb", LARGE_MB), LEAST_LARGE_MB)
        rounding = sizes.get("max_non_split_rounding_mb", LARGE_MB)
        return cls(
            max_split_size_mb=megabytes if large <= megabytes < 1 << 40 else None,
            expandable_segments=bool(recorded.get("expandable_segments", False)),
            garbage_collection_threshold=threshold if 0 <= threshold < 1 else 0.0,
            roundup_power2_divisions=_pairs(divisions) if isinstance(divisions, dict) else 0,
            large_segment_size_mb=large,
            max_non_split_rounding_mb=rounding if rounding >= large else LARGE_MB,
        )

    def rounded(self, size: int) -> int:
        """The size that a request is rounded up to."""
        size = max(size, 1)
        divisions = self.divisions[min(max(0, (size // MIB).bit_length() - 1), CLASSES - 1)]
        if divisions > 1 and size > SMALLEST_BYTES * divisions:
            lower = 1 << (size.bit_length() - 1)
            step = max(1, lower // divisions)
            return lower + -(-(size - lower) // step) * step
        return -(-size // SMALLEST_BYTES) * SMALLEST_BYTES

    def segment_bytes(self, size: int) -> int:
        """The size of the segment taken from the device for a rounded request."""
        if size <= SMALL_REQUEST_BYTES:
            return SMALL_SEGMENT_BYTES
        if size < WHOLE_SEGMENT_FROM_BYTES:
            return self.large_segment_bytes
        return -(-size // ROUNDED_SEGMENT_BYTES) * ROUNDED_SEGMENT_BYTES

    @property
    def max_split_bytes(self) -> int | None:
        """The size from which blocks are not split."""
        return None if self.max_split_size_mb is None else self.max_split_size_mb * MIB

    @property
    def large_segment_bytes(self) -> int:
        """The segment of a request between 1 and 10 MB, and the page of large expandable ones."""
        return self.large_segment_size_mb * MIB

    @property
    def most_unsplit_rest_bytes(self) -> int:
        """What a block that is not split may be larger than the request, at the most."""
        return self.max_non_split_rounding_mb * MIB

    @cached_property
    def divisions(self) -> tuple[int, ...]:
        """The divisions of each class of sizes: up to 2 MB, up to 4 MB, …, from 32 GB."""
        given = self.roundup_power2_divisions
        if isinstance(given, int):
            return (given,) * CLASSES
        counts = [0] * CLASSES
        for place, (size, count) in enumerate(given):
            last = min(size.bit_length(), CLASSES) - 1
            first = last if place else 0
            counts[first : last + 1] = [count] * (last + 1 - first)
        return tuple(counts)

    def __str__(self) -> str:
        """As PYTORCH_CUDA_ALLOC_CONF takes them."""
        parts = []
        if self.large_segment_size_mb != LARGE_MB:  # first: torch compares the others with it
            parts.append(f"large_segment_size_mb:{self.large_segment_size_mb}")
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size_mb is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size_mb}")
        if self.max_non_split_rounding_mb != LARGE_MB:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding_mb}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        given = self.roundup_power2_divisions
        if isinstance(given, int) and given > 1:
            parts.append(f"roundup_power2_divisions:{given}")
        elif not isinstance(given, int) and given:
            pairs = ",".join(f"{size}:{count}" for size, count in given)
            parts.append(f"roundup_power2_divisions:[{pairs}]")
        return ",".join(parts) or "default"


def _number(value: Any, otherwise: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1 << 63 else otherwise


def _pairs(divisions: dict[Any, Any]) -> tuple[tuple[int, int], ...] | int:
    """The divisions of a snapshot, which names the classes of sizes in MB by text, as pairs."""
    counts = [_count(divisions.get(str(1 << power))) for power in range(CLASSES)]
    first = next((power for power in range(CLASSES) if counts[power] != counts[0]), CLASSES) - 1
    if first == CLASSES - 1:
        return counts[0]
    named = (first, *(power for power in range(first + 1, CLASSES) if counts[power]))
    return tuple((1 << power, counts[power]) for power in named)


def _count(value: Any) -> int:
    """A number of divisions; 0 for what is none, and for 1, which does nothing."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 1 < value < 1 << 32 and not value & (value - 1) else 0
