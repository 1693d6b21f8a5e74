"""A compressed model as one folder, which is read without executing anything but the code that
builds the original.

    recipe.yaml            the steps
    structure.json         what each step decided and did, and where the original comes from
    (records.SavedModel)
    weights.safetensors    the weights, tied ones once
    report.json            a comparison or another record; what `apply` checked where none was given
    manifest.json          the SHA-256 of each, written last

writing.py      the five files, together or not at all
reading.py      the files, believed only when their hashes agree; the original's workload
rebuilding.py   the steps done again on the original's code, and the weights
sketching.py    an answer in a few numbers: does the code still compute what it did?
"""

from __future__ import annotations

from .read import SavedFolder, is_folder, original_of, read_folder
from .rebuild_steps import rebuild
from .sketch import sketch_of
from .write import write_folder

__all__ = [
    "SavedFolder",
    "is_folder",
    "original_of",
    "read_folder",
    "rebuild",
    "sketch_of",
    "write_folder",
]
