"""Latencies of single layers in each format on one machine, kept between runs."""

from __future__ import annotations

from .record import Record


class LayerLatency(Record):
    """The latency of a layer alone, including conversions from and to its neighbours' format."""

    # its kind and options, those of the batch-norm that int8 folds into it, and its input shapes
    likeness: str
    format: str
    around: str  # the format of its input and output
    ms: float
    size_bytes: int


class ConversionLatency(Record):
    """The latency of converting a layer's input to int8 and back; consecutive int8 layers need
    neither.
    """

    likeness: str
    to_int8_ms: float
    back_ms: float


class LatencyTable(Record):
    """Latencies on one machine with one number of threads; equal layers are measured once."""

    machine: str
    threads: int
    torch_version: str
    rows: tuple[LayerLatency, ...] = ()
    conversions: tuple[ConversionLatency, ...] = ()

    def find(self, likeness: str, name: str, around: str) -> LayerLatency | None:
        """The row of a layer, if it was measured."""
        key = likeness, name, around
        return next(
            (row for row in self.rows if (row.likeness, row.format, row.around) == key), None
        )

    def conversion(self, likeness: str) -> ConversionLatency | None:
        """The latency of converting a layer's input, if it was measured."""
        return next((row for row in self.conversions if row.likeness == likeness), None)

    def with_rows(
        self, rows: tuple[LayerLatency, ...], conversions: tuple[ConversionLatency, ...]
    ) -> LatencyTable:
        """The table with newer rows replacing older ones."""
        merged = {(row.likeness, row.format, row.around): row for row in (*self.rows, *rows)}
        converted = {row.likeness: row for row in (*self.conversions, *conversions)}
        return self.model_copy(
            update={"rows": tuple(merged.values()), "conversions": tuple(converted.values())}
        )

    @property
    def title(self) -> str:
        """The number of rows, the machine and the torch version, in a line."""
        return (
            f"{len(self.rows)} layers and formats on {self.machine} · threads: {self.threads} · "
            f"torch {self.torch_version}"
        )
