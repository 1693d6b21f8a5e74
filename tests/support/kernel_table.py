"""What the tests run each kernel on, in the emulator and on a GPU: a row for each kernel.

Inputs, exact outputs and allowed errors are those of the benchmark. Only attention to blocks has
its own: its lists end early here, and its reference is masked attention, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from paifuser_lab.bench.kernels.cases import SUBJECTS, Inputs, error_of, exact
from paifuser_lab.kernels import KERNELS
from paifuser_lab.kernels.activation import ACTIVATIONS
from paifuser_lab.kernels.block_gather import BLOCK, blocks_of
from paifuser_lab.kernels.depthwise import SIDES, STRIDES
from paifuser_lab.kernels.kernel import Kernel
from paifuser_lab.kernels.tiles import Tile
from paifuser_lab.kernels.window_attention import HEADS, WINDOWS

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
INT8, UINT8 = torch.int8, torch.uint8


class Run(NamedTuple):
    """Inputs by their options, and the tile by its numbers."""

    options: dict[str, Any]
    tile: tuple[int, ...] | None = None


class Planted(NamedTuple):
    """A mistake planted in the source, and how a check of the emulator reports it."""

    check: str
    text: str
    instead: str
    words: str
    run: Run | None = None


def race(text: str, instead: str = "", run: Run | None = None) -> Planted:
    return Planted("races", text, instead, "data race.*the.cu", run)


def overflow(text: str, instead: str = "", run: Run | None = None) -> Planted:
    return Planted("bounds", text, instead, "heap-buffer-overflow", run)


def unawaited(text: str, instead: str = "", run: Run | None = None) -> Planted:
    return Planted("none", text, instead, "never waited for", run)


def oversized(text: str, instead: str, run: Run | None = None) -> Planted:
    return Planted("none", text, instead, "bytes of shared memory, the kernel takes", run)


@dataclass(frozen=True)
class Row:
    """One kernel. The `usual` options are of every run; `cases` are compiled together."""

    kernel: Kernel
    make: Callable[..., Inputs]
    cases: Sequence[dict[str, Any]]
    draw: Callable[[Callable[..., Any]], dict[str, Any]]
    clean: Sequence[Run]
    planted: Sequence[Planted]
    usual: dict[str, Any] = field(default_factory=dict)
    wrong: Sequence[tuple[str, str]] = ()  # planted errors that only the output shows
    sound: Sequence[dict[str, Any]] = ({},)
    every_tile: Sequence[Run] = ()  # the first numbers of those tiles
    on_gpu: Sequence[dict[str, Any]] = ({},)  # beside the options of each case
    poisoned: Callable[[Inputs], None] | None = None
    expected: Callable[[Inputs], Tensor] | None = None

    def inputs(self, **options: Any) -> Inputs:
        """Random inputs."""
        return self.make(**{**self.usual, **options})

    def tile(self, numbers: tuple[int, ...] | None) -> Tile | None:
        """A tile by its numbers."""
        return None if numbers is None else self.kernel.tiles.tile(numbers)

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The entries of all cases."""
        each = (self.inputs(**case) for case in self.cases)
        entries = (self.kernel.plan(self.kernel.empty(*one), *one).entry for one in each)
        return tuple(dict.fromkeys(entries))

    def error(self, output: Tensor, inputs: Inputs) -> float:
        """The error of an output against float64, relative to the allowed one."""
        expected = exact(self.kernel, inputs) if self.expected is None else self.expected(inputs)
        return error_of(output, expected, SUBJECTS[self.kernel.name].allowed(inputs, expected))


