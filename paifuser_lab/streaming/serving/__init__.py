"""A saved variant behind HTTP: `paifuser-lab serve FOLDER`.

inputs       reads images, NumPy files and JSON
predictor    answers batches of requests
metrics      what is counted, in Prometheus' form
service      the limits, and the status of each answer
server       the HTTP server of one process, and its graceful stop
run          serves until a signal
ray_serve    the same answers behind Ray Serve, on this machine or a cluster
"""

from __future__ import annotations

from .predictor import Predictor
from .ray_serve import serve_on_ray
from .run import serve
from .server import Server
from .service import Limits, Service

__all__ = ["Limits", "Predictor", "Server", "Service", "serve", "serve_on_ray"]
