"""Saved folders loaded in a fresh process: `python -m benchmarks.recipes.fresh MODEL FOLDER
…` prints their hashes as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch

from paifuser_lab.errors import PaifuserError, first_line
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.variant import Variant

from .invariants import RecipeRow, Saved, output_hash
from .subjects import subject

LIMIT_S = 300.0


def loaded(saved: Sequence[Saved]) -> Iterator[RecipeRow]:
    """Each saved variant's row, after a fresh process loaded its folder and ran the same inputs;
    one process per model.
    """
    for model, group in groupby(saved, key=lambda variant: variant.row.model):
        members = list(group)
        command = [sys.executable, "-m", __name__, model, *(str(item.folder) for item in members)]
        environment = {**os.environ, "PAIFUSER_PROGRESS": "none", "OMP_NUM_THREADS": "1"}
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False
        )
        lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
        failure = {"error": process.stderr.strip()[-300:] or "the process ended"}
        for index, member in enumerate(members):
            result = lines[index] if index < len(lines) else failure
            yield member.row.model_copy(update=_compared(member, result))


def _compared(saved: Saved, result: dict[str, str]) -> dict[str, str]:
    """Compare with the fresh process's result; the changes of the row."""
    if "error" in result:
        return {"verdict": "violated", "note": f"a fresh process cannot load it: {result['error']}"}
    if result["weights"] != saved.weights:
        return {"verdict": "violated", "note": "a fresh process loads other weights"}
    if result["output"] != saved.output:
        return {"verdict": "violated", "note": "loaded in a fresh process its output differs"}
    return {}


def main(model: str, folders: Sequence[str]) -> None:
    """Load each folder as a variant of the named model, and print a line of JSON for each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    work = subject(model)
    for folder in folders:
        try:
            variant = Variant.load(folder, work)
            line = {
                "weights": weights_hash(variant.module),
                "output": output_hash(work, variant.model),
            }
        except PaifuserError as problem:
            line = {"error": str(problem)}
        except Exception as problem:  # the other folders are still loaded
            line = {"error": f"{type(problem).__name__}: {first_line(problem)}"}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
