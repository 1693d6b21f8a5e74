"""One rank of the benchmark of kills: a small training that stores itself, goes on from there, and
writes the hash of its weights after every step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from paifuser_lab.model.weights import weights_hash
from paifuser_lab.parallel import Checkpoints, DataParallel

SAVE_EVERY = 5  # steps
PAUSE_S = 0.02  # a step, so that kills meet it at different moments


def main(folder: Path, steps: int, sync_frequency: int) -> None:
    """Train to the end, from wherever an earlier attempt came to."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    strategy = DataParallel(sync_frequency, timeout_s=20)
    wrapped, optimizer = strategy.prepare(model, optimizer)
    checkpoints = Checkpoints(folder / "checkpoints", strategy)
    found = checkpoints.load()
    rank = strategy.group.rank
    with (folder / f"rank-{rank}.jsonl").open("a") as log:
        for step in range(0 if found is None else found[0], steps):
            generator = torch.Generator().manual_seed(1000 * step + rank)
            inputs = torch.randn(32, 16, generator=generator)
            optimizer.zero_grad()
            loss = functional.cross_entropy(wrapped(inputs), inputs[:, :4].argmax(1))
            torch.autograd.backward(loss)
            optimizer.step()
            time.sleep(PAUSE_S)
            row = {"step": step + 1, "pid": os.getpid(), "at": time.time()}
            log.write(json.dumps(row | {"hash": weights_hash(model)}) + "\n")
            log.flush()
            if (step + 1) % SAVE_EVERY == 0:
                checkpoints.save(step + 1)
    (folder / f"end-{rank}").write_text(weights_hash(strategy.finish()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
