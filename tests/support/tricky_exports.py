"""Models that exporters turn into wrong files without an error, and what ours does with each: the
file is right on inputs that the export never saw, or the model is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from paifuser_lab.converter import Exportable, export, target_of
from paifuser_lab.errors import PaifuserError, first_line
from paifuser_lab.measure import output_error
from paifuser_lab.records import Record

Outcome = Literal["right", "refused", "wrong"]
ALLOWED = 1e-3  # relative L2 on inputs that the export did not see
SCALES = (1.0, -1.0, 0.05, 4.0)  # of these inputs
BATCH, WIDTH = 2, 6


class TrickyRow(Record):
    """One hard model: what came of its export, with a fixed or an open batch."""

    name: str
    what: str
    dynamic: bool
    outcome: Outcome
    error: float | None = None  # the largest on inputs that the export did not see
    refused: str = ""


class Tricky(nn.Module):
    """A linear layer, and a forward of its own behind it."""

    def __init__(self, rest: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(WIDTH, WIDTH), rest

    def forward(self, x: Tensor) -> Any:
        return self.rest(self.first(x))


class Tied(nn.Module):
    """An embedding whose weight is the output layer's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(32, WIDTH), nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        """Token scores; the tokens are made of the input."""
        tokens = (x.abs() * 7).long().clamp(max=31)
        scores: Tensor = self.head(self.table(tokens))
        return scores


class Counter(nn.Module):
    """Counts its calls in a buffer, or in an attribute of Python, and scales by them."""

    seen: Tensor

    def __init__(self, *, is_buffer: bool) -> None:
        super().__init__()
        self.is_buffer, self.calls = is_buffer, 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.is_buffer:
            self.seen += 1
            return x * self.seen
        self.calls += 1
        return x * self.calls


class Recurrent(nn.Module):
    """A GRU over a sequence of the input's values."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x[..., None])[0][:, -1]  # type: ignore[no-any-return]


@torch.library.custom_op("paifuser_tricky::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """A custom operator, for which no exporter has a conversion."""
    return x * 2


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Rounded(torch.autograd.Function):
    """A rounding with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def branch(x: Tensor) -> Tensor:
    """Another function for a positive sum."""
    return x * 2 if x.sum() > 0 else x - 1


def shape_branch(x: Tensor) -> Tensor:
    """Another function for large batches."""
    return x * 2 if x.shape[0] > 3 else x - 1


def halved(x: Tensor) -> Tensor:
    """Halved as often as its values need it."""
    while x.abs().max() > 0.5:
        x = x / 2
    return x


def rows_in_turn(x: Tensor) -> Tensor:
    """A loop over the batch."""
    return torch.stack([row.softmax(0) for row in x])


def early_exit(x: Tensor) -> Tensor:
    """A loop that ends where the values are small."""
    for _ in range(4):
        if float(x.abs().mean()) < 0.2:
            break
        x = x * 0.5
    return x


def in_place(x: Tensor) -> Tensor:
    """A column of a view overwritten, then read."""
    part = x[:, 1:4]
    part.mul_(2)
    x[:, 0] = part.sum(1)
    return x.relu_()


def of_the_input(x: Tensor) -> Tensor:
    """The sum of an input and what an in-place operator made of it."""
    return x.add_(1) + x


def floor_divided(x: Tensor) -> Tensor:
    """Integers divided towards minus infinity, and their remainders."""
    numbers = (x * 10).long()
    return numbers // 3 + numbers % 4


def with_numpy(x: Tensor) -> Tensor:
    """A detour through NumPy, which no exporter sees."""
    return x + torch.from_numpy(x.detach().numpy().clip(0, 1))


def gathered(x: Tensor) -> dict[str, Tensor]:
    """Advanced indices, negative ones and an einsum, in a dict."""
    rows = x[torch.arange(x.shape[0]), -1]
    return {"last": rows, "outer": torch.einsum("bi,bj->bij", x, x.flip(1))[:, [0, -1]]}


