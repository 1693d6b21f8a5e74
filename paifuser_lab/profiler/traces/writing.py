"""Trace a workload with torch.profiler, with layer names, for Perfetto and TensorBoard."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from ..._files import replacing
from ...errors import FileError, MeasureError, keep_when_stopped
from ...machine import threads
from ...progress import progress
from ...records import TraceSummary
from ...workload import Workload, running, workload_of
from ..recording import marking
from .reading import read_as

ENDINGS = (".json", ".json.gz")
# Kineto writes names into JSON unescaped
SAFE = {
    **dict.fromkeys(range(32), "_"),
    ord('"'): "'",
    ord("\\"): "/",
}


def trace(work: Workload, path: str | Path, *, runs: int = 3) -> TraceSummary:
    """Trace a few runs into a file, each layer's call named by path and type, and summarise it.

    `path` ends in `.json` or `.json.gz`, for Perfetto; a folder gets a file for TensorBoard's
    profiler plugin. An untraced run goes first. When interrupted, the finished runs are kept.
    """
    subject, work = work, workload_of(work)
    if runs < 1:
        raise MeasureError(f"{runs} runs leave nothing to trace; ask for 1 or more.")
    target = _target(Path(path), work.name)
    with threads(subject.own_threads):
        work.output()
        profiler, is_interrupted = _record(work, runs)
    with replacing(target) as temporary:
        _export(profiler, temporary, is_gzip=target.suffix == ".gz")
        summary = read_as(temporary, target.name)
    if target != Path(path):
        # `%tensorboard` searches only the shell's PATH
        beside = Path(sys.executable).with_name("tensorboard")
        if beside.exists():
            os.environ.setdefault("TENSORBOARD_BINARY", str(beside))
    return summary.model_copy(update={"is_interrupted": is_interrupted})


def _target(path: Path, name: str) -> Path:
    """The file to write: `path`, or a file in it with a name that TensorBoard's plugin accepts."""
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
    # cloned beforehand, so that the copies are not in the trace
    inputs = [work.inputs.clone() for _ in range(runs + 1)]
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
        for count, call in enumerate(inputs):
            call(work.model)
            if count == 0 and work.device.type == "cuda":
                # the trace must not contain pending work of the untraced run
                torch.cuda.synchronize(work.device)
            recorder.step()
            finished = count
            shown.advance(min(count, 1))
    return recorder, finished < runs


def _naming(model: nn.Module) -> AbstractContextManager[None]:
    """Annotate every call of a layer with its path and type."""
    names = {
        layer: f"{layer} ({type(module).__name__})".lstrip().translate(SAFE)
        for layer, module in model.named_modules()
    }
    return marking(model, names.__getitem__)


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
