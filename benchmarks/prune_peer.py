"""The same architectures pruned by Torch-Pruning, each in its own process, since some never return.

It gets the hints that a careful user would pass: the output layers are ignored and the numbers of
heads are given, both from our coupling. If the result is not exact, it is tried once more without
the heads, and the better of the two counts.
"""

from __future__ import annotations

import copy
import time
import warnings
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from paifuser_lab.errors import first_line, optional_module
from paifuser_lab.pruning.groups import couple
from paifuser_lab.pruning.groups.trace_labels import OUTPUT, tensors_in
from paifuser_lab.workload import Workload
from tests.support.prune_zoo import Architecture

from .prune import PruneRow, Verdict, row_of

PEERS = ("torch-pruning",)
LIMIT_S = 30.0
STARTING_S = 60.0  # a process imports torch and the architectures before it begins
BETTER: tuple[Verdict, ...] = ("exact", "refused", "failed", "wrong")  # than those that come later


def torch_pruning() -> Any:
    """The package, or an error that names the extra to install."""
    return optional_module(
        "torch_pruning",
        package="torch-pruning",
        extra="peers",
        needed_for="the comparison with it",
    )


def peer_row(name: str, ratio: float, limit_s: float = LIMIT_S) -> PruneRow:
    """The row of an architecture that the package prunes in a process of its own."""
    methods = get_all_start_methods()
    context: Any = get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        # so that the imports are done once, not for each architecture
        context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, name, ratio), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(STARTING_S):
            return PruneRow(
                name=name, verdict="failed", seconds=STARTING_S, note="its process did not start"
            )
        ours.recv()
        if not ours.poll(limit_s):
            return PruneRow(
                name=name,
                verdict="timed out",
                seconds=limit_s,
                note=f"it had not returned after {limit_s:g} s",
            )
        row: PruneRow = ours.recv()
        return row
    except EOFError:
        return PruneRow(
            name=name, verdict="failed", seconds=0.0, note="its process ended without a result"
        )
    finally:
        process.kill()
        process.join()


def _work(pipe: Connection, name: str, ratio: float) -> None:
    from tests.support.prune_zoo import architectures

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # they would interrupt the progress line
    architecture = next(known for known in architectures() if known.name == name)
    pipe.send("ready")
    pipe.send(_row(architecture, ratio))


def _row(architecture: Architecture, ratio: float) -> PruneRow:
    work = architecture.workload()
    ignored, heads = _hints(work)
    best = _tried(work, ignored, heads, ratio)
    if best.verdict != "exact" and heads:
        again = _tried(work, ignored, {}, ratio)
        best = min(best, again, key=lambda row: BETTER.index(row.verdict))
    return best


def _hints(work: Workload) -> tuple[list[str], dict[str, int]]:
    """The output layers, and the number of heads of the linear layers that have some."""
    structure = couple(work.model, work.inputs)
    layers = dict(work.model.named_modules())
    ignored = [
        layer
        for group in structure.groups
        if group.pinned == OUTPUT
        for layer in group.layers
        if layer in layers
    ]
    heads = {
        layer: group.width
        for group in structure.groups
        if group.unit > 1
        for layer in group.layers
        if isinstance(layers.get(layer), nn.Linear)
    }
    return ignored, heads


def _tried(work: Workload, ignored: list[str], heads: dict[str, int], ratio: float) -> PruneRow:
    """One attempt, with fresh dictionaries: the defaults are shared by all pruners of a process."""
    library, model = torch_pruning(), copy.deepcopy(work.model)
    start = time.perf_counter()
    try:
        pruner = library.pruner.BasePruner(
            model,
            work.inputs,
            importance=library.importance.MagnitudeImportance(p=2),
            pruning_ratio=ratio,
            ignored_layers=[model.get_submodule(layer) for layer in ignored],
            in_channel_groups={},
            out_channel_groups={},
            channel_groups={},
            num_heads={model.get_submodule(layer): count for layer, count in heads.items()},
            forward_fn=lambda model, inputs: inputs(model),
            output_transform=tensors_in,
        )
        pruner.step()
    except Exception as error:  # its user would see the same error
        return _ended(work, "failed", start, f"{type(error).__name__}: {first_line(error)[:160]}")
    seconds = time.perf_counter() - start
    if all(
        ours.shape == theirs.shape
        for ours, theirs in zip(model.parameters(), work.model.parameters(), strict=True)
    ):
        return _ended(work, "refused", start, "it removed nothing")
    try:
        return row_of(work, model.eval(), seconds)
    # the pruned model does not run, or has other weights than the original
    except Exception as error:
        return _ended(
            work,
            "failed",
            start,
            f"pruned it fails: {type(error).__name__}: {first_line(error)[:160]}",
        )


def _ended(work: Workload, verdict: Verdict, start: float, note: str) -> PruneRow:
    return PruneRow(name=work.name, verdict=verdict, seconds=time.perf_counter() - start, note=note)
