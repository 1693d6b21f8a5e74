"""The records that each block shows, and the kinds of all records."""

from __future__ import annotations

from importlib import import_module

from paifuser_lab.bench import models, trust  # noqa: F401

from ..__main__ import NAMES

for _name in NAMES:  # for the kinds of their records
    if _name != "pages":
        import_module(f"benchmarks.{_name.replace('-', '_')}")

# Blocks whose records have other names; the first is the block's own.
RECORDS_OF = {
    "summary": ("models", "fuse", "precision"),
    "train": ("train", "train-avx2", "train-language"),
    "models": ("models", "models-vnni"),
    "language": ("language", "language-2-threads", "language-1b"),
    "pipelines": ("parallel",),
    "links": ("parallel",),
    "equal": ("parallel_equal",),
    "kills": ("parallel_kills",),
    "builds": ("fuse_builds",),
    "segmentation": ("compress_segnet",),
    "targets": ("export",),
    "batching": ("stream",),
    "stream-video": ("stream_video",),
}
# Records that a block shows as well, or in place of its own.
ALSO_SHOWN = {"prune": ("prune_peer",)}


def records_of(block: str) -> tuple[str, ...]:
    """The records that a block is dated by, the first of them its own."""
    return RECORDS_OF.get(block, (block,))


def shown_of(block: str) -> tuple[str, ...]:
    """The records that a block shows."""
    return (*records_of(block), *ALSO_SHOWN.get(block, ()))
