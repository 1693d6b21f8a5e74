"""Answers requests, with batching and limits, and counts them. Built on prometheus_client."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from torch import Tensor

from ...errors import DataError, PaifuserError, StreamError, first_line
from ..batching import Batcher, BatchRule
from ..frame import Frame
from ..model import ModelSource, OpenModel
from ..stages.answer import Postprocess, as_json, kind_of
from ..stages.preprocess import Preprocess
from .inputs import UnsupportedError, read_body

DRAIN_S = 30.0  # until what has come is answered, after a stop
BACKLOG = 1024
SIGNALS = (signal.SIGTERM, signal.SIGINT)
METHODS = {
    "/": ("GET", "HEAD"),
    "/health": ("GET", "HEAD"),
    "/metrics": ("GET",),
    "/predict": ("POST",),
}
DESCRIBES = "GET / describes what this server answers."
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
Example = Frame | list[Tensor]


class Predictor:
    """A model with what comes before and after it: images become its input, outputs become JSON.

    An image is answered by what the output means, a tensor by the output. Names of classes, mean
    and std are those that the model's workload states, unless given.
    """

    def __init__(
        self,
        model: ModelSource,
        *,
        names: Sequence[str] = (),
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        how: str = "letterbox",
        trust: bool = False,
    ) -> None:
        self.model = OpenModel(model, trust=trust)
        self.postprocess = Postprocess(names=tuple(names) or self.model.classes)
        self.preprocess = None
        if self.model.image_shape is not None:
            self.preprocess = Preprocess.of(self.model, how=how, mean=mean, std=std)
        # an engine's first call is slow, and again its first on several examples, for which it is
        # exported anew; a model that fails on one shall fail before it is served, and one that
        # fails only on several is called for each alone
        self.model.answers([self._example()])
        Predictor.__call__(self, [self._example()] * 2)  # a subclass is not set up yet

    def __call__(self, examples: Sequence[Example]) -> list[Any]:
        """An answer for each example, or the error of that one."""
        try:
            return self._answers(examples)
        except Exception as error:
            if len(examples) == 1:
                return [_sentence(error, self.model.name)]
        # one of them fails the whole call: each for itself
        return [answer for example in examples for answer in self([example])]

    def _answers(self, examples: Sequence[Example]) -> list[Any]:
        frames = [self._prepared(example) for example in examples]
        inputs = [frame.tensor if isinstance(frame, Frame) else frame for frame in frames]
        outputs = self.model.answers(inputs)
        return [self._answer(frame, output) for frame, output in zip(frames, outputs, strict=True)]

    def _prepared(self, example: Example) -> Example:
        if not isinstance(example, Frame):
            return example
        if self.preprocess is None:
            raise DataError(f"{self.model.name} does not take images; send a tensor.")
        return self.preprocess.prepared(example)

    def _answer(self, frame: Example, output: Any) -> Any:
        if isinstance(frame, Frame) and kind_of(output):
            return as_json(self.postprocess.answer(output, frame))
        return {"output": as_json(output)}

    def _example(self) -> list[Tensor]:
        return [tensor[0] for tensor in self.model.inputs.tensors]


def _sentence(error: Exception, name: str) -> PaifuserError:
    if isinstance(error, PaifuserError):
        return error
    return StreamError(f"{name} failed on this input: {first_line(error).rstrip('.')}.")


class BusyError(StreamError):
    """As many requests wait as may."""


@dataclass(frozen=True)
class Limits:
    """What a server takes."""

    max_batch: int = 8
    max_delay_ms: float = 5.0
    max_bytes: int = 16 << 20
    timeout_s: float = 30.0
    max_waiting: int = 1024

    def __post_init__(self) -> None:
        for name in ("max_bytes", "timeout_s", "max_waiting"):
            if not getattr(self, name) > 0:
                raise StreamError(
                    f"{name}={getattr(self, name)} is not possible; give more than 0."
                )
        BatchRule(self.max_batch, self.max_delay_ms)


class Metrics:
    """The counters of one server, apart from those of others in the process."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        self.requests = counter("paifuser_requests", "Requests to /predict by status.", ["status"])
        self.seconds = histogram(
            "paifuser_request_seconds", "From a request's head to its answer.", buckets=SECONDS
        )
        self.model_seconds = histogram(
            "paifuser_model_seconds", "A call of the model on a batch.", buckets=SECONDS
        )
        self.batch = histogram("paifuser_batch_size", "Examples of a call.", buckets=SIZES)
        self.waiting = gauge("paifuser_waiting", "Requests that wait for a call.")
        self.in_flight = gauge("paifuser_in_flight", "Requests that are not answered yet.")

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def count(self, name: str, **labels: str) -> float:
        """The value of one series, such as `paifuser_requests_total` with its status."""
        return self._registry.get_sample_value(name, labels) or 0.0


