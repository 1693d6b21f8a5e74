"""Saved folders loaded in a fresh process: `python -m paifuser_lab.bench.recipes.fresh MODEL FOLDER
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

from ...errors import PaifuserError, first_line
from ...model.weights import weights_hash
from ...variant import Variant
from .invariants import RecipeRow, Saved, answer_of
from .subjects import subject

LIMIT_S = 300.0


def loaded(saved: Sequence[Saved]) -> Iterator[RecipeRow]:
    """Each saved variant's row, after a fresh process a model loaded its folder and answered the
    same inputs.
    """
    for model, group in groupby(saved, key=lambda one: one.row.model):
        members = list(group)
        command = [sys.executable, "-m", __name__, model, *(str(one.folder) for one in members)]
        environment = {**os.environ, "PAIFUSER_PROGRESS": "none", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for index, one in enumerate(members):
            found = (
                lines[index]
                if index < len(lines)
                else {"error": done.stderr.strip()[-300:] or "the process ended"}
            )
            yield one.row.model_copy(update=_judged(one, found))


def _judged(saved: Saved, found: dict[str, str]) -> dict[str, str]:
    """What the fresh process found, as changes of the row."""
    if "error" in found:
        return {"verdict": "violated", "note": f"a fresh process cannot load it: {found['error']}"}
    if found["weights"] != saved.weights:
        return {"verdict": "violated", "note": "a fresh process loads other weights"}
    if found["answer"] != saved.answer:
        return {"verdict": "violated", "note": "loaded in a fresh process it answers otherwise"}
    return {}


def main(model: str, folders: Sequence[str]) -> None:
    """Load each folder as a variant of the named model; a line of JSON each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    work = subject(model)
    for folder in folders:
        try:
            variant = Variant.load(folder, work)
            line = {
                "weights": weights_hash(variant.module),
                "answer": answer_of(work, variant.model),
            }
        except PaifuserError as problem:
            line = {"error": str(problem)}
        except Exception as problem:  # one folder that fails does not take the others with it
            line = {"error": f"{type(problem).__name__}: {first_line(problem)}"}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