def sizes(draw: Any, side: int, unit: int, most: int) -> dict[str, Any]:
    """Images of any size that a kernel of this side can be applied to."""
    padding = draw(st.integers(0, side // 2 + 1))
    smallest = max(1, side - 2 * padding)
    length = st.integers(smallest, smallest + 18)
    channels = unit * draw(st.integers(1, most))
    return {
        "shape": (draw(st.integers(1, 2)), channels, draw(length), draw(length)),
        "padding": padding,
        "has_bias": draw(st.booleans()),
        "has_residual": draw(st.booleans()),
    }


# window attention


def draw_windows(draw: Any) -> dict[str, Any]:
    window = draw(st.sampled_from(WINDOWS))
    return {
        "dtype": draw(st.sampled_from([BF16, FP16])),
        "window": window,
        "size": draw(st.sampled_from(HEADS)),
        "grid": draw(st.tuples(*[st.integers(1, 2)] * 3)),
        "heads": draw(st.integers(1, 3)),
        "shift": draw(st.tuples(*[st.integers(0, window - 1)] * 2)),
    }


def poison_windows(inputs: Inputs) -> None:
    qkv, inputs[3][:] = inputs[0], [0, 0]
    qkv[0, 0, 0, 2, 0, 3] = float("nan")  # a value: every token of its window and head, one element
    qkv[0, 0, 7, 0, 1, 0] = float("nan")  # a query: its own output alone
    qkv[0, 7, 7, 1, 0, 5] = float("inf")  # a key


WINDOW_ATTENTION = Row(
    kernel=KERNELS["window_attention"],
    make=SUBJECTS["window_attention"].make,
    cases=[
        {"dtype": dtype, "window": window, "size": size}
        for dtype, window, size in product((BF16, FP16), WINDOWS, HEADS)
    ],
    draw=draw_windows,
    every_tile=[
        Run({"window": window, "size": size, "grid": (1, 2, 1)})
        for window, size in ((7, 32), (12, 64))
    ],
    clean=[
        *(Run({"window": window, "grid": (1, 2, 1)}) for window in (7, 8)),
        *(
            Run({"grid": (1, 2, 1), "heads": 1}, tile)
            for tile in ((2, 0, 24), (4, 1, 0), (1, 1, 40))
        ),
    ],
    planted=[
        race("__syncthreads();"),
        race("if (row < W::TOKENS)"),
        overflow("* heads + head) * HEAD, mixed", "* heads + head + 1) * HEAD, mixed"),
        unawaited("await_copies<IS_LATE ? 1 : 0>();"),
        Planted("none", "__syncthreads();", "if (warp < 3) __syncthreads();", "deadlock"),
        oversized("int token[ROWS];", "int token[ROWS + 16];"),
        Planted("none", "float scale)", "double scale)", "argument 8 .* is 8 bytes wide"),
        unawaited("    await_copies<0>();", "//", Run({}, (1, 1, 0))),
        race(
            "__syncthreads();                                     // of values",
            "//",
            Run({}, (1, 1, 0)),
        ),
    ],
    wrong=[("__syncthreads();", "")],
    sound=[{"heads": 1}],
    on_gpu=[{"grid": (2, 3, 2), "heads": 3, "shift": shift} for shift in ((0, 0), (3, 3), (0, 5))],
    poisoned=poison_windows,
)


# layers

LAYER_CASES = list(product(SIDES, STRIDES, (BF16, FP16)))


def draw_images(draw: Any) -> dict[str, Any]:
    case = draw(st.sampled_from(DEPTHWISE.cases))
    return case | sizes(draw, case["side"], 8, 17)


def poison_images(inputs: Inputs) -> None:
    inputs[0][0, 3, 5, 5] = float("nan")


DEPTHWISE = Row(
    kernel=KERNELS["depthwise"],
    make=SUBJECTS["depthwise"].make,
    # every side, stride and type, with each activation coming round: all combinations would take
    # g++ a minute
    cases=[
        {"side": side, "stride": stride, "dtype": dtype, "activation": [*ACTIVATIONS][index % 6]}
        for index, (side, stride, dtype) in enumerate(LAYER_CASES)
    ],
    draw=draw_images,
    usual={"dtype": FP16, "has_residual": True},
    every_tile=[
        Run({"side": side, "stride": stride, "activation": "silu", "shape": (1, 40, 18, 17)})
        for side, stride in ((7, 1), (5, 2))
    ],
    clean=[
        *(Run({"side": side, "stride": stride}) for side, stride in ((3, 2), (7, 1))),
        *(Run({}, tile) for tile in ((4, 16, 32, 2), (16, 8, 64, 2), (8, 16, 32, 1))),
    ],
    planted=[
        race("__syncthreads();"),
        overflow("if (left + o < out_width)"),
        overflow("has_channels = first_channel + chunk < channels", "has_channels = true"),
        unawaited("await_copies<0>();"),
        oversized("PITCH = CHANNELS + 2", "PITCH = CHANNELS + 4"),
    ],
    sound=[{"side": 7, "dtype": BF16, "activation": "relu6"}],
    on_gpu=[
        {"shape": (3, 136, 29, 17), "has_residual": has_residual} for has_residual in (False, True)
    ],
    poisoned=poison_images,
)


def draw_rows(draw: Any) -> dict[str, Any]:
    case = draw(st.sampled_from(POINTWISE.cases))
    rows = draw(st.sampled_from([(1,), (3, 5), (127,), (129,), (2, 3, 11)]))
    columns = st.integers(1, 8) if case["columns"] == 64 else st.integers(9, 20)
    return case | {
        "shape": (*rows, 8 * draw(st.integers(1, 21))),
        "columns": 8 * draw(columns),
        "has_bias": draw(st.booleans()),
        "has_residual": draw(st.booleans()),
    }


def poison_rows(inputs: Inputs) -> None:
    inputs[0][3, 5] = inputs[2][7] = inputs[3][11, 9] = float("nan")


POINTWISE = Row(
    kernel=KERNELS["pointwise"],
    make=SUBJECTS["pointwise"].make,
    # each width and activation, the types taking turns
    cases=[
        {"dtype": (BF16, FP16)[(index + columns // 64) % 2], "activation": one, "columns": columns}
        for index, one in enumerate(ACTIVATIONS)
        for columns in (64, 128)
    ],
    draw=draw_rows,
    usual={"has_residual": True, "shape": (150, 136)},
    every_tile=[
        Run({"activation": "relu", "shape": (70, 104), "columns": 136}, (rows,))
        for rows in KERNELS["pointwise"].tiles.choices["rows"]
    ],
    clean=[
        Run({}),
        *(
            Run({"shape": (70, 136)}, tile)
            for tile in ((256, 64, 32, 2, 2, 2), (64, 128, 64, 3, 2, 2), (128, 256, 32, 4, 4, 1))
        ),
    ],
    planted=[
        race("__syncthreads();                                     // all copies", "// all copies"),
        overflow("line + more < rows_left", "true"),
        overflow("const bool is_inside = start + chunk < depth", "const bool is_inside = true"),
        overflow("? rows_left : 0", "? 128 : 0"),
        oversized("OUT_PITCH = COLUMNS + 8", "OUT_PITCH = COLUMNS + 16"),
        race(
            "__syncthreads();                                       // of residual",
            "//",
            Run({"shape": (150, 24)}),
        ),
        unawaited("await_copies<0>();", "//", Run({"shape": (150, 24)})),
    ],
    wrong=[("await_copies<STAGES - 2>();", "await_copies<STAGES - 1>();")],
    sound=[{"dtype": FP16, "activation": "relu"}],
    on_gpu=[
        {"shape": (5, 201, depth), "columns": columns}
        for depth in (24, 64, 520)
        for columns in (56, 136)
    ],
    poisoned=poison_rows,
)


# int8 layers

TURNS = [(UINT8, UINT8), (INT8, INT8), (UINT8, BF16), (INT8, FP32), (UINT8, FP16)]


def draw_int8_images(draw: Any) -> dict[str, Any]:
    case = draw(st.sampled_from(DEPTHWISE_INT8.cases))
    return case | sizes(draw, case["side"], 16, 9) | {"has_zero": draw(st.booleans())}


DEPTHWISE_INT8 = Row(
    kernel=KERNELS["depthwise_int8"],
    make=SUBJECTS["depthwise_int8"].make,
    # every side and stride, types and activations coming round
    cases=[
        {
            "dtype": TURNS[index % 5][0],
            "into": TURNS[index % 5][1],
            "side": side,
            "stride": stride,
            "activation": [*ACTIVATIONS][index % 6],
            "has_residual": has_residual,
        }
        for index, (_, side, stride) in enumerate(product(range(2), SIDES, STRIDES))
        for has_residual in (False, True)
    ],
    draw=draw_int8_images,
    usual={"side": 5, "has_residual": True},
    clean=[
        Run({"dtype": INT8, "side": side, "stride": stride}) for side, stride in ((3, 2), (7, 1))
    ],
    planted=[
        race("__syncthreads();"),
        race("i / 4 * D::FOUR + i % 4 * 16);", "i / 4 * D::FOUR + (i + 1) % 4 * 16);"),
        overflow("if (left + o < out_width)"),
        overflow("has_row = first_channel + chunk < channels &&", "has_row ="),
        overflow("if (channel < channels && tap + b < KERNEL)", "if (tap + b < KERNEL)"),
        unawaited("await_copies<0>();"),
        oversized("TAPS = (KERNEL + 3) / 4;", "TAPS = (KERNEL + 7) / 4;"),
    ],
    wrong=[
        ("make_uint4(zeros, zeros, zeros, zeros)", "make_uint4(0, 0, 0, 0)"),
        ("0x7654 - 0x1111 * late", "0x7654"),
        ("sum[o][c] + shift[c]", "sum[o][c]"),
        ("above(more, c) - base", "above(more, c) - ABOVE"),
        ("slot % 4 * 16 + slot / 4 * 4", "slot * 4"),
    ],
    sound=[
        {"side": 3, "activation": "none"},
        {"into": BF16, "activation": "relu6"},
    ],
    on_gpu=[{"shape": (3, 144, 29, 17)}],
)


def draw_int8_rows(draw: Any) -> dict[str, Any]:
    rows = draw(st.sampled_from([(1,), (3, 5), (127,), (129,), (2, 3, 11)]))
    return draw(st.sampled_from(POINTWISE_INT8.cases)) | {
        "shape": (*rows, 16 * draw(st.integers(1, 17))),
        "columns": 16 * draw(st.integers(1, 10)),
        "has_bias": draw(st.booleans()),
        "has_residual": draw(st.booleans()),
        "has_zero": draw(st.booleans()),
    }


# to the same type and to every float type, the activations taking turns: a clamp is left to the
# rounding
INT8_PAIRS = [
    *((kind, kind, one) for kind in (UINT8, INT8) for one in ACTIVATIONS),
    *(
        (kind, into, [*ACTIVATIONS][(index + 3 * turn) % 6])
        for turn, kind in enumerate((UINT8, INT8))
        for index, into in enumerate((BF16, FP16, FP32))
    ),
]

POINTWISE_INT8 = Row(
    kernel=KERNELS["pointwise_int8"],
    make=SUBJECTS["pointwise_int8"].make,
    cases=[
        {"dtype": kind, "into": into, "activation": one, "columns": columns}
        for kind, into, one in INT8_PAIRS
        for columns in (64, 80)
    ],
    draw=draw_int8_rows,
    usual={"has_residual": True, "shape": (150, 208)},
    clean=[Run({}), Run({"dtype": INT8, "into": FP32, "shape": (150, 80)})],
    planted=[
        race("__syncthreads();                                     // all copies", "// all copies"),
        race(
            "__syncthreads();\n#pragma unroll\n    for (int more",
            "\n#pragma unroll\n    for (int more",
        ),
        overflow("line + more < rows_left", "true"),
        overflow("is_inside = start + chunk < depth", "is_inside = true"),
        overflow("const bool is_there = column < columns", "const bool is_there = true"),
        oversized("OUT_PITCH = COLUMNS + 16", "OUT_PITCH = COLUMNS + 32"),
        race(
            "__syncthreads();                                       // of residual",
            "//",
            Run({"shape": (150, 48)}),
        ),
        unawaited("await_copies<0>();", "//", Run({"shape": (150, 48)})),
    ],
    wrong=[
        ("await_copies<P::STAGES - 2>();", "await_copies<P::STAGES - 1>();"),
        ("made[eight % 2 * 2 + 1] + shift.y", "made[eight % 2 * 2 + 1]"),
        ("above(more, 1) - base", "above(more, 1) - ABOVE"),
        ("k + lane / 8 % 2 * 16", "k + lane / 8 % 2 * 32"),
    ],
    sound=[{"activation": "relu"}, {"into": BF16, "activation": "none"}],
    on_gpu=[
        {"shape": (5, 201, depth), "columns": columns}
        for depth in (32, 64, 528)
        for columns in (48, 144)
    ],
)


# attention to listed blocks


def lists(
    *,
    dtype: torch.dtype = BF16,
    size: int = 64,
    batch: int = 1,
    heads: int = 2,
    tokens: tuple[int, int] = (130, 200),
    most: int = 2,
    ends: Sequence[int] = (),
    is_causal: bool = False,
    lengths: Sequence[int] | None = None,
    scale: float = 0.1,
    is_ascending: bool = True,
) -> Inputs:
    """Queries and keys, and for each block of queries random blocks, each once; some lists end
    early.
    """
    queries, keys = tokens
    query = torch.randn(batch, heads, queries, size).to(dtype)
    key, value = torch.randn(2, batch, heads, keys, size).to(dtype)
    order = torch.rand(batch, heads, blocks_of(queries), blocks_of(keys)).argsort(-1)
    kept = order[..., :most].sort(-1, descending=not is_ascending).values.int()
    for row, end in enumerate(ends):
        kept[..., row % kept.shape[2], end:] = -1
    limits = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    return query, key, value, kept, limits, is_causal, scale


def masked(inputs: Inputs) -> Tensor:
    """Attention to all in float64, masked entry by entry; written for clearness alone."""
    query, key, value, kept, lengths, is_causal, scale = inputs
    queries, keys = query.shape[2], key.shape[2]
    seen = torch.zeros(*query.shape[:2], queries, keys, dtype=torch.bool)
    for b, h, block, number in listed(kept):
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        seen[b, h, rows, number * BLOCK : (number + 1) * BLOCK] = True
    if lengths is not None:
        for b, length in enumerate(lengths.tolist()):
            seen[b, :, :, max(0, length) :] = False
    if is_causal:
        seen &= torch.ones(queries, keys).tril().bool()
    scores = query.double() @ key.double().transpose(-1, -2) * scale
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
    return weights.nan_to_num(0.0) @ value.double()


def listed(kept: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Sample, head, block of queries and block of keys of every entry before a list's end."""
    for place in product(*map(range, kept.shape[:3])):
        for number in kept[place].tolist():
            if number < 0:
                break
            yield *place, number


def draw_lists(draw: Any) -> dict[str, Any]:
    keys = draw(st.sampled_from([1, 63, 64, 129, 200]))
    most, batch = draw(st.integers(1, blocks_of(keys))), draw(st.integers(1, 2))
    length = st.lists(st.integers(-1, keys + 9), min_size=batch, max_size=batch)
    return {
        "dtype": draw(st.sampled_from([BF16, FP16])),
        "size": draw(st.sampled_from([64, 128])),
        "batch": batch,
        "heads": draw(st.integers(1, 2)),
        "tokens": (draw(st.sampled_from([1, 40, 64, 65, 150])), keys),
        "most": most,
        "ends": draw(st.lists(st.integers(0, most), max_size=3)),
        "is_causal": draw(st.booleans()),
        "lengths": draw(st.one_of(st.none(), length)),
        "scale": draw(st.sampled_from([0.05, 0.125, 1.0])),
        "is_ascending": draw(st.booleans()),
    }


LATE = [(1, stages, 1, 1, 2) for stages in (2, 3)]

BLOCK_SPARSE = Row(
    kernel=KERNELS["block_sparse_attention"],
    make=lists,
    cases=[{"dtype": dtype, "size": size} for dtype in (BF16, FP16) for size in (64, 128)],
    draw=draw_lists,
    every_tile=[
        Run(
            {
                "size": size,
                "heads": 1,
                "tokens": (130, 300),
                "most": 5,
                "ends": (9, 2, 4),
                "is_causal": size == 64,
                "lengths": [290],
            }
        )
        for size in (64, 128)
    ],
    clean=[
        Run({"most": 4, "is_causal": True, "lengths": [150]}),
        *(
            Run({"heads": 1, "most": 4, "ends": (4, 1), "is_causal": True, "lengths": [150]}, tile)
            for tile in ((2, 2, 1, 0, 2), (1, 3, 0, 1, 3), (2, 4, 0, 1, 2))
        ),
    ],
    usual={"most": 4},
    planted=[
        race(
            "__syncthreads();                                     // all keys of this stage",
            "//",
            Run({"size": 128}),
        ),
        overflow("chunk, row < there);", "chunk, true);", Run({"size": 128})),
        overflow("if (row < queries)", "", Run({"size": 128})),
        unawaited(
            "    await_copies<GROUPS * (STAGES - 2) + GROUPS - 1>();", "", Run({"size": 128})
        ),
        oversized("PITCH = SIZE + 8", "PITCH = SIZE + 16", Run({"size": 128})),
        *(
            unawaited(
                "      await_copies<GROUPS * (STAGES - 1)>();",
                "await_copies<GROUPS * (STAGES - 1) + 1>();",
                Run({}, tile),
            )
            for tile in LATE
        ),
        *(
            race(
                "__syncthreads();                                   // all values",
                "//",
                Run({}, tile),
            )
            for tile in LATE
        ),
    ],
    wrong=[("await_copies<GROUPS * (STAGES - 1)>();               // of the queries", "//")],
    sound=[{"heads": 1, "tokens": (70, 70), "most": 2, "is_causal": True, "lengths": [66]}],
    on_gpu=[
        {
            "batch": 2,
            "heads": 3,
            "tokens": (650, 650),
            "most": 6,
            "ends": (2, 6, 0),
            "is_causal": is_causal,
            "lengths": lengths,
        }
        for is_causal in (False, True)
        for lengths in (None, [600, 333])
    ],
    expected=masked,
)

ROWS = {
    row.kernel.name: row
    for row in (
        WINDOW_ATTENTION,
        DEPTHWISE,
        POINTWISE,
        DEPTHWISE_INT8,
        POINTWISE_INT8,
        BLOCK_SPARSE,
    )
}
