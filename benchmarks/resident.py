"""The resident bytes that a call or a training step takes, in a process of its own:
`python -m benchmarks.resident MODEL BATCH THREADS OPTIONS` prints them.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from paifuser_lab.errors import MeasureError, PaifuserError, first_line
from paifuser_lab.loading.load import load
from paifuser_lab.memory.predict.examples import real_subject
from paifuser_lab.memory.predict.step import Observer, run
from paifuser_lab.records import StepOptions

LIMIT_S = 600.0
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


def resident_bytes(model: str, options: StepOptions, batch: int, threads: int) -> int | None:
    """Weights, inputs, and how far the resident bytes rise in a fresh process; None where the
    system does not tell it.
    """
    if not CLEAR.exists():
        return None
    command = [sys.executable, "-m", __name__, model, str(batch), str(threads)]
    environment = {**os.environ, "PAIFUSER_PROGRESS": "none", "OMP_NUM_THREADS": str(threads)}
    process = subprocess.run(
        [*command, options.model_dump_json()],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["it ended"]
        raise MeasureError(f"{model} fails in a process of its own: {lines[-1].rstrip('.')}.")
    return int(process.stdout.split()[-1])


def main(model: str, batch: int, threads: int, options: StepOptions) -> None:
    """Run the model and print the bytes of weights and inputs and the rise of the resident ones."""
    torch.set_num_threads(threads)
    subject = real_subject(load(model), options, batch)
    held = sum(
        tensor.nbytes for tensor in (*subject.model.parameters(), *subject.model.buffers())
    ) + sum(tensor.nbytes for tensor in subject.tensors if isinstance(tensor, torch.Tensor))
    gc.collect()
    CLEAR.write_text(RESET_PEAK, encoding="ascii")
    before = _status_bytes("VmRSS")
    run(subject, Observer())
    sys.stdout.write(f"{held + _status_bytes('VmHWM') - before}\n")


def _status_bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if match is None:
        raise MeasureError(f"/proc/self/status has no {name}; measure on Linux.")
    return int(match[1]) * 1024


if __name__ == "__main__":
    name, size, count, text = sys.argv[1:]
    try:
        main(name, int(size), int(count), StepOptions.model_validate_json(text))
    except PaifuserError as error:
        sys.exit(first_line(error))
