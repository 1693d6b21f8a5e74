"""A saved variant behind HTTP: `paifuser-lab serve FOLDER`.

inputs       reads images, NumPy files and JSON
predictor    answers batches of requests
metrics      what is counted, in Prometheus' form
server       the HTTP server, its limits and its graceful stop
run          serves until a signal
"""

from __future__ import annotations

from .predictor import Predictor
from .run import serve
from .server import Limits, Server

__all__ = ["Limits", "Predictor", "Server", "serve"]
