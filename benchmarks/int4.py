"""int4-weights on the linear layers of a small Llama-like model, by the rows of a call."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab.bench.runner import BenchRecord, Columns, Seconds
from paifuser_lab.bench.text import ratio
from paifuser_lab.errors import PaifuserError
from paifuser_lab.machine import threads
from paifuser_lab.measure import Candidate, output_error, ratio_of_rounds, rounds_in_turn
from paifuser_lab.progress import progress
from paifuser_lab.quantization.layers.weights_only import WeightsOnly
from paifuser_lab.records import Record
from paifuser_lab.records.table import table_of
from paifuser_lab.variant import apply
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload, running

ROWS = (1, 8, 32, 64)
EAGER = "eager fp32"
INT4: dict[str, Any] = {"precision": {"default": "int4-weights"}}
ALWAYS, NEVER = 2**31, 0  # values of `few_rows`


class Block(nn.Module):
    """The seven linear layers of a Llama block; attention is reduced to that of a single token."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        normed = F.rms_norm(tokens, tokens.shape[-1:])
        tokens = tokens + self.out(
            torch.sigmoid(self.query(normed) * self.key(normed)) * self.value(normed)
        )
        normed = F.rms_norm(tokens, tokens.shape[-1:])
        update: Tensor = self.down(F.silu(self.gate(normed)) * self.up(normed))
        return tokens + update


class Int4Row(Record):
    """One implementation for calls of so many rows: its latency, the ratio to eager fp32 in the
    same rounds, and its error.
    """

    way: str
    rows: int
    ms: float
    ratio: float
    interval: tuple[float, float]
    error: float


class Int4Bench(BenchRecord):
    """The result of `python -m benchmarks int4`."""

    capability: str  # of torch's own operators: AVX2, AVX512 …
    parameters: int
    rows: tuple[Int4Row, ...]
    columns: ClassVar[Columns] = {
        "rows": "rows",
        "way": "way",
        "ms": lambda row: f"{row.ms:.3g}",
        "×": lambda row: ratio(row.ratio, row.interval),
        "error": lambda row: f"{row.error:.1e}",
    }

    @property
    def title(self) -> str:
        return (
            f"linear layers of {self.parameters / 1e6:.3g} M weights in all, one thread, on "
            f"{self.machine} ({self.capability}); × is faster than {EAGER}"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each implementation, the fastest first, by the number of rows."""
        return table_of(self.columns, sorted(self.rows, key=lambda row: (row.rows, row.ms)))


def stack(width: int, inner: int, blocks: int, answers: int) -> nn.Module:
    """The blocks and a final layer of `answers` outputs, initialized from one random seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            *(Block(width, inner) for _ in range(blocks)), nn.Linear(width, answers, bias=False)
        ).eval()


def bench(
    rows: Annotated[
        list[int] | None,
        typer.Argument(help="Rows of a call; 1, 8, 32 and 64 where none is named."),
    ] = None,
    *,
    seconds: Seconds = 30.0,
    width: Annotated[int, typer.Option(help="Numbers a token.", min=1)] = 768,
    inner: Annotated[
        int, typer.Option(help="Numbers a token between a block's last layers.", min=1)
    ] = 2048,
    blocks: Annotated[int, typer.Option(help="Blocks of seven linear layers.", min=0)] = 12,
    answers: Annotated[int, typer.Option(help="Outputs of the last layer.", min=1)] = 32000,
    engines: Annotated[
        str, typer.Option(help="Which engines beside, separated by commas.")
    ] = "onnxruntime,openvino",
) -> Int4Bench:
    """Time the linear layers of a Llama-like model in int4, one token and more at a time, against
    fp32 and bf16, one thread, all in turn.
    """
    beside = [name for name in engines.split(",") if name]
    model = stack(width, inner, blocks, answers)
    measured: list[Int4Row] = []
    failures: dict[str, str] = {}
    with progress("rows", len(rows or ROWS)) as shown:
        for count in rows or ROWS:
            inputs = torch.randn(count, width, generator=torch.Generator().manual_seed(count))
            with threads(1):
                measured += _measured(Workload(model, inputs), count, seconds, beside, failures)
            shown.advance(doing=str(count))
    return Int4Bench(
        capability=torch.backends.cpu.get_cpu_capability(),
        parameters=sum(weight.numel() for weight in model.parameters()),
        rows=tuple(measured),
        failures=failures,
    )


def _measured(
    work: Workload, count: int, seconds: float, engines: Sequence[str], failures: dict[str, str]
) -> Iterator[Int4Row]:
    inputs = work.inputs
    ways = {EAGER: work.model, **_ways(work, engines, failures)}
    with running(*ways.values()):
        candidates = [Candidate(name, partial(inputs, model), 1) for name, model in ways.items()]
        reference = inputs(work.model)
        errors = {
            candidate.name: output_error([reference], [candidate.call()])[0]
            for candidate in candidates
        }
        *_, samples = rounds_in_turn(candidates, rounds=60, seconds=seconds)
    for name, timing in samples.items():
        ratio, interval = ratio_of_rounds(samples[EAGER], timing)
        yield Int4Row(
            way=name,
            rows=count,
            ms=timing.median_ms,
            ratio=ratio,
            interval=interval,
            error=errors[name],
        )


def _ways(work: Workload, engines: Sequence[str], failures: dict[str, str]) -> dict[str, nn.Module]:
    """The available implementations; the failure of an engine is recorded."""
    live = apply(work, Recipe([INT4])).model
    ways = {
        "eager bf16": apply(work, Recipe([{"precision": {"default": "bf16"}}])).model,
        "int4": live,
        "int4, always integers": _with_few_rows(live, ALWAYS),
        "int4, always weights": _with_few_rows(live, NEVER),
    }
    for engine in engines:
        try:
            ways[f"int4, {engine}"] = apply(
                work, Recipe([INT4, {"backend": {"name": engine, "threads": 1}}])
            ).model
        except PaifuserError as error:
            failures[f"int4, {engine}"] = str(error)
    return ways


def _with_few_rows(model: nn.Module, most: int) -> nn.Module:
    """A copy whose linear layers take up to `most` rows for few."""
    copied = copy.deepcopy(model)
    for layer in copied.modules():
        if isinstance(layer, WeightsOnly):
            layer.few_rows = most
    return copied
