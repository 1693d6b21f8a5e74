"""A compressed model as one folder, which is loaded without executing anything but the code that
builds the original.

    recipe.yaml            the steps
    structure.json         what each step chose and reported, and where the original comes from
    (records.SavedModel)
    weights.safetensors    the weights, tied ones once
    report.json            a comparison or another record; by default the checks of `apply`
    manifest.json          the SHA-256 of each file, written last

write.py           writes the five files, together or not at all
read.py            reads the files if their hashes match; the original's workload
rebuild_steps.py   repeats the steps on the original's code, and loads the weights
sketch.py          an output in a few numbers, to detect code that computes something else
"""

from __future__ import annotations

from .read import SavedFolder, can_be_named, is_folder, original_of, read_folder
from .rebuild_steps import rebuild
from .sketch import sketch_of
from .write import write_folder

__all__ = [
    "SavedFolder",
    "can_be_named",
    "is_folder",
    "original_of",
    "read_folder",
    "rebuild",
    "sketch_of",
    "write_folder",
]
