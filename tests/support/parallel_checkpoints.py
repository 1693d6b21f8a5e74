"""Checkpoints as the ranks of a test save and load them, whole and damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paifuser_lab.parallel import Checkpoints, DataParallel
from tests.support.parallel_loops import STRATEGIES, adam, model, step_on, tokens, weights

SAVED = ("bf16", "int8", "full")


def prepared(name: str) -> tuple[DataParallel, Any, Any]:
    strategy = DataParallel(**STRATEGIES[name])
    module = model()
    module, optimizer = strategy.prepare(module, adam(module))
    return strategy, module, optimizer


def finished(strategy: DataParallel, module: Any, optimizer: Any, first: int) -> dict[str, Tensor]:
    """The weights after the steps from `first` to 6."""
    for step in range(first, 6):
        step_on(module, optimizer, tokens(step, strategy.group.rank))
    return weights(strategy.finish())


def checkpoints(folder: str) -> dict[str, Any]:
    """For each strategy: whether going on from a checkpoint ends as without it."""
    results: dict[str, Any] = {}
    for name in SAVED:
        strategy, module, optimizer = prepared(name)
        kept = Checkpoints(Path(folder, name), strategy)
        for step in range(3):
            step_on(module, optimizer, tokens(step, strategy.group.rank))
            kept.save(step + 1, {"seen": step})
        expected = finished(strategy, module, optimizer, 3)
        torch.manual_seed(9)
        strategy, module, optimizer = prepared(name)
        loaded = Checkpoints(Path(folder, name), strategy).load()
        again = finished(strategy, module, optimizer, 3)
        results[name] = {
            "loaded": loaded,
            "is_equal": all(torch.equal(again[key], expected[key]) for key in expected),
            "weights": expected,
            "kept": sorted(path.name for path in Path(folder, name).iterdir()),
        }
    results["altered"] = _altered(Path(folder, "int8"))
    results["into int8"] = _into_int8(Path(folder, "into int8"))
    return results


def _into_int8(folder: Path) -> dict[str, Any]:
    """Going on in int8 from a checkpoint of weights that were averaged as they are."""
    strategy, module, optimizer = prepared("local")
    step_on(module, optimizer, tokens(0, strategy.group.rank))
    Checkpoints(folder, strategy).save(1)
    strategy.finish()
    strategy, module, optimizer = prepared("int8")
    loaded = Checkpoints(folder, strategy).load()
    return {"loaded": loaded, "weights": finished(strategy, module, optimizer, 1)}


def _altered(folder: Path) -> str:
    """What every rank is told where one byte of a part is another; nothing changes."""
    from tests.support.parallel_loops import refused

    strategy, *_ = prepared("int8")
    path = Checkpoints(folder, strategy).newest()
    assert path is not None
    copied = folder.parent / "altered" / path.name
    if strategy.group.rank == 0:
        shutil.copytree(path, copied)
        part = next(copied.glob("*.distcp"))
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(bytes(content))
    torch.distributed.barrier()
    before = weights(strategy._prepared())
    message = refused(Checkpoints(copied.parent, strategy).load)
    after = weights(strategy.finish())
    assert all(torch.equal(before[name], after[name]) for name in before)
    return message
