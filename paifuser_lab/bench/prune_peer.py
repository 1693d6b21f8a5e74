"""The same architectures pruned by Torch-Pruning, each in a process of its own, since some never
return.

It is given what a careful user would: the layers that make the answer are ignored and heads are
named, both from our coupling. Where that is not exact it is tried once more without the heads, and
the better of the two counts.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from ..errors import MissingExtraError, first_line
from ..pruning.groups import couple
from ..pruning.groups.trace_labels import ANSWER, tensors_in
from ..workload import Workload
from .prune_rows import PruneRow, Verdict, judged
from .prune_zoo import Architecture

PEERS = ("torch-pruning",)
LIMIT_S = 30.0
STARTING_S = 60.0  # a process imports torch and the architectures before it begins
BETTER: tuple[Verdict, ...] = ("exact", "refused", "failed", "wrong")  # than those that come later


def peer_rows(
    chosen: Iterable[Architecture], ratio: float, *, limit_s: float = LIMIT_S
) -> Iterator[PruneRow]:
    """A row an architecture, in their order."""
    for one in chosen:
        yield _in_time(one.name, ratio, limit_s)


def torch_pruning() -> Any:
    """The package, or an error that names the extra to install."""
    try:
        return import_module("torch_pruning")
    except ImportError as error:
        raise MissingExtraError(
            "torch-pruning", extra="peers", needed_for="the comparison with it"
        ) from error


def _in_time(name: str, ratio: float, limit_s: float) -> PruneRow:
    methods = get_all_start_methods()
    context: Any = get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(
            [__name__]
        )  # the imports are done once, not for each architecture
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
        found: PruneRow = ours.recv()
        return found
    except EOFError:
        return PruneRow(
            name=name, verdict="failed", seconds=0.0, note="its process ended without a word"
        )
    finally:
        process.kill()
        process.join()


def _work(pipe: Connection, name: str, ratio: float) -> None:
    from .prune_zoo import architectures

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # they would come between the lines of progress
    one = next(one for one in architectures() if one.name == name)
    pipe.send("ready")
    pipe.send(_row(one, ratio))


def _row(architecture: Architecture, ratio: float) -> PruneRow:
    work = architecture.workload()
    ignored, heads = _hints(work)
    best = _tried(work, ignored, heads, ratio)
    if best.verdict != "exact" and heads:
        again = _tried(work, ignored, {}, ratio)
        best = min(best, again, key=lambda row: BETTER.index(row.verdict))
    return best


def _hints(work: Workload) -> tuple[list[str], dict[str, int]]:
    """The layers that make the answer, and how many heads the linear layers have that make some."""
    structure = couple(work.model, work.inputs)
    layers = dict(work.model.named_modules())
    ignored = [
        layer
        for group in structure.groups
        if group.pinned == ANSWER
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
    """One attempt, with dictionaries of its own: the defaults are shared by all pruners of a
    process.
    """
    library, model = torch_pruning(), copy.deepcopy(work.model)
    began = time.perf_counter()
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
            forward_fn=lambda one, given: given(one),
            output_transform=tensors_in,
        )
        pruner.step()
    except Exception as error:  # whatever it raises is what its user would see
        return _ended(work, "failed", began, f"{type(error).__name__}: {first_line(error)[:160]}")
    seconds = time.perf_counter() - began
    if all(
        one.shape == other.shape
        for one, other in zip(model.parameters(), work.model.parameters(), strict=True)
    ):
        return _ended(work, "refused", began, "it removed nothing")
    try:
        return judged(work, model.eval(), seconds)
    except (
        Exception
    ) as error:  # the pruned model does not run, or has other weights than the original
        return _ended(
            work,
            "failed",
            began,
            f"pruned it fails: {type(error).__name__}: {first_line(error)[:160]}",
        )


def _ended(work: Workload, verdict: Verdict, began: float, note: str) -> PruneRow:
    return PruneRow(name=work.name, verdict=verdict, seconds=time.perf_counter() - began, note=note)
