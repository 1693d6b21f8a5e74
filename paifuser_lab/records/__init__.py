"""What was measured: frozen, typed results that save, load, draw and travel. No torch in here.

A record is a pydantic model; `save` and `load` go through JSON with the record's name and version in it. One file a subject.
"""

from __future__ import annotations

from .comparison import Comparison, Measurement, StepReport
from .hardware import Accelerator, Ceiling, Hardware
from .record import Record
from .text import counted, readable_bytes, readable_count

__all__ = [
    "Accelerator",
    "Ceiling",
    "Comparison",
    "Hardware",
    "Measurement",
    "Record",
    "StepReport",
    "counted",
    "readable_bytes",
    "readable_count",
]
