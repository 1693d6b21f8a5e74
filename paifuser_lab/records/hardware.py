"""What a machine can do."""

from __future__ import annotations

from typing import Literal

from .record import Record


class Ceiling(Record):
    """What a device reaches at best with so many threads; None where it cannot do it or it was not measured."""

    threads: int
    fp32_gflops: float
    bf16_gflops: float | None = None
    fp16_gflops: float | None = None
    int8_gops: float | None = None
    bandwidth_gbs: float


class Accelerator(Record):
    """A device beside the CPU."""

    name: str
    kind: Literal["cuda", "npu"]
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    ceiling: Ceiling


class Hardware(Record):
    """What a machine can do: instruction sets, cores, caches, and ceilings measured on it (or published, for a named device)."""

    name: str
    source: Literal["measured", "published"]
    isa: tuple[str, ...] = ()
    physical_cores: int
    logical_cores: int
    caches_bytes: dict[str, int] = {}
    memory_bytes: int
    ceilings: tuple[Ceiling, ...]
    accelerators: tuple[Accelerator, ...] = ()
    torch_version: str = ""
    note: str = ""

    def ceiling(self, threads: int | None = None) -> Ceiling:
        """The CPU's ceilings at a number of threads (the nearest that was measured), or at the most threads."""
        wanted = threads or max(one.threads for one in self.ceilings)
        return min(self.ceilings, key=lambda one: abs(one.threads - wanted))

    @property
    def label(self) -> str:
        """The machine as other records name it."""
        return f"{self.name} · {self.physical_cores} cores"

    @property
    def target(self) -> Ceiling:
        """The ceilings of the device a model would run on: the first accelerator, else the CPU."""
        return self.accelerators[0].ceiling if self.accelerators else self.ceiling()
