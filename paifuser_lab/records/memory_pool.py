"""What a memory pool holds and keeps, and how many page faults it spares a call."""

from __future__ import annotations

from pydantic import Field

from .record import AboutWorkload, TableRecord
from .text import counted, known, or_dash, readable_bytes, readable_share


class MemoryPoolUse(TableRecord):
    """A pool at one moment, in bytes; None where the allocator does not tell.

    `held_bytes` are given out to tensors, `kept_bytes` are free and stay for the next request.
    Counts of page faults and trims are over the time in which the pool was in force.
    """

    text_columns = ("memory",)

    name: str = ""
    device: str
    limit_bytes: int | None = None
    is_hard: bool = False
    is_in_force: bool = False
    held_bytes: int | None = None
    kept_bytes: int | None = None
    requested_bytes: int | None = None
    largest_free_bytes: int | None = None
    resident_bytes: int | None = None
    page_faults: int | None = None
    trims: int = 0

    @property
    def reserved_bytes(self) -> int | None:
        """What the pool has of the device: held and kept."""
        if self.held_bytes is None or self.kept_bytes is None:
            return None
        return self.held_bytes + self.kept_bytes

    @property
    def fragmentation(self) -> float | None:
        """The share of the free memory that is not in its largest block; 0 if nothing is free."""
        if self.largest_free_bytes is None or self.kept_bytes is None:
            return None
        return 1 - self.largest_free_bytes / self.kept_bytes if self.kept_bytes else 0.0

    @property
    def rounding(self) -> float | None:
        """The share of what is held that was not requested: blocks are rounded up."""
        if self.requested_bytes is None or self.held_bytes is None:
            return None
        return 1 - self.requested_bytes / self.held_bytes if self.held_bytes else 0.0

    @property
    def is_over_limit(self) -> bool:
        """Whether more is kept than the limit (on CUDA: held and kept)."""
        size = self.kept_bytes if self.device == "cpu" else self.reserved_bytes
        return self.limit_bytes is not None and size is not None and size > self.limit_bytes

    @property
    def title(self) -> str:
        name = f"memory pool '{self.name}'" if self.name else "memory pool"
        return f"{name} on {self.device} · {'in force' if self.is_in_force else 'not in force'}"

    @property
    def sentence(self) -> str:
        kind = "hard limit" if self.is_hard else "limit"
        limit = f"a {kind} of {readable_bytes(self.limit_bytes)}"
        against = "no limit" if self.limit_bytes is None else limit
        over = ", which is exceeded" if self.is_over_limit else ""
        kept = "an unknown amount" if self.kept_bytes is None else readable_bytes(self.kept_bytes)
        return f"Keeps {kept} for the next request, with {against}{over}."

    def table(self) -> list[dict[str, str]]:
        sizes = {
            "held": self.held_bytes,
            "kept": self.kept_bytes,
            "requested": self.requested_bytes,
            "largest free block": self.largest_free_bytes,
            "resident in the process": self.resident_bytes,
        }
        shares = {"fragmentation": self.fragmentation, "lost to rounding": self.rounding}
        figures = {name: readable_bytes(size) for name, size in sizes.items()}
        figures |= {name: readable_share(share) for name, share in shares.items()}
        figures["page faults"] = or_dash(self.page_faults, "{:,}")
        figures["trimmed"] = counted(self.trims, "time")
        return [{"memory": name, "now": figure} for name, figure in known(figures).items()]


COUNTS = ("page faults", "trimmed")  # over all of its calls; those of one call say more


class PoolCalls(TableRecord):
    """Page faults of a call with a memory pool and without it, and the pool after its calls."""

    text_columns = ("memory",)

    workload: AboutWorkload
    machine: str
    calls: int = Field(ge=1)
    faults_without: float | None = Field(default=None, ge=0)  # a call
    faults_with: float | None = Field(default=None, ge=0)  # a call
    use: MemoryPoolUse

    @property
    def title(self) -> str:
        kept = self.use.kept_bytes
        keeps = "" if kept is None else f" · {readable_bytes(kept)} kept for the next call"
        return f"{self.workload} on {self.machine} · {counted(self.calls, 'call')} in a pool{keeps}"

    @property
    def sentence(self) -> str:
        if self.faults_without is None or self.faults_with is None:
            return "This system does not count page faults."
        faults = f"{self.faults_without:,.0f} pages without the pool and {self.faults_with:,.0f}"
        worth = "the pool spares nothing, as no large buffer is given back"
        if self.faults_without - self.faults_with >= 1:
            worth = "the pool spares the rest"
        return f"A call faults in {faults} with it: {worth}."

    def table(self) -> list[dict[str, str]]:
        faults = {
            "page faults of a call without it": self.faults_without,
            "page faults of a call with it": self.faults_with,
        }
        figures = known({name: or_dash(count, "{:,.0f}") for name, count in faults.items()})
        rows = [{"memory": name, "now": figure} for name, figure in figures.items()]
        return rows + [row for row in self.use.table() if row["memory"] not in COUNTS]
