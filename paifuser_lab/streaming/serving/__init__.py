"""A saved variant behind HTTP: `paifuser-lab serve FOLDER`.

inputs       reads images, NumPy files and JSON
service      the answers to requests: batches, limits, statuses, counters
server       the HTTP server of one process, its graceful stop, and serving until a signal
ray_serve    the same service behind Ray Serve, on this machine or a cluster
"""

from .ray_serve import serve_on_ray
from .server import Server, serve
from .service import Limits, Predictor, Service

__all__ = ["Limits", "Predictor", "Server", "Service", "serve", "serve_on_ray"]
