"""The hardware of a machine and its measured ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .record import Record, TableRecord
from .text import counted, or_dash, readable_bytes

COLUMNS = ("fp32 GFLOP/s", "bf16 GFLOP/s", "fp16 GFLOP/s", "int8 GOP/s", "GB/s")  # of RATES
# What makes one processor faster than another of its name: words of `isa`, and how pages name them.
# Of a line the first that is there is named.
UNITS = (
    (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("neon", "NEON")),
    (("amx_tile", "AMX"),),
    (("avx512_vnni", "VNNI"), ("avx_vnni", "VNNI"), ("i8mm", "i8mm"), ("dotprod", "dotprod")),
    (("avx512_bf16", "bf16"), ("amx_bf16", "bf16"), ("bf16", "bf16")),
)
# the rate of each format, which torch may name in another way
RATE_OF = {"fp32": "fp32_gflops", "bf16": "bf16_gflops", "fp16": "fp16_gflops", "int8": "int8_gops"}
TORCH_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
RATES = (*RATE_OF.values(), "bandwidth_gbs")


def rate_field(form: str) -> str:
    """The field with the rate of a format or of torch's dtype; '' for one that has none."""
    return RATE_OF.get(TORCH_NAMES.get(form, form), "")


class Ceiling(Record):
    """The highest rates of a device with this number of threads; None if unsupported or not
    measured.

    `warnings` say why a rate may be too low.
    """

    threads: int
    fp32_gflops: float
    bf16_gflops: float | None = None
    fp16_gflops: float | None = None
    int8_gops: float | None = None
    bandwidth_gbs: float
    warnings: tuple[str, ...] = ()

    @property
    def rates(self) -> dict[str, float]:
        """The known rates of computing by format, in billions of operations a second."""
        return {name: rate for name in RATE_OF if (rate := self.rate(name))}

    def rate(self, form: str) -> float | None:
        """The rate of computing in a format or in torch's dtype; None if it is not known."""
        field = rate_field(form)
        return getattr(self, field) if field else None

    @property
    def caution(self) -> str:
        """A short warning for results based on these rates; empty if measured undisturbed."""
        return "measured on a busy machine, may be too low" if self.warnings else ""

    def raised(self, rates: Mapping[str, float | None]) -> Ceiling:
        """A copy with each of these rates that is higher than the known one."""
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


class Hardware(TableRecord):
    """A machine: instruction sets, cores, caches, and ceilings measured on it (or published, for a
    named device).

    Each ceiling is the best of the number of `measurements`, the last of which was at
    `measured_at`.
    """

    text_columns = ("ceilings, measured", "ceilings, published")

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
        """A copy with higher rates that the CPU reached with exactly this number of threads."""
        ceilings = tuple(
            row.raised(rates) if row.threads == threads else row for row in self.ceilings
        )
        return self.model_copy(update={"ceilings": ceilings})

    def ceiling(self, threads: int | None = None) -> Ceiling:
        """The CPU's ceilings at the measured number of threads nearest to `threads`."""
        count = threads or max(ceiling.threads for ceiling in self.ceilings)
        return min(self.ceilings, key=lambda ceiling: abs(ceiling.threads - count))

    @property
    def label(self) -> str:
        """The machine as other records name it: AMD EPYC · AVX-512 VNNI bf16 · 2 cores."""
        parts = [self.name, self.units, counted(self.physical_cores, "core")]
        return " · ".join(part for part in parts if part)

    @property
    def units(self) -> str:
        """The units of the processor that matter for speed; '' for a device from a datasheet."""
        if self.source == "published":
            return ""
        named = (next((name for word, name in line if word in self.isa), "") for line in UNITS)
        return " ".join(name for name in named if name)

    @property
    def title(self) -> str:
        facts = [self.name, counted(self.physical_cores, "core"), readable_bytes(self.memory_bytes)]
        return " · ".join([*facts, *([" ".join(self.isa)] if self.isa else [])])

    def table(self) -> list[dict[str, str]]:
        ceilings = [(counted(ceiling.threads, "thread"), ceiling) for ceiling in self.ceilings]
        ceilings += [(device.name, device.ceiling) for device in self.accelerators]
        rates = [(name, [getattr(ceiling, rate) for rate in RATES]) for name, ceiling in ceilings]
        return [
            {f"ceilings, {self.source}": name}
            | {
                column: or_dash(rate, "{:,.0f}")
                for column, rate in zip(COLUMNS, measured, strict=True)
            }
            for name, measured in rates
        ]

    @property
    def remarks(self) -> list[str]:
        warnings = [warning for ceiling in self.ceilings for warning in ceiling.warnings]
        return [*([self.note] if self.note else []), *dict.fromkeys(warnings)]

    def __repr__(self) -> str:
        return f"Hardware({self.label})"

    @property
    def target(self) -> Ceiling:
        """The ceilings of the device a model would run on: the first accelerator, else the CPU."""
        return self.accelerators[0].ceiling if self.accelerators else self.ceiling()
