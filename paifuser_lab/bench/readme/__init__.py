"""The README's measured figures, written from the records in docs/measured and from nothing else.

What lies between `<!-- measured:NAME -->` and `<!-- /measured -->` is the text of that block. A
block whose record is not there is empty, so that a claim without a record is left out.

    blocks        markers, and what is put between
    folder        the records
    speed         what models, steps, profiles, panels and attention take
    compression   few bits, and which layers matter
    pruning       narrower models, distilled and trained
    missing       claims without a record, and the commands that would make it
    text          numbers and paragraphs
"""

from __future__ import annotations

from .blocks import blocks_of, differing, render
from .folder import Records

__all__ = ["Records", "blocks_of", "differing", "render"]
