"""The figures in README.md and docs/*.md, generated from the records in docs/measured.

A page marks the place of a block of measured text with `<!-- measured:NAME -->` and
`<!-- /measured -->`; the text between them is generated from the records alone. A block without a
record names the command that measures it.

    blocks        markers, the text between them, the files that have them, the commands
    changed       whether what a record measured has changed since
    folder        the records
    summary       the one table of the README
    speed         latency of models, engines, fused layers, profiles and attention
    workbench     panels in a browser, and verdicts on a busy machine
    precision     lower precision, and which layers are sensitive to it
    memory        pools, predicted peaks, memory used again, snapshots
    training      what `lab.enable()` gains
    pruning       pruned, distilled and quantized models
    text          numbers, paragraphs and tables
"""

from __future__ import annotations

from .blocks import blocks_of, differing, pages_of, render, rewrite
from .folder import Records

__all__ = ["Records", "blocks_of", "differing", "pages_of", "render", "rewrite"]
