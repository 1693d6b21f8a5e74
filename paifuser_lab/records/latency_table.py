"""What layers take alone in each format, on one machine; kept between runs."""

from __future__ import annotations

from .record import Record


class LayerLatency(Record):
    """A layer alone, with the conversions that its format brings, among neighbours in another
    format or its own.
    """

    # its kind and options, those of the batch-norm that int8 folds into it, and what it is given
    likeness: str
    format: str
    around: str  # the format of what is given and of what is handed on
    ms: float
    size_bytes: int


class ConversionLatency(Record):
    """What a layer is given, on its way to int8 and back; two int8 layers that follow each other
    need neither.
    """

    likeness: str
    to_int8_ms: float
    back_ms: float


class LatencyTable(Record):
    """Measured on one machine with one number of threads; equal layers are measured once."""

    machine: str
    threads: int
    torch_version: str
    rows: tuple[LayerLatency, ...] = ()
    conversions: tuple[ConversionLatency, ...] = ()

    def find(self, likeness: str, name: str, around: str) -> LayerLatency | None:
        """The row of a layer, if it was measured."""
        wanted = likeness, name, around
        return next(
            (row for row in self.rows if (row.likeness, row.format, row.around) == wanted), None
        )

    def conversion(self, likeness: str) -> ConversionLatency | None:
        """What converting a layer's input takes, if it was measured."""
        return next((row for row in self.conversions if row.likeness == likeness), None)

    def with_rows(
        self, rows: tuple[LayerLatency, ...], conversions: tuple[ConversionLatency, ...]
    ) -> LatencyTable:
        """The table with newer rows replacing older ones."""
        kept = {(row.likeness, row.format, row.around): row for row in (*self.rows, *rows)}
        converted = {row.likeness: row for row in (*self.conversions, *conversions)}
        return self.model_copy(
            update={"rows": tuple(kept.values()), "conversions": tuple(converted.values())}
        )

    @property
    def title(self) -> str:
        """Where it was measured, and how much of it there is."""
        return (
            f"{len(self.rows)} layers and formats on {self.machine} · threads: {self.threads} · "
            f"torch {self.torch_version}"
        )
