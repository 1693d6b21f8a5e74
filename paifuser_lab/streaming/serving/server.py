"""A model behind HTTP on this machine, with a graceful stop. Built on tornado."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import tornado.web
from tornado.httpserver import HTTPServer

from .metrics import Metrics
from .predictor import Predictor
from .service import DRAIN_S, MISSING, Limits, Service, listen

DISCARDED = 8
"""Times the limit of a body that is read and thrown away, so that the client reads the refusal."""
IDLE_S = 75.0
GRACE_S = 0.1
"""After a stop, until what clients have sent before it is read."""
GONE = 499  # the client closed its connection, as nginx has it


class Server(Service):
    """A service behind `POST /predict`, with `GET /`, `/health` and `/metrics`."""

    def __init__(self, predictor: Predictor, limits: Limits | None = None) -> None:
        super().__init__(predictor, limits)
        self.is_draining = False
        self.address: tuple[str, int] | None = None
        self._open = 0
        self._idle = asyncio.Event()
        self._http: HTTPServer | None = None

    def start(self, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Listen; port 0 takes a free one, which `address` then has."""
        application = tornado.web.Application(
            [
                (r"/predict", PredictHandler, {"server": self}),
                (r"/health", HealthHandler, {"server": self}),
                (r"/metrics", MetricsHandler, {"server": self}),
                (r"/", DescribeHandler, {"server": self}),
            ],
            default_handler_class=MissingHandler,
            default_handler_args={"server": self},
            log_function=self._finished,
        )
        self._http = HTTPServer(
            application,
            max_body_size=DISCARDED * self.limits.max_bytes,
            body_timeout=self.limits.timeout_s,
            idle_connection_timeout=IDLE_S,
        )
        listening = listen(host, port)
        listening.setblocking(False)
        self.address = listening.getsockname()[:2]
        self._http.add_socket(listening)

    async def stop(self, timeout_s: float = DRAIN_S) -> bool:
        """Take no new connections, answer what has come, then close; whether all was answered."""
        self.is_draining = True
        for _ in range(10):  # turns of the loop, although it is busy
            await asyncio.sleep(GRACE_S / 10)
        if self._http is not None:
            self._http.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle(), timeout_s)
        is_clean = not self._open
        await asyncio.to_thread(self.close, 1.0 if is_clean else 0.0)
        if self._http is not None:
            await self._http.close_all_connections()
        return is_clean

    async def _is_idle(self) -> None:
        while self._open:
            self._idle.clear()
            await self._idle.wait()

    def began(self) -> None:
        """A request has come."""
        self._open += 1
        self.metrics.in_flight.set(self._open)

    def _finished(self, handler: tornado.web.RequestHandler) -> None:
        if isinstance(handler, PredictHandler):
            self.metrics.requests.labels(status=str(handler.get_status())).inc()
            self.metrics.seconds.observe(handler.request.request_time())

    def ended(self) -> None:
        """A request is answered, or its client has gone."""
        self._open -= 1
        self.metrics.in_flight.set(self._open)
        self._idle.set()


class _Handler(tornado.web.RequestHandler):
    """JSON answers, and errors as one sentence."""

    server: Server

    def initialize(self, server: Server) -> None:
        self.server = server

    def reply(self, status: int, content: Any) -> None:
        """Send JSON."""
        self.set_status(status)
        if status == 503:
            self.set_header("Retry-After", "1")
        if self.server.is_draining:  # the connection is closed soon
            self.set_header("Connection", "close")
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(content, allow_nan=False))

    def refuse(self, status: int, message: str) -> None:
        """Send an error."""
        self.reply(status, {"error": message})

    def write_error(self, status_code: int, **more: Any) -> None:
        """tornado's own errors, such as a wrong method."""
        self.refuse(status_code, f"{self._reason}; GET / describes what this server answers.")


class MissingHandler(_Handler):
    """Any other address."""

    def prepare(self) -> None:
        self.refuse(404, MISSING)


class DescribeHandler(_Handler):
    """What the model takes, and the limits."""

    def get(self) -> None:
        """As JSON."""
        self.reply(200, self.server.description)


class HealthHandler(_Handler):
    """Whether requests are taken."""

    def get(self) -> None:
        """200, or 503 once it is stopping."""
        is_up = not self.server.is_draining
        self.reply(200 if is_up else 503, {"status": "ok" if is_up else "stopping"})


class MetricsHandler(_Handler):
    """Counters for Prometheus."""

    def get(self) -> None:
        """In its text form."""
        self.server.metrics.waiting.set(self.server.waiting)
        self.set_header("Content-Type", Metrics.content_type)
        self.finish(self.server.metrics.text())


@tornado.web.stream_request_body
class PredictHandler(_Handler):
    """One example in, its answer out."""

    body: list[bytes]
    size = 0
    is_counted = False
    is_late = False  # its head has come after the stop
    answering: asyncio.Future[Any] | None = None

    def prepare(self) -> None:
        self.body = []
        self.is_late = self.server.is_draining
        if self.request.method != "POST":
            return
        self.server.began()
        self.is_counted = True
        limit, headers = self.server.limits.max_bytes, self.request.headers
        declared = headers.get("Content-Length", "")
        size = int(declared) if declared.isdecimal() else 0
        # before it is sent, where the client asks, or where too much would have to be read
        if size > limit and (headers.get("Expect") or size > DISCARDED * limit):
            connection: Any = self.request.connection
            connection.set_max_body_size(size)  # else tornado answers, too
            self._refuse_size()

    def _refuse_size(self) -> None:
        self.refuse(413, self.server.too_large)

    def data_received(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size <= self.server.limits.max_bytes:
            self.body.append(chunk)
        else:  # read to its end: a client that still sends would not see the refusal
            self.body.clear()

    async def post(self) -> None:
        """Read, wait for the batch, answer."""
        if self.is_late:
            self.refuse(503, "This server is stopping; send the request to another.")
        elif self.size > self.server.limits.max_bytes:
            self._refuse_size()
        else:
            await self._answer(b"".join(self.body))

    async def _answer(self, body: bytes) -> None:
        kind = self.request.headers.get("Content-Type", "")
        self.answering = asyncio.ensure_future(self.server.reply(kind, body))
        if not self.is_counted:
            self.answering.cancel()
        try:
            self.reply(*await self.answering)
        except asyncio.CancelledError:  # the client has gone, and its place in the queue is free
            self.set_status(GONE, "Client Closed Request")

    def on_finish(self) -> None:
        if self.is_counted:
            self.server.ended()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self.answering is not None:
            self.answering.cancel()
        if self.is_counted and not self._finished:
            self.is_counted = False
            self.server.ended()
