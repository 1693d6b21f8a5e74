"""A service behind HTTP on this machine, with a graceful stop. Built on tornado."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import tornado.web
from tornado.httpserver import HTTPServer

from .service import DESCRIBES, DRAIN_S, SIGNALS, Limits, Metrics, Predictor, Service, listen

DISCARDED = 8  # times the limit of a body that is read all the same, so that the refusal is read
IDLE_S = 75.0
GRACE_S = 0.1  # after a stop, until what clients have sent before it is read
GONE = 499  # the client closed its connection, as nginx has it


class Server(Service):
    """A service behind `POST /predict`, with `GET /`, `/health` and `/metrics`."""

    def __init__(self, predictor: Predictor, limits: Limits | None = None) -> None:
        super().__init__(predictor, limits)
        self.address: tuple[str, int] | None = None
        self._open = 0
        self._idle = asyncio.Event()
        self._http: HTTPServer | None = None

    def start(self, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Listen; port 0 takes a free one, which `address` then has."""
        application = tornado.web.Application(
            [(r".*", Handler, {"server": self})], log_function=self._finished
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
        """A request to the model has come."""
        self._open += 1
        self.metrics.in_flight.set(self._open)

    def ended(self) -> None:
        """A request is answered, or its client has gone."""
        self._open -= 1
        self.metrics.in_flight.set(self._open)
        self._idle.set()

    def _finished(self, handler: tornado.web.RequestHandler) -> None:
        if handler.request.path == "/predict":
            self.metrics.requests.labels(status=str(handler.get_status())).inc()
            self.metrics.seconds.observe(handler.request.request_time())


def serve(
    server: Server,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    on_start: Callable[[Server], None] = lambda server: None,
) -> bool:
    """Serve until SIGTERM or SIGINT, then answer what has come; a second signal ends it at once."""

    async def run() -> bool:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for kind in SIGNALS:
            loop.add_signal_handler(kind, stopping.set)
        server.start(host, port)
        on_start(server)
        await stopping.wait()
        for kind in SIGNALS:
            loop.remove_signal_handler(kind)
        return await server.stop(DRAIN_S)

    return asyncio.run(run())


@tornado.web.stream_request_body
class Handler(tornado.web.RequestHandler):
    """A request and its answer; of a body that is too large nothing is kept."""

    server: Server
    size = 0
    is_counted = False  # a request to the model that is not answered yet
    is_late = False  # its head has come after the stop
    is_gone = False  # its client has closed the connection
    answering: asyncio.Future[Any] | None = None

    def initialize(self, server: Server) -> None:
        self.server = server
        self.body: list[bytes] = []

    def prepare(self) -> None:
        self.is_late = self.server.is_draining
        if (self.request.method, self.request.path) != ("POST", "/predict"):
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
            self.send(413, {"error": self.server.too_large})

    def data_received(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size <= self.server.limits.max_bytes:
            self.body.append(chunk)
        else:  # read to its end: a client that still sends would not see the refusal
            self.body.clear()

    async def respond(self) -> None:
        """Read, wait for the batch where the model is asked, answer."""
        request = self.request
        if request.path == "/metrics" and request.method == "GET":
            self.server.metrics.waiting.set(self.server.waiting)
            self.set_header("Content-Type", Metrics.content_type)
            self.finish(self.server.metrics.text())
            return
        if self.is_counted and self.is_late:
            self.send(503, {"error": "This server is stopping; send the request to another."})
            return
        is_whole = self.size <= self.server.limits.max_bytes
        self.answering = asyncio.ensure_future(
            self.server.reply(
                str(request.method),
                request.path,
                request.headers.get("Content-Type", ""),
                b"".join(self.body) if is_whole else None,
            )
        )
        if self.is_gone:
            self.answering.cancel()
        try:
            self.send(*await self.answering)
        except asyncio.CancelledError:  # the client has gone, and its place in the queue is free
            self.set_status(GONE, "Client Closed Request")

    get = head = post = put = patch = delete = options = respond

    def send(self, status: int, content: Any) -> None:
        self.set_status(status)
        if status == 503:
            self.set_header("Retry-After", "1")
        if self.server.is_draining:  # the connection is closed soon
            self.set_header("Connection", "close")
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(content, allow_nan=False))

    def write_error(self, status_code: int, **more: Any) -> None:
        """tornado's own errors, such as an unknown method."""
        self.send(status_code, {"error": f"{self._reason}; {DESCRIBES}"})

    def on_finish(self) -> None:
        if self.is_counted:
            self.server.ended()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.is_gone = True
        if self.answering is not None:
            self.answering.cancel()
        if self.is_counted and not self._finished:
            self.is_counted = False
            self.server.ended()
