"""The allocator's settings, named and meant as torch documents PYTORCH_CUDA_ALLOC_CONF.

max_split_size_mb           blocks of at least this size are not split
roundup_power2_divisions    requests are rounded up to a division between powers of two
garbage_collection_threshold
                            past this share of the limit, old free segments are given back
                            before more is taken from the device
expandable_segments         one segment a stream and pool, which grows and shrinks by pages

Not simulated: divisions that differ by size, large_segment_size_mb, max_non_split_rounding_mb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
SMALLEST_BYTES = 512  # torch rounds each request to a multiple of this
SMALL_REQUEST_BYTES = MIB  # requests up to this size come from small segments
SMALL_SEGMENT_BYTES = 2 * MIB
# of a request between 1 and 10 MB, and the page of large expandable segments; a block that is not
# split serves requests that are smaller by less than this
LARGE_SEGMENT_BYTES = 20 * MIB
WHOLE_SEGMENT_FROM_BYTES = 10 * MIB  # larger requests get a segment of their own size
ROUNDED_SEGMENT_BYTES = 2 * MIB


@dataclass(frozen=True)
class Settings:
    """Settings of the simulated allocator; the defaults are torch's."""

    max_split_size_mb: int | None = None
    expandable_segments: bool = False
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: int = 0

    @classmethod
    def of_snapshot(cls, recorded: Mapping[str, Any]) -> Settings:
        """The settings that a snapshot was recorded under; defaults where it has none."""
        megabytes = int(_number(recorded.get("max_split_size"), -1)) // MIB
        threshold = _number(recorded.get("garbage_collection_threshold"), 0.0)
        return cls(
            max_split_size_mb=megabytes if 20 <= megabytes < 1 << 40 else None,
            expandable_segments=bool(recorded.get("expandable_segments", False)),
            garbage_collection_threshold=threshold if 0 <= threshold < 1 else 0.0,
            roundup_power2_divisions=_divisions(recorded.get("roundup_power2_divisions")),
        )

    def rounded(self, size: int) -> int:
        """The size that a request is rounded up to."""
        size = max(size, 1)
        divisions = self.roundup_power2_divisions
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
            return LARGE_SEGMENT_BYTES
        return -(-size // ROUNDED_SEGMENT_BYTES) * ROUNDED_SEGMENT_BYTES

    @property
    def max_split_bytes(self) -> int | None:
        """The size from which blocks are not split."""
        return None if self.max_split_size_mb is None else self.max_split_size_mb * MIB

    def __str__(self) -> str:
        """As PYTORCH_CUDA_ALLOC_CONF takes them."""
        parts = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size_mb is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size_mb}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        if self.roundup_power2_divisions > 1:
            parts.append(f"roundup_power2_divisions:{self.roundup_power2_divisions}")
        return ",".join(parts) or "default"


def _number(value: Any, otherwise: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1 << 63 else otherwise


def _divisions(recorded: Any) -> int:
    """The divisions of a snapshot, which names them by the class of sizes, if all are the same."""
    counts = list(recorded.values()) if isinstance(recorded, dict) else []
    count = counts[0] if counts and all(other == counts[0] for other in counts) else 0
    is_number = isinstance(count, int) and 1 < count < 1 << 32 and not count & (count - 1)
    return int(count) if is_number else 0
