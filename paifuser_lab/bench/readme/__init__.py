"""The README's measured figures, written from the records in docs/measured and from nothing else.

What lies between `<!-- measured:NAME -->` and `<!-- /measured -->` is the text of that block. A
block whose record is not there is empty, so that a claim without a record is left out.

    blocks        markers, records, and what is put between
    speed         what models, steps, profiles, panels and attention take
    compression   few bits, pruning, training
"""

from __future__ import annotations

from .blocks import Records, blocks_of, differing, render

__all__ = ["Records", "blocks_of", "differing", "render"]
