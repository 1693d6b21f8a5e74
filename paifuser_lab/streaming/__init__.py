"""Streams: frames through stages on several workers, each once and in order.

    from . import Stream

    stream = Stream(source, decode, infer, sink=sink)    # threads; engine="ray" on a cluster
    stream.run()                                         # StreamReport
    for result in Stream(frames, function): ...          # .index .value .latency_ms .error

stream       a source, stages on several workers, a sink
source       the protocol of sources; `Group`; any iterable as a source
stage        the protocol of stages; a function as a stage; `FrameError`
sink         the protocol of sinks; a function as a sink
result       the answer to one frame
batching     dynamic batching: a batch closes when full or overdue
dispatcher   which worker gets which group, what is sent twice: a state machine without threads
nodes        what the dispatcher knows about a worker: what it holds, how long it takes
driver       runs a stream: feeds the dispatcher, and does what it decides
work         a group on its way: answers so far, how it is sent after workers died on it
reader       reads the source on a thread of its own
worker       stages opened once, called with one group after another
pool         workers as the driver sees them: messages to them, events from them
threads      workers that are threads of this process
actors       workers that are actors of Ray
journal      what was delivered, on disk, so that a restarted stream goes on behind it
statistics   counts and durations, and the report of them

sources      video files, folders of images, Parquet, a camera
stages       decode, preprocess, infer, postprocess, overlay, encode
sinks        videos and Parquet files
serving      a model behind HTTP
frame        an image with its time, on its way through a stream
payloads     encoded groups as bytes under one checksum
answers      classes, boxes and masks
model        a model opened for calls on batches
model_stream a stream that runs a model over a video
video_writer encodes frames for a video
optional     the packages of the extra `stream`
"""

from __future__ import annotations

from .batching import Batcher, BatchRule
from .result import Result
from .sink import Callback, Sink
from .source import Group, Items, Source
from .stage import FrameError, Map, Opened, Stage
from .stream import Stream

__all__ = [
    "BatchRule",
    "Batcher",
    "Callback",
    "FrameError",
    "Group",
    "Items",
    "Map",
    "Opened",
    "Result",
    "Sink",
    "Source",
    "Stage",
    "Stream",
]
