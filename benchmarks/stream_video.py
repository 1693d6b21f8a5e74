"""Groups of encoded pictures against decoded frames, and the stages of a pipeline."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from paifuser_lab.bench.runner import BenchRecord, Columns
from paifuser_lab.bench.text import number, percent
from paifuser_lab.records import Record, readable_bytes
from paifuser_lab.streaming import Result
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.sinks import VideoSink
from paifuser_lab.streaming.sources import VideoFile
from paifuser_lab.streaming.stages import Decode, Encode, Infer, Overlay, Postprocess, Preprocess
from paifuser_lab.zoo.streets import scenes

SIZES = {"540p": (960, 540), "1080p": (1920, 1080), "4K": (3840, 2160)}
ROUNDS = 3
GROUP = 8
WAITING = 4  # groups on their way, a worker


class VideoRow(Record):
    """One size of clip: both ways of sending, in the same rounds, and the stages alone."""

    size: str
    frames: int
    encoded_bytes: float  # of a frame on its way
    decoded_bytes: float
    encoded_per_s: float
    decoded_per_s: float
    ratio: float  # median of the rounds
    stage_ms: dict[str, float]  # of a frame, one after another in one process

    def share(self, stage: str) -> str:
        """A stage's milliseconds and its share of all."""
        ms = self.stage_ms.get(stage)
        whole = sum(self.stage_ms.values())
        return "–" if ms is None else f"{number(ms)} ({percent(ms / whole, 0)})"


class VideoBench(BenchRecord):
    """The result of `python -m benchmarks stream-video`."""

    caption = "Encoded groups against decoded frames, {0.workers} processes, {0.machine}"
    workers: int
    rows: tuple[VideoRow, ...]
    columns: ClassVar[Columns] = {
        "clip": "size",
        "a frame, encoded": lambda row: readable_bytes(round(row.encoded_bytes)),
        "decoded": lambda row: readable_bytes(round(row.decoded_bytes)),
        "frames/s, encoded": lambda row: number(row.encoded_per_s),
        "decoded ": lambda row: number(row.decoded_per_s),  # frames/s; shown without the space
        "×": lambda row: number(row.ratio),
    }

    @property
    def summary(self) -> str:
        """What each stage takes, a line a size."""
        return "\n".join(", ".join(map(" ".join, row.items())) for row in self.table_of_stages())

    def table_of_stages(self) -> list[dict[str, str]]:
        """The milliseconds and the share of each stage, a row a size."""
        names = dict.fromkeys(name for row in self.rows for name in row.stage_ms)
        return [
            {"clip": row.size}
            | {name: row.share(name) for name in names}
            | {"all, ms a frame": number(sum(row.stage_ms.values()))}
            for row in self.rows
        ]


def bench(
    *,
    frames: Annotated[int, typer.Option(help="Of each clip.", min=8)] = 96,
    workers: Annotated[int, typer.Option(help="Processes that decode.", min=1)] = 2,
) -> VideoBench:
    """Send groups of encoded pictures to other processes, and decoded frames, in turn: frames a
    second and bytes, at 540p, 1080p and 4K; and the share of each stage of a pipeline.
    """
    with tempfile.TemporaryDirectory() as folder:
        rows = tuple(_row(Path(folder), size, frames=frames, workers=workers) for size in SIZES)
    return VideoBench(workers=workers, rows=rows)


def street_clip(path: str | Path, frames: int, width: int, height: int, *, rate: int = 25) -> Path:
    """A clip that moves slowly over a generated street."""
    sink = VideoSink(path, rate=rate)
    sink.open(None)
    for start in range(0, frames, GROUP):
        group = [_view(index, width, height, rate) for index in range(start, start + GROUP)]
        encoded = Encode(rate=rate)(group[: frames - start])
        sink.write([Result(start + at, frame, 0.0) for at, frame in enumerate(encoded)])
    sink.close()
    return Path(path)


def _view(index: int, width: int, height: int, rate: int) -> Frame:
    from PIL import Image

    street = (scenes(1, side=96, seed=1)[0][0].transpose(1, 2, 0) * 255).astype(np.uint8)
    whole = Image.fromarray(street)
    shift = 12 * abs((index / 60) % 2 - 1)
    box = (shift, 0.0, shift + 84, 96.0)
    return Frame(
        np.asarray(whole.resize((width, height), Image.Resampling.BILINEAR, box)),
        index,
        Fraction(1, rate),
    )


def _row(folder: Path, size: str, *, frames: int, workers: int) -> VideoRow:
    width, height = SIZES[size]
    path = street_clip(folder / f"{size}.mp4", frames, width, height)
    rates: dict[bool, list[float]] = {True: [], False: []}
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        list(pool.map(_mean_of, [[Frame(np.zeros((2, 2, 3), np.uint8))]] * workers))
        for _ in range(ROUNDS):
            for encoded in (True, False):
                rates[encoded].append(_sent(pool, path, frames, workers, encoded=encoded))
    ratios = [one / other for one, other in zip(rates[True], rates[False], strict=True)]
    first = next(iter(VideoFile(path, group_frames=GROUP).groups()))
    return VideoRow(
        size=size,
        frames=frames,
        encoded_bytes=len(pickle.dumps(first.payload)) / first.count,
        decoded_bytes=3.0 * width * height,
        encoded_per_s=median(rates[True]),
        decoded_per_s=median(rates[False]),
        ratio=median(ratios),
        stage_ms=_stage_ms(path, folder),
    )


def _sent(
    pool: ProcessPoolExecutor, path: Path, frames: int, workers: int, *, encoded: bool
) -> float:
    """Frames a second from the file to a number that a worker made of each."""
    source = VideoFile(path, encoded=encoded, group_frames=GROUP)
    began, means, waiting = time.perf_counter(), 0, list[Future[list[float]]]()
    for group in source.groups():
        waiting.append(pool.submit(_mean_of, group.payload))
        if len(waiting) >= WAITING * workers:
            means += len(waiting.pop(0).result())
    means += sum(len(future.result()) for future in waiting)
    assert means == frames
    return frames / (time.perf_counter() - began)


def _mean_of(payload: Any) -> list[float]:
    """On a worker: the frames, and a number of each, so that nothing large travels back."""
    return [float(frame.image[::64, ::64].mean()) for frame in Decode()(payload)]


def _stage_ms(path: Path, folder: Path) -> dict[str, float]:
    """Milliseconds a frame in each stage, on the first groups."""
    stages: dict[str, Callable[[Any], list[Any]]] = {
        "decode": Decode(),
        "preprocess": Preprocess(96, how="letterbox", mean=(0.45,), std=(0.25,)),
        "infer": Infer("yolo-streets"),
        "postprocess": Postprocess(names=("car", "pedestrian")),
        "overlay": Overlay(),
        "encode": Encode(),
    }
    sink = VideoSink(folder / "out.mp4")
    sink.open(None)
    spent: dict[str, list[float]] = {}
    for sequence, group in enumerate(VideoFile(path, group_frames=GROUP).groups()):
        items = group.payload
        for name, stage in stages.items():
            began = time.perf_counter()
            items = stage(items)
            spent.setdefault(name, []).append((time.perf_counter() - began) * 1e3 / group.count)
        began = time.perf_counter()
        sink.write([Result(group.first + at, item, 0.0) for at, item in enumerate(items)])
        spent.setdefault("sink", []).append((time.perf_counter() - began) * 1e3 / group.count)
        if sequence == WAITING:
            break
    sink.close()
    return {name: median(values[1:] or values) for name, values in spent.items()}
