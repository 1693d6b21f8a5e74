"""Answers requests from a model, with dynamic batching and limits, whatever brings them."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from ...errors import DataError, PaifuserError, StreamError
from ..batching import Batcher, BatchRule
from .inputs import UnsupportedError, read_body
from .metrics import Metrics
from .predictor import Predictor

DRAIN_S = 30.0
"""Until what has come is answered, after a stop."""
BACKLOG = 1024
SIGNALS = (signal.SIGTERM, signal.SIGINT)
MISSING = "There is nothing here; GET / describes what this server answers."


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


class Service:
    """A model that answers bodies of requests, those that come together in one call.

    A request past the queue's bound gets 503, a body past `max_bytes` 413, and an answer that
    takes longer than `timeout_s` 504; each error is one sentence in JSON.
    """

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

    async def reply(self, content_type: str, body: bytes) -> tuple[int, Any]:
        """The status of a request to /predict, and its answer or a sentence with the error."""
        loop = asyncio.get_running_loop()
        try:
            example = await loop.run_in_executor(
                None, read_body, content_type, body, self.predictor.model
            )
            return 200, await self._answer(example)
        except BusyError as error:
            return _refused(503, error)
        except UnsupportedError as error:
            return _refused(415, error)
        except DataError as error:
            return _refused(400, error)
        except TimeoutError:
            return _refused(504, f"No answer within {self.limits.timeout_s:g} s.")
        except PaifuserError as error:
            return _refused(500, error)

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


def _refused(status: int, error: object) -> tuple[int, dict[str, str]]:
    return status, {"error": str(error)}
