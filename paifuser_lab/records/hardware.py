"""What a machine can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .record import Record

RATES = ("fp32_gflops", "bf16_gflops", "fp16_gflops", "int8_gops", "bandwidth_gbs")


class Ceiling(Record):
    """What a device reaches at best with so many threads; None where it cannot do it or it was not
    measured.

    `warnings` say why a rate may be lower than what the device reaches.
    """

    threads: int
    fp32_gflops: float
    bf16_gflops: float | None = None
    fp16_gflops: float | None = None
    int8_gops: float | None = None
    bandwidth_gbs: float
    warnings: tuple[str, ...] = ()

    @property
    def caution(self) -> str:
        """A short note for whatever rests on these rates; nothing where they were measured
        undisturbed.
        """
        return "measured on a busy machine, may be too low" if self.warnings else ""

    def raised(self, rates: Mapping[str, float | None]) -> Ceiling:
        """The same, with each of these rates that is higher in the place of the one that was
        known.
        """
        higher = {
            name: rate
            for name, rate in rates.items()
            if rate and rate > (getattr(self, name) or 0.0)
        }
        return self.model_copy(update=higher)


class Accelerator(Record):
    """A device beside the CPU."""

    name: str
    kind: Literal["cuda", "npu"]
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    ceiling: Ceiling


class Hardware(Record):
    """What a machine can do: instruction sets, cores, caches, and ceilings measured on it (or
    published, for a named device).

    Each ceiling is the best of so many `measurements`, the last of which was at `measured_at`.
    """

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
    measured_at: str = ""
    measurements: int = 1

    def raised(self, threads: int, rates: Mapping[str, float | None]) -> Hardware:
        """The same, with higher rates that the CPU reached with exactly so many threads."""
        ceilings = tuple(
            one.raised(rates) if one.threads == threads else one for one in self.ceilings
        )
        return self.model_copy(update={"ceilings": ceilings})

    def ceiling(self, threads: int | None = None) -> Ceiling:
        """The CPU's ceilings at a number of threads (the nearest that was measured), or at the most
        threads.
        """
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
