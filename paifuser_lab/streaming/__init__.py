"""Streams: frames through stages on several workers, each once and in order.

    from . import Stream

    stream = Stream(source, decode, infer, sink=sink)    # threads; engine="ray" on a cluster
    stream.run()                                         # StreamReport
    for result in Stream(frames, function): ...          # .index .value .latency_ms .error

stream       a source, stages on several workers, a sink
source       the protocol of sources; `Group`; any iterable as a source
stage        the protocol of stages; a function as a stage; `FrameError`; the `Result` of a frame
sink         the protocol of sinks; a function as a sink
batching     dynamic batching: a batch closes when full or overdue
dispatcher   which worker gets which group, what is sent twice: a state machine without threads
driver       runs a stream: reads, feeds the dispatcher, and does what it decides
worker       stages opened once, called with one group after another
pool         workers as the driver sees them; those that are threads of this process
actors       workers that are actors of Ray
journal      what was delivered, on disk, so that a restarted stream goes on behind it
statistics   counts and durations, and the report of them

sources      video files, folders of images, Parquet, a camera
stages       decode, preprocess, infer, postprocess, overlay, encode
sinks        videos and Parquet files, which appear once they are complete
serving      a model behind HTTP
frame        an image with its time, on its way through a stream; encoded groups as bytes
model        a model opened for calls on batches
model_stream a stream that runs a model over a video
optional     the packages of the extra `stream`
"""

from .batching import Batcher, BatchRule
from .sink import Callback, Sink
from .source import Group, Items, Source
from .stage import FrameError, Map, Opened, Result, Stage
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
