"""The results of `paifuser-lab bench kernels`."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import Ceiling, Record

OURS = "ours"
# a peer with a larger error computes something else; composed operations round several times
_MAX_PEER_ERROR = 30.0


class KernelProbe(Record):
    """A check that has to pass before any measurement counts."""

    name: str
    failure: str = ""


class KernelCase(Record):
    """One kernel at one shape. Errors are relative to the allowed error: above 1 is wrong."""

    kernel: str
    name: str
    floor_bytes: int  # each input read once, the output written once
    operations: int
    errors: dict[str, float] = {}
    us: dict[str, float] = {}  # microseconds per call, ours and each peer's
    # timed, but no rivals: they compute more, or are our kernel in another setting
    asides: tuple[str, ...] = ()
    failures: dict[str, str] = {}

    @property
    def best_peer(self) -> str:
        """The fastest peer that computes the same, or an empty string."""
        others = [
            name
            for name in self.us
            if name not in (OURS, *self.asides) and self.errors.get(name, 0.0) <= _MAX_PEER_ERROR
        ]
        return min(others, key=lambda name: self.us[name]) if others else ""

    def row(self, ceiling: Ceiling | None) -> dict[str, str]:
        """The case as a row of the table."""
        ours, best = self.us.get(OURS), self.best_peer
        error = self.errors.get(OURS)
        row = {
            "kernel": self.kernel,
            "case": self.name,
            "error / allowed": "–"
            if error is None
            else f"{error:.2f}" + (" WRONG" if not error <= 1 else ""),
        }
        if ceiling is None:
            return row
        rate, of = (ceiling.bf16_gflops or 0.0), ceiling.bandwidth_gbs
        return row | {
            "µs": f"{ours:.1f}" if ours else "–",
            "of bandwidth": f"{self.floor_bytes / ours / 1e3 / of:.0%}" if ours else "–",
            "of bf16 rate": f"{self.operations / ours / 1e3 / rate:.0%}" if ours and rate else "–",
            "best peer": f"{best} {self.us[best]:.1f}" if best else "–",
            "times as fast": f"{self.us[best] / ours:.2f} ×" if best and ours else "–",
        }

    def notes(self) -> Iterator[str]:
        """What failed, which peers compute something else, and the times of asides."""
        where = f"{self.kernel}, {self.name}"
        for name, why in self.failures.items():
            yield f"{where}: {name}: {why}"
        for name, error in self.errors.items():
            if name != OURS and not error <= _MAX_PEER_ERROR:
                yield f"{where}: {name} has {error:.0f} times the error that is allowed for ours"
        for name in self.asides:
            if name in self.us:
                yield f"{where}: {name} {self.us[name]:.1f} µs"


class DensityError(Record):
    """The relative error of attention to chosen blocks, against full attention, by density."""

    data: str
    errors: dict[float, float]

    def __str__(self) -> str:
        each = ", ".join(f"{error:.2f} at {density:.0%}" for density, error in self.errors.items())
        return f"Error of attention to chosen blocks by density, {self.data}: {each}."


class KernelBench(Record):
    """Probes, errors and times of every kernel on one machine."""

    machine: str
    ran_on: str  # the GPU, or the emulator
    torch_version: str
    compiler: str
    ceiling: Ceiling | None = None
    probes: tuple[KernelProbe, ...] = ()
    cases: tuple[KernelCase, ...] = ()
    densities: tuple[DensityError, ...] = ()
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"CUDA kernels on {self.ran_on}, torch {self.torch_version}, {self.compiler}"

    def table(self) -> list[dict[str, str]]:
        """A row for each kernel and shape."""
        return [case.row(self.ceiling) for case in self.cases] or [
            {"kernel": "nothing was measured"}
        ]

    @property
    def is_sound(self) -> bool:
        """Whether every probe passed and every output of our kernels was correct."""
        wrong = [
            case
            for case in self.cases
            if OURS in case.failures or not case.errors.get(OURS, 2.0) <= 1
        ]
        return not wrong and not any(probe.failure for probe in self.probes)

    @property
    def summary(self) -> str:
        """Passed and failed probes, failures, asides and the ceilings."""
        held = sum(not probe.failure for probe in self.probes)
        lines = [f"{held} of {len(self.probes)} probes held; {self.seconds:.0f} s in all."]
        lines += [f"probe {probe.name}: {probe.failure}" for probe in self.probes if probe.failure]
        if self.ceiling is not None:
            tflops = (self.ceiling.bf16_gflops or 0) / 1e3
            rate = f", {tflops:.0f} TFLOP/s in bf16" if tflops else ""
            bandwidth = self.ceiling.bandwidth_gbs / 1e3
            lines.append(f"Ceilings of the same run: {bandwidth:.2f} TB/s{rate}.")
        for case in self.cases:
            lines += case.notes()
        return "\n".join((*lines, *map(str, self.densities), *self.remarks))
