"""Tracing a workload with torch.profiler, each layer's call named in the trace. It opens in
Perfetto and in TensorBoard.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from ..._files import replacing
from ...errors import FileError, MeasureError
from ...model.watch import watching
from ...progress import progress
from ...records import TraceSummary
from ...stopping import keep_when_stopped
from ...workload import Workload, running, workload_of
from .reading import read_as

ENDINGS = (".json", ".json.gz")
SAFE = {
    **dict.fromkeys(range(32), "_"),
    ord('"'): "'",
    ord("\\"): "/",
}  # Kineto writes names into JSON as they are


def trace(work: Workload, path: str | Path, *, runs: int = 3) -> TraceSummary:
    """Trace a few runs of the model into a file, each layer's call named by its path and type, and
    say where the time went.

    `path` ends in `.json` or `.json.gz`, for Perfetto; a folder gets a file that TensorBoard's
    profiler plugin shows. One run goes before, untraced. When it is interrupted, the runs that were
    finished are kept.
    """
    work = workload_of(work)
    if runs < 1:
        raise MeasureError(f"{runs} runs leave nothing to trace; ask for 1 or more.")
    target = _target(Path(path), work.name)
    work.output()
    profiler, is_interrupted = _record(work, runs)
    with replacing(target) as temporary:
        _export(profiler, temporary, is_gzip=target.suffix == ".gz")
        summary = read_as(temporary, target.name)
    if target != Path(path):
        _show_tensorboard_the_way()
    return summary.model_copy(update={"is_interrupted": is_interrupted})


def _show_tensorboard_the_way() -> None:
    """`%tensorboard` searches its program on the shell's PATH, not beside the Python that the
    notebook runs with.
    """
    beside = Path(sys.executable).with_name("tensorboard")
    if beside.exists():
        os.environ.setdefault("TENSORBOARD_BINARY", str(beside))


def _target(path: Path, name: str) -> Path:
    """The file to write: `path`, or one in it whose name TensorBoard's plugin recognises."""
    if path.is_dir() or not (path.suffix or path.is_file()):
        worker = re.sub(r"[^\w-]+", "_", name)
        return path / f"{worker}.{time.time_ns()}.pt.trace.json"
    if not path.name.endswith(ENDINGS):
        raise FileError(
            f"A trace cannot be written as {path.name}; give a name that ends in .json or "
            ".json.gz, or a folder."
        )
    return path


def _record(work: Workload, runs: int) -> tuple[profile, bool]:
    """The profiler after its runs, and whether they were interrupted."""
    activities = [
        ProfilerActivity.CPU,
        *([ProfilerActivity.CUDA] if work.device.type == "cuda" else []),
    ]
    steps = schedule(wait=0, warmup=1, active=runs, repeat=1)
    inputs = [
        work.inputs.clone() for _ in range(runs + 1)
    ]  # beforehand, so that copying them is not in the trace
    recorder = profile(
        activities=activities, schedule=steps, record_shapes=True, profile_memory=True
    )
    finished = 0
    with (
        running(work.model),
        _naming(work.model),
        progress(f"Tracing {work.name}", runs) as shown,
        recorder,
        keep_when_stopped(lambda: finished > 0),
    ):
        for count, one in enumerate(inputs):
            one(work.model)
            if count == 0 and work.device.type == "cuda":
                torch.cuda.synchronize(
                    work.device
                )  # what the untraced run left to do is not traced
            recorder.step()
            finished = count
            shown.advance(min(count, 1))
    return recorder, finished < runs


def _naming(model: nn.Module) -> AbstractContextManager[None]:
    """Annotate every call of a layer with its path and type."""
    names = {name: _annotation(name, module) for name, module in model.named_modules()}
    begun: list[Any] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        begun.append(record_function(names[layer]))
        begun[-1].__enter__()

    def leave(layer: str, output: Any) -> None:
        begun.pop().__exit__(None, None, None)

    return watching(model, enter, leave)


def _annotation(layer: str, module: nn.Module) -> str:
    name = f"{layer} ({type(module).__name__})".lstrip()
    return name.translate(SAFE)


def _export(profiler: profile, path: Path, *, is_gzip: bool) -> None:
    if not is_gzip:
        profiler.export_chrome_trace(str(path))
        return
    plain = path.with_name(path.name + ".plain")
    try:
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as sink:
            shutil.copyfileobj(source, sink)
    finally:
        plain.unlink(missing_ok=True)