class Service:
    """A model that answers requests, those to /predict that come together in one call.

    A request past the queue's bound gets 503, a body past `max_bytes` 413, and an answer that
    takes longer than `timeout_s` 504; each error is one sentence in JSON.
    """

    is_draining = False  # it stops, and takes no more

    def __init__(self, predictor: Predictor, limits: Limits | None = None) -> None:
        self.predictor, self.limits = predictor, limits or Limits()
        self.metrics = Metrics()
        self._batcher = Batcher(
            self._call,
            BatchRule(self.limits.max_batch, self.limits.max_delay_ms),
            capacity=self.limits.max_waiting,
        )

    def _call(self, examples: list[Any]) -> list[Any]:
        began = time.perf_counter()
        try:
            return self.predictor(examples)
        finally:
            self.metrics.batch.observe(len(examples))
            self.metrics.model_seconds.observe(time.perf_counter() - began)

    @property
    def waiting(self) -> int:
        """Requests that wait for a call."""
        return self._batcher.waiting

    @property
    def description(self) -> dict[str, Any]:
        """What the model takes, and the limits, as JSON."""
        model = self.predictor.model
        inputs = {
            name: {"shape": list(shape), "type": str(kind).removeprefix("torch.")}
            for name, (shape, kind) in model.specs.items()
        }
        return {
            "model": model.name,
            "inputs": inputs,
            "takes_images": model.image_shape is not None,
            "labels": self.predictor.postprocess.names,
            "predict": "POST /predict with image/jpeg, image/png, application/x-npy or "
            "application/json",
            "limits": vars(self.limits),
        }

    @property
    def too_large(self) -> str:
        """The refusal of a body that is larger than may be."""
        return f"The body is larger than the limit of {self.limits.max_bytes:,} bytes."

    async def reply(
        self, method: str, path: str, content_type: str, body: bytes | None
    ) -> tuple[int, Any]:
        """The status and JSON of the answer or error; `body` is None where it was too large."""
        if path not in METHODS:
            return _refused(404, f"There is nothing here; {DESCRIBES}")
        if method not in METHODS[path]:
            return _refused(405, f"Method Not Allowed; {DESCRIBES}")
        if path == "/":
            return 200, self.description
        if path == "/health":
            state = (503, "stopping") if self.is_draining else (200, "ok")
            return state[0], {"status": state[1]}
        if body is None:
            return _refused(413, self.too_large)
        try:
            example = await asyncio.to_thread(read_body, content_type, body, self.predictor.model)
            return 200, await self._answer(example)
        except TimeoutError:
            return _refused(504, f"No answer within {self.limits.timeout_s:g} s.")
        except PaifuserError as error:
            return _refused(_status_of(error), error)

    async def _answer(self, example: Any) -> Any:
        """The answer from the next batch; raises what went wrong with this one."""
        try:
            future = self._batcher.submit(example)
        except StreamError as error:
            raise BusyError(f"{self.waiting} requests wait already; try again.") from error
        # one that is given up leaves the queue
        answer = await asyncio.wait_for(asyncio.wrap_future(future), self.limits.timeout_s)
        if isinstance(answer, PaifuserError):
            raise answer
        return answer

    def close(self, timeout_s: float | None = None) -> None:
        """Answer what waits, then end."""
        self._batcher.close(timeout_s)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a host's port, or on a free one for port 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]
        raise StreamError(
            f"Cannot listen on {host}:{port}: {why}; choose another --host or --port."
        ) from error


def _status_of(error: PaifuserError) -> int:
    statuses = ((BusyError, 503), (UnsupportedError, 415), (DataError, 400))
    return next((status for kind, status in statuses if isinstance(error, kind)), 500)


def _refused(status: int, error: object) -> tuple[int, dict[str, str]]:
    return status, {"error": str(error)}
