"""What a server in a process of its own loses under many clients, and how long it takes."""

from __future__ import annotations

import asyncio
import io
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import typer

from paifuser_lab.bench.runner import BenchRecord
from paifuser_lab.errors import MeasureError
from paifuser_lab.variant.open import load

DRAIN_S = 60.0
PATIENCE_S = 60.0  # of a client, longer than the server's
RETRY_S = 0.05


class ServeBench(BenchRecord):
    """The result of `python -m benchmarks serve`."""

    caption = (
        "{0.clients} clients for {0.seconds:.0f} s against {0.model} on {0.machine}, clients "
        "on the same machine"
    )
    model: str
    clients: int
    seconds: float
    max_batch: int
    max_delay_ms: float
    answered: int
    refused: dict[str, int] = {}  # answers that were errors, by HTTP status
    lost: int = 0  # requests without an answer
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_batch: float
    stopped_cleanly: bool

    @property
    def summary(self) -> str:
        """What was lost, in a line."""
        refused = sum(self.refused.values())
        return f"{self.answered} answered, {refused} refused, {self.lost} lost"

    def table(self) -> list[dict[str, str]]:
        """One row."""
        return [
            {
                "answered": str(self.answered),
                "lost": str(self.lost),
                "a second": f"{self.per_s:.0f}",
                "p50 ms": f"{self.p50_ms:.1f}",
                "p95 ms": f"{self.p95_ms:.1f}",
                "p99 ms": f"{self.p99_ms:.1f}",
                "in a call": f"{self.mean_batch:.1f}",
                "stopped": "cleanly" if self.stopped_cleanly else "not cleanly",
            }
        ]


@dataclass
class _Tally:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0


def bench(
    name: Annotated[str, typer.Argument(help="A model of the zoo.")] = "resnet18-digits-tiny",
    *,
    clients: Annotated[int, typer.Option(help="Clients at once.", min=1)] = 200,
    seconds: Annotated[float, typer.Option(help="How long they ask.", min=0.1)] = 60.0,
    max_batch: Annotated[int, typer.Option(help="Requests in one call.", min=1)] = 32,
    max_delay_ms: Annotated[float, typer.Option(help="How long the first one waits.", min=0)] = 5.0,
) -> ServeBench:
    """Load a server of our own with many clients: what is lost, and how long answers take."""
    body = _body(name)
    command = [
        *(sys.executable, "-m", "paifuser_lab.cli", "serve", name, "--port", "0"),
        *("--max-batch", str(max_batch), "--max-delay-ms", str(max_delay_ms)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split("//")[-1].strip()
        if not address:
            raise MeasureError(f"The server of {name} did not start; see its message above.")
        host, _, port = address.rpartition(":")
        began = time.perf_counter()
        tally, mean_batch = asyncio.run(_load(host, int(port), body, clients, seconds))
        elapsed = time.perf_counter() - began
        process.send_signal(signal.SIGTERM)
        is_clean = _ends_well(process)
    finally:
        process.kill()
        process.wait()
    good = tally.statuses.pop(200, 0)
    if not good:
        raise MeasureError(f"The server of {name} answered nothing: {dict(tally.statuses)}.")
    p50, p95, p99 = np.percentile(tally.seconds, [50, 95, 99]) * 1e3
    return ServeBench(
        model=name,
        clients=clients,
        seconds=elapsed,
        max_batch=max_batch,
        max_delay_ms=max_delay_ms,
        answered=good,
        refused={str(status): count for status, count in tally.statuses.items()},
        lost=tally.lost,
        per_s=good / elapsed,
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        mean_batch=mean_batch,
        stopped_cleanly=is_clean,
    )


def _ends_well(process: subprocess.Popen[str]) -> bool:
    try:
        return process.wait(DRAIN_S) == 0
    except subprocess.TimeoutExpired:
        return False


def _body(name: str) -> bytes:
    example = load(name).inputs.tensors[0][0].numpy()
    file = io.BytesIO()
    np.save(file, example)
    return file.getvalue()


async def _load(
    host: str, port: int, body: bytes, clients: int, seconds: float
) -> tuple[_Tally, float]:
    """All clients until the time is over, then the mean size of the model's calls."""
    tally = _Tally()
    until = time.perf_counter() + seconds
    await asyncio.gather(*(_client(host, port, body, until, tally) for _ in range(clients)))
    metrics = (await _asked(*await asyncio.open_connection(host, port), b"GET /metrics"))[1]
    values = dict(
        line.rsplit(" ", 1) for line in metrics.decode().splitlines() if not line.startswith("#")
    )
    calls = float(values.get("paifuser_batch_size_count", 0))
    return tally, float(values.get("paifuser_batch_size_sum", 0)) / max(calls, 1)


async def _client(host: str, port: int, body: bytes, until: float, tally: _Tally) -> None:
    """One request after another on one connection, or on a new one after a failure."""
    connection = None
    while (began := time.perf_counter()) < until:
        try:
            connection = connection or await asyncio.open_connection(host, port)
            asked = _asked(*connection, b"POST /predict", body)
            status, _ = await asyncio.wait_for(asked, PATIENCE_S)
        except (OSError, EOFError, ValueError):
            tally.lost += 1
            connection = None
            await asyncio.sleep(RETRY_S)
            continue
        tally.statuses[status] += 1
        if status == 200:
            tally.seconds.append(time.perf_counter() - began)
    if connection is not None:
        connection[1].close()


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: bytes, body: bytes = b""
) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    head = b"%s HTTP/1.1\r\nHost: here\r\nContent-Type: application/x-npy\r\nContent-Length: %d\r\n"
    writer.write(head % (what, len(body)) + b"\r\n" + body)
    await writer.drain()
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    status = int(lines[0].split()[1])
    size = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
    return status, await reader.readexactly(size)
