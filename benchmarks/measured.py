"""The records of a folder, the commands that write them with `--json docs/measured/NAME.json`,
and the rooms that they measure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paifuser_lab.bench.header import Header, header_of
from paifuser_lab.records import Record

# The file name of a record → its command, and the rooms that it measures.
SOURCES = {
    "models": ("paifuser-lab bench models --by-hand", "variant measure engines planner"),
    # of a processor with VNNI and bf16, but without AMX, by the same command
    "models-vnni": ("", "variant measure engines planner"),
    "advice": ("python -m benchmarks advice --fit", "profiler"),
    "search": ("python -m benchmarks search", "planner"),
    "fuse": ("python -m benchmarks fuse", "variant measure fusion attention engines"),
    "fuse_builds": ("python -m benchmarks fuse --builds", "fusion"),
    "profile": ("python -m benchmarks profile", "profiler"),
    "flops": ("python -m benchmarks profile --flops", "profiler"),
    "promises": ("python -m benchmarks experiment promises", "profiler variant measure"),
    "precision": (
        "python -m benchmarks precision",
        "quantization converter engines measure",
    ),
    "sums": ("python -m benchmarks experiment sums", "quantization converter engines"),
    "allocation": (
        "python -m benchmarks experiment allocation",
        "quantization planner/precision",
    ),
    "sensitivity": ("python -m benchmarks sensitivity resnet18-hard-digits", "saliency"),
    "hessian": ("python -m benchmarks sensitivity --peer pyhessian", "saliency"),
    "trust": ("paifuser-lab bench trust", "variant measure"),
    "widgets": ("python -m benchmarks widgets", "widgets session"),
    "prune": ("python -m benchmarks prune", "pruning"),
    "prune_peer": ("python -m benchmarks prune --peer torch-pruning", "pruning"),
    "compress": ("python -m benchmarks compress", "pruning training quantization"),
    "compress_segnet": (
        "python -m benchmarks compress segnet-streets --goals 0.18 --seeds 1",
        "pruning training quantization",
    ),
    "cut": ("python -m benchmarks experiment cut", "pruning"),
    "int4": ("python -m benchmarks experiment int4", "quantization training"),
    "attention": ("python -m benchmarks experiment attention", "attention"),
    "train": ("python -m benchmarks train", "accelerate"),
    "train-avx2": ("", "accelerate"),  # of a processor with AVX2 alone, by the same command
    "train-language": ("python -m benchmarks train smollm2-135m --seeds 1", "accelerate"),
    "detector": ("python -m benchmarks detector", "accelerate"),
    "language": (
        "python -m benchmarks language",
        "variant workload quantization converter",
    ),
    "language-2-threads": (
        "python -m benchmarks language 128 --threads 2 --seconds 240",
        "variant workload quantization converter",
    ),
    "language-1b": (
        "python -m benchmarks language 128 --model llama-1b --engines torch,replay,llama.cpp",
        "variant workload quantization converter",
    ),
    "formats": ("python -m benchmarks formats", "planner/training training"),
    "checkpoints": ("python -m benchmarks checkpoints", "planner/training training"),
    "parallel": ("python -m benchmarks parallel", "parallel"),
    "parallel_equal": ("python -m benchmarks parallel --equal", "parallel"),
    "parallel_kills": ("python -m benchmarks parallel --kills 40", "parallel"),
    "memory": ("python -m benchmarks memory", "memory/pools"),
    "memory_peak": ("python -m benchmarks memory-peak", "memory/predict"),
    "reuse": ("python -m benchmarks reuse", "memory"),
    "memory_snapshot": ("python -m benchmarks memory-snapshot", "memory"),
    "memory_replay": ("python -m benchmarks memory-replay FILES", "memory"),
    "export": ("python -m benchmarks export", "converter"),
    "faults": ("python -m benchmarks faults", "variant training planner streaming converter"),
    "fuzz": (
        "python -m benchmarks fuzz",
        "variant importer memory/snapshots profiler/traces records",
    ),
    "stream": ("python -m benchmarks stream", "streaming"),
    "stream_video": ("python -m benchmarks stream-video", "streaming"),
    "serve": ("python -m benchmarks serve", "streaming"),
}
COMMANDS = {name: command for name, (command, _) in SOURCES.items() if command}
ROOMS = {name: rooms.split() for name, (_, rooms) in SOURCES.items()}


class Records:
    """The records of a folder, by file name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str) -> Any:
        """The record in NAME.json; None if it is missing."""
        return Record.load(self.path(name)) if self.has(name) else None

    @property
    def names(self) -> set[str]:
        """The records that there are."""
        return {path.stem for path in self.folder.glob("*.json")}

    def has(self, name: str) -> bool:
        """Whether the folder has NAME.json."""
        return self.path(name).is_file()

    def header(self, name: str) -> Header | None:
        """Where NAME.json was measured; None where it is missing or from before headers."""
        return header_of(self.path(name)) if self.has(name) else None

    def processor(self, name: str) -> str:
        """The processor of NAME.json; as its data name the machine where it has no header."""
        header, data = self.header(name), self.get(name)
        if header is not None or data is None:
            return header.processor if header else ""
        compared = getattr(data, "comparisons", ())
        return str(compared[0].machine if compared else data.machine)

    def path(self, name: str) -> Path:
        """The file of NAME.json."""
        return self.folder / f"{name}.json"