def scanned_if(x: Tensor) -> Tensor:
    """A branch that exporters can express."""
    return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))  # type: ignore[no-any-return]


# name → what is hard, and the model
TRICKY: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "branch": ("a branch by values", lambda: Tricky(branch)),
    "shape-branch": ("a branch by the batch", lambda: Tricky(shape_branch)),
    "cond": ("torch.cond", lambda: Tricky(scanned_if)),
    "while": ("a loop by values", lambda: Tricky(halved)),
    "early-exit": ("a loop that values end", lambda: Tricky(early_exit)),
    "loop": ("a loop over the batch", lambda: Tricky(rows_in_turn)),
    "in-place": ("views updated in place", lambda: Tricky(in_place)),
    "input-in-place": ("the input updated in place", lambda: _Plain(of_the_input)),
    "tied": ("tied weights", Tied),
    "custom-operator": ("a custom operator", lambda: Tricky(doubled)),
    "buffer": ("a buffer that counts calls", lambda: Counter(is_buffer=True)),
    "attribute": ("an attribute that counts calls", lambda: Counter(is_buffer=False)),
    "random": ("random numbers", lambda: Tricky(lambda x: x + torch.rand_like(x))),
    "dropout": ("dropout that never ends", lambda: Tricky(lambda x: F.dropout(x, 0.5, True))),
    "item": ("a scale read by .item()", lambda: Tricky(lambda x: x / x.abs().max().item())),
    "numpy": ("a detour through NumPy", lambda: Tricky(with_numpy)),
    "mask": ("a shape that values decide", lambda: Tricky(lambda x: x[x > 0].sum()[None])),
    "fft": ("complex numbers", lambda: Tricky(lambda x: torch.fft.rfft(x).abs())),
    "integers": ("floor division of negative integers", lambda: _Plain(floor_divided)),
    "indices": ("advanced indices, in a dict", lambda: Tricky(gathered)),
    "function": ("an autograd.Function", lambda: Tricky(Rounded.apply)),
    "parametrized": (
        "a weight computed in each call",
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)), nn.Tanh()),
    ),
    "recurrent": ("a GRU", Recurrent),
}


class _Plain(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def tricky_row(name: str, *, dynamic: bool, target: str = "onnx") -> TrickyRow:
    """Export one hard model, and run the file on inputs that the export did not see."""
    what, build = TRICKY[name]
    torch.manual_seed(0)
    model = build().eval()
    row: dict[str, Any] = {"name": name, "what": what, "dynamic": dynamic}
    with tempfile.TemporaryDirectory(prefix="paifuser-bench-") as folder:
        kind = target_of(target)
        path = Path(folder) / f"model{kind.suffix}"
        inputs = torch.randn(BATCH, WIDTH)
        try:
            export(model, target, path, inputs=inputs, seconds=0, dynamic=dynamic)
        except PaifuserError as problem:
            return TrickyRow(**row, outcome="refused", refused=first_line(problem))
        error = _largest_error(Exportable.of(model, inputs), kind.opened(path, 1), dynamic=dynamic)
    return TrickyRow(**row, outcome="right" if error <= ALLOWED else "wrong", error=error)


def _largest_error(exportable: Exportable, run: Any, *, dynamic: bool) -> float:
    """The largest error on new inputs, of the example's batch or of others."""
    generator, largest = torch.Generator().manual_seed(1), 0.0
    for scale in SCALES:
        for batch in (BATCH, 1, 5) if dynamic else (BATCH,):
            x = torch.randn(batch, WIDTH, generator=generator) * scale
            with torch.no_grad():
                expected = exportable.outputs([x])
            try:
                largest = max(largest, output_error(expected, run([x.clone()]))[0])
            except Exception:  # a file that fails on inputs that the model takes is wrong
                return float("inf")
    return largest
