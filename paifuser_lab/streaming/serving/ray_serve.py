"""The same answers behind Ray Serve, whose proxy spreads requests over replicas."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...arguments import check_count
from ...errors import StreamError, first_line, optional_module
from ...machine.cluster import LOCAL, connect, ray_module
from ...variant import Variant
from ..model import ModelSource, portable, received
from .service import DRAIN_S, SIGNALS, Limits, Predictor, Service, listen

LOOK_S = 0.25
PATIENCE_S = 5.0  # until a person is told what is waited for
METRICS = "Ray Serve counts requests itself, for the metrics port of each machine of its cluster."


class Replica(Service):
    """A service in an actor of Ray Serve: one model, whose requests share calls."""

    def __init__(self, model: Any, options: dict[str, Any], limits: Limits) -> None:
        opened = received(model, trust=options.get("trust", False))
        super().__init__(Predictor(opened, **options), limits)

    async def __call__(self, request: Any) -> Any:
        """Answer a request of the proxy."""
        from starlette.responses import JSONResponse

        path, kind = request.url.path, request.headers.get("content-type", "")
        status, content = 404, {"error": METRICS}
        if path != "/metrics":
            body = await self._body(request)
            status, content = await self.reply(request.method, path, kind, body)
        return JSONResponse(content, status, {"Retry-After": "1"} if status == 503 else None)

    async def _body(self, request: Any) -> bytes | None:
        """The body of a request; None if it is too large."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self.limits.max_bytes:
            return None
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.limits.max_bytes:
                return None
            parts.append(part)
        return b"".join(parts)


def serve_on_ray(
    model: ModelSource,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    address: str | None = None,
    replicas: int = 1,
    limits: Limits | None = None,
    on_start: Callable[[str], None] = lambda where: None,
    on_wait: Callable[[str], None] = lambda message: None,
    **options: Any,
) -> None:
    """Serve on Ray until SIGTERM or SIGINT, then answer what has come.

    `address` is that of a cluster; None starts one on this machine. Each replica opens the model.
    `on_start` is told where the model answers, `on_wait` what is missing until it does. Options are
    those of `Predictor`. A cluster on which Ray Serve runs already keeps that one's host and port.
    """
    check_count("replicas", replicas, error=StreamError)
    serve = ray_serve_module()
    trust = options.get("trust", False)
    source = _sent(model, trust=trust)
    # what is wrong with the model or the options is said here, before anything is started
    name = _plain(Predictor(received(source, trust=trust), **options).model.name)
    stopping = threading.Event()
    is_ours = connect(address, cpus=replicas)
    try:
        with _set_by_signals(stopping):
            status = serve.status()
            is_running = bool(status.proxies)
            if name in status.applications:
                raise StreamError(
                    f"An application {name!r} runs on this cluster already; end that one first, by "
                    "Ctrl-C where it was started or with serve.delete in Python."
                )
            if not is_running:
                # the proxy would say what is wrong in its log alone
                with listen(host, port) as free:
                    port = free.getsockname()[1]
                serve.start(
                    proxy_location="HeadOnly",
                    http_options={
                        "host": host,
                        "port": port,
                        "request_timeout_s": None,  # the replica's own, which is a sentence
                    },
                    logging_config={"log_level": "ERROR", "enable_access_log": False},
                )
            try:
                _deploy(serve, name, (source, options, limits or Limits()), replicas)
                if _is_up(serve, name, stopping, on_wait):
                    on_start("the running Ray Serve" if is_running else f"http://{host}:{port}")
                    stopping.wait()
            finally:
                serve.delete(name)
                # on a cluster of others it would outlive this process
                ends_with_us = is_ours and address in LOCAL
                if not (is_running or ends_with_us or serve.status().applications):
                    serve.shutdown()
    finally:
        if is_ours:
            ray_module().shutdown()


def ray_serve_module() -> Any:
    """The package ray.serve; raises if it is not installed."""
    ray_module()
    serve = optional_module(
        "ray.serve", extra="serve", needed_for="Ray Serve", package="ray[serve]"
    )
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    return serve


def _plain(name: str) -> str:
    """A name as Ray Serve takes it: its messages carry ASCII alone."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-") or "model"


def _sent(model: ModelSource, *, trust: bool) -> Any:
    """The model as data for another machine, which has no folder of this one."""
    if isinstance(model, str | Path) and Path(model).is_dir():
        model = Variant.load(model, trust=trust)
    return portable(model)


def _deploy(serve: Any, name: str, arguments: tuple[Any, ...], replicas: int) -> None:
    """Ask Ray Serve for the replicas."""
    limits: Limits = arguments[-1]
    application = serve.deployment(
        Replica,
        name="model",
        num_replicas=replicas,
        # those over the limit of waiting requests are refused by the replica, in a sentence
        max_ongoing_requests=2 * (limits.max_waiting + limits.max_batch),
        graceful_shutdown_timeout_s=DRAIN_S,
    ).bind(*arguments)
    try:
        serve.run_many(
            [serve.RunTarget(application, name=name, route_prefix="/")],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )
    except Exception as error:
        raise StreamError(f"Ray Serve refuses {name}: {first_line(error).rstrip('.')}.") from error


def _is_up(
    serve: Any, name: str, stopping: threading.Event, on_wait: Callable[[str], None]
) -> bool:
    """Wait until all replicas answer; False if it is stopped before."""
    said, patience = "", time.monotonic() + PATIENCE_S
    while not stopping.wait(LOOK_S):
        application = serve.status().applications.get(name)
        status = application.status if application else ""
        message = _reason(application) if application else ""
        if status == "RUNNING":
            return True
        if status in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise StreamError(f"{name} does not start on Ray Serve: {message}.")
        if message != said and time.monotonic() > patience:
            said = message
            on_wait(f"Waiting for the replicas of {name}: {message or 'they are not there yet'}.")
    return False


def _reason(application: Any) -> str:
    """What Ray Serve says of an application or else of its replicas."""
    texts = [application.message, *(each.message for each in application.deployments.values())]
    return next((text.strip().splitlines()[-1].rstrip(".") for text in texts if text.strip()), "")


@contextmanager
def _set_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the service; a second one is handled as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {kind: signal.getsignal(kind) for kind in SIGNALS}

    def stop(*_: Any) -> None:
        stopping.set()
        for kind, handler in before.items():
            signal.signal(kind, handler)

    for kind in SIGNALS:
        signal.signal(kind, stop)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
