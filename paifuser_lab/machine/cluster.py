"""Joins a Ray cluster, or starts one on this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import StreamError, first_line, optional_module

REACH_S = 5.0
LOCAL = (None, "local")


def ray_module(needed_for: str = "engine='ray'") -> Any:
    """The package ray; raises if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return optional_module("ray", extra="cluster", needed_for=needed_for)


def connect(address: str | None, cpus: int | None = None) -> bool:
    """Join a cluster, or start one on this machine where `address` is None; returns whether this
    call did so. A process that has joined one keeps to it.
    """
    ray = ray_module()
    if ray.is_initialized():
        _check_joined(address)
        return False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with signals_kept():
            if address in LOCAL:
                # a plain ray.init() joins whatever cluster a temporary file names
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    **quiet,
                )
            else:
                _reach(str(address))
                ray.init(address=address, **quiet)
    except Exception as error:
        where = "a cluster on this machine" if address in LOCAL else f"a Ray cluster at {address!r}"
        raise StreamError(
            f"Cannot reach or start {where}: {first_line(error)}; check the address, that `ray "
            f"status` answers there, and that it runs Ray {ray.__version__}."
        ) from error
    return True


@contextmanager
def signals_kept() -> Iterator[None]:
    """Leave SIGTERM to what handled it: Ray takes it over, and would end the process at once."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _reach(address: str) -> None:
    """Raise at once where nothing answers: Ray tries for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), REACH_S).close()


def _check_joined(address: str | None) -> None:
    """Raise if this process has joined another cluster than the one asked for."""
    if address in LOCAL or address == "auto":
        return
    joined = ray_module().get_runtime_context().gcs_address
    if address != joined:
        raise StreamError(
            f"This process has joined the Ray cluster at {joined}, not the one at {address}; leave "
            "the address out, or call ray.shutdown() before."
        )
