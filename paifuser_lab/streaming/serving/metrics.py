"""What a server counts, in Prometheus' text form. Built on prometheus_client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counters of one server, apart from those of others in the process."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self.requests = Counter(
            "paifuser_requests",
            "Requests to /predict by status.",
            ["status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "paifuser_request_seconds",
            "From a request's head to its answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self.model_seconds = Histogram(
            "paifuser_model_seconds",
            "A call of the model on a batch.",
            buckets=SECONDS,
            registry=registry,
        )
        self.batch = Histogram(
            "paifuser_batch_size", "Examples of a call.", buckets=SIZES, registry=registry
        )
        self.waiting = Gauge(
            "paifuser_waiting", "Requests that wait for a call.", registry=registry
        )
        self.in_flight = Gauge(
            "paifuser_in_flight", "Requests that are not answered yet.", registry=registry
        )

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def count(self, name: str, **labels: str) -> float:
        """The value of one series, such as `paifuser_requests_total` with its status."""
        return self._registry.get_sample_value(name, labels) or 0.0
