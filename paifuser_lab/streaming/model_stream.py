"""A stream that runs a model over a video, a folder of images or a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._files import checked_path
from ..errors import StreamError
from .frame import Frame
from .model import ModelSource, OpenModel
from .sink import Sink
from .sinks import FORMATS, ParquetSink, VideoSink
from .source import Source
from .sources import GROUP, ImageFolder, ParquetImages, VideoFile
from .stages import Decode, Encode, Infer, Overlay, Postprocess, Preprocess
from .stream import Engine, Stream

PARQUET = ".parquet"


def model_stream(
    source: str | Path | Source,
    model: ModelSource,
    *,
    out: str | Path | None = None,
    how: str = "letterbox",
    batch: int = 8,
    names: tuple[str, ...] = (),
    least_score: float = 0.3,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    trust: bool = False,
    engine: Engine = "threads",
    **options: Any,
) -> Stream:
    """A stream of a model that takes images: decoded, preprocessed, inferred, answered, and drawn
    where `out` is a video.

    Pixels are 0 to 1, less `mean`, divided by `std` (a number, or one a channel), and `names` are
    those of the classes: as the model's workload states them in its `preprocessing`, unless given.
    A path is opened by what it is; `options` are those of `Stream`. Workers open the model by its
    name or folder, where it has one.
    """
    if (
        out is not None
        and isinstance(source, str | Path)
        and checked_path(source).resolve() == checked_path(out).resolve()
    ):
        raise StreamError(f"{out} is the source; choose another name for what is written.")
    opened_model = OpenModel(model, trust=trust)
    if opened_model.image_shape is None:
        raise StreamError(
            f"{model} does not take images (floats, 1 or 3 channels × height × width), which a "
            "stream of frames needs."
        )
    opened = source_of(source, batch) if isinstance(source, str | Path) else source
    sink = sink_of(out, getattr(opened, "rate", 25))
    stages: list[Any] = [
        Decode(),
        Preprocess.of(opened_model, how=how, mean=mean, std=std),
        Infer(model, batch=batch, trust=trust, opened=opened_model),
        Postprocess(names=names or opened_model.classes, least_score=least_score),
    ]
    stages += [Overlay(), Encode(rate=sink.rate)] if isinstance(sink, VideoSink) else [answer_alone]
    return Stream(opened, *stages, sink=sink, engine=engine, **options)


def answer_alone(frame: Frame) -> Frame:
    """A frame without its image, which need not travel then."""
    return frame.with_(image=None)


def source_of(path: str | Path, batch: int) -> Source:
    """The source of a path: a folder of images, a Parquet file, or a video; at least a batch of
    images is sent together.
    """
    path = checked_path(path)
    group = max(GROUP, batch)
    if path.is_dir():
        return ImageFolder(path, group=group)
    return ParquetImages(path, group=group) if path.suffix.lower() == PARQUET else VideoFile(path)


def sink_of(path: str | Path | None, rate: Any) -> Sink | None:
    """The sink of a path: a video, or a table of the answers."""
    if path is None:
        return None
    suffix = checked_path(path).suffix.lower()
    if suffix == PARQUET:
        return ParquetSink(path)
    if suffix not in FORMATS:
        raise StreamError(
            f"{Path(path).name} is neither a video nor a table; let it end in "
            f"{', '.join((*FORMATS, PARQUET))}."
        )
    return VideoSink(path, rate=rate)
