"""The bands of the house, and the rooms in each."""

from __future__ import annotations

# From the top down: a room imports none of a higher band.
BANDS = {
    "face": ("cli", "__init__", "widgets", "views", "bench"),
    "loop": ("session", "jobs", "planner", "variant", "steps"),
    "techniques": (
        "profiler", "saliency", "quantization", "pruning", "fusion", "attention", "memory",
        "training", "accelerate", "kernels", "engines", "zoo",
    ),
    "runtimes": ("streaming", "parallel", "deployment", "converter"),
    "ground": (
        "measure", "workload", "model", "records", "machine", "importer", "_files", "arguments",
        "errors", "progress",
    ),
}  # fmt: skip
BAND_OF = {room: band for band, rooms in BANDS.items() for room in rooms}
BELOW = {
    "face": set(BANDS),
    "loop": set(BANDS) - {"face"},
    "techniques": {"techniques", "runtimes", "ground"},
    "runtimes": set(BANDS) - {"face"},  # they run what the loop makes, and it saves by them
    "ground": {"ground"},
}
