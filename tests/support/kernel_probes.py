"""The expected results of the functions of common.cuh, by an independent numpy model of PTX's
specification, for the emulator and a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from paifuser_lab.kernels.kernel import Launch

LANE = np.arange(32)
GROUP, QUAD = LANE // 4, LANE % 4
Run = Callable[[Launch], None]


def launched(
    run: Run, entry: str, *arguments: Tensor, shared_bytes: int = 0, device: str = "cpu"
) -> list[np.ndarray]:
    """The arguments after one warp ran."""
    moved = tuple(argument.to(device) for argument in arguments)
    run(Launch("probe", entry, (1, 1, 1), (32, 1, 1), shared_bytes, moved))
    return [argument.cpu().numpy() for argument in moved]


def check_products(run: Run, device: str = "cpu") -> None:
    """16×16 by 16×8, integers small enough to be exact in every type."""
    generator = np.random.default_rng(0)
    left, right = generator.integers(-4, 5, (16, 16)), generator.integers(-4, 5, (16, 8))
    for kind, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        a = np.stack(
            [
                left[GROUP + 8 * (r % 2)][LANE, 2 * QUAD + 8 * (r // 2) + i]
                for r in range(4)
                for i in range(2)
            ],
            1,
        )
        b = np.stack([right[2 * QUAD + 8 * r + i, GROUP] for r in range(2) for i in range(2)], 1)
        words = [
            torch.from_numpy(operand.astype(np.float32)).to(dtype).view(torch.int32)
            for operand in (a, b)
        ]
        *_, result = launched(
            run, f"probe_product<{kind}>", *words, torch.zeros(32, 4), device=device
        )
        product = left @ right
        expected = np.stack(
            [product[GROUP + 8 * (r // 2), 2 * QUAD + r % 2] + r + 1 for r in range(4)], 1
        )
        np.testing.assert_array_equal(result, expected)


def check_whole_products(run: Run, device: str = "cpu") -> None:
    """16×32 by 32×8 in integers with and without a sign, with the extremes."""
    generator = np.random.default_rng(0)
    for kind in (np.int8, np.uint8):
        left, right = (
            random_integers(generator, shape, operand)
            for shape, operand in (((16, 32), kind), ((32, 8), np.int8))
        )
        a = np.stack(
            [
                left[GROUP + 8 * (r % 2), 4 * QUAD + 16 * (r // 2) + i]
                for r in range(4)
                for i in range(4)
            ],
            1,
        )
        b = np.stack([right[4 * QUAD + 16 * r + i, GROUP] for r in range(2) for i in range(4)], 1)
        words = [torch.from_numpy(operand).view(torch.int32) for operand in (a, b)]
        room = torch.zeros(32, 4, dtype=torch.int32)
        *_, result = launched(
            run, f"probe_whole_product<{kind.__name__}>", *words, room, device=device
        )
        product = left.astype(int) @ right.astype(int)
        expected = np.stack(
            [product[GROUP + 8 * (r // 2), 2 * QUAD + r % 2] + 3 * (r == 0) for r in range(4)], 1
        )
        np.testing.assert_array_equal(result, expected)


def check_bytes(run: Run, device: str = "cpu") -> None:
    """Sums of four integer products, with the extremes, and permuted bytes of two words."""
    generator = np.random.default_rng(0)
    for kind in (np.int8, np.uint8):
        left, right = (
            random_integers(generator, (32, 4), kind),
            random_integers(generator, (32, 4), np.int8),
        )
        words = [torch.from_numpy(operand).view(torch.int32).flatten() for operand in (left, right)]
        rooms = (torch.zeros(32, dtype=torch.int32) for _ in range(2))
        *_, sums, mixed = launched(
            run, f"probe_bytes<{kind.__name__}>", *words, *rooms, device=device
        )
        np.testing.assert_array_equal(sums, (left.astype(int) * right.astype(int)).sum(1) + LANE)
        both = np.concatenate([left.view(np.uint8), right.view(np.uint8)], 1)
        indices = (0x7640 + LANE % 4 * 0x1111)[:, None] >> 4 * np.arange(4) & 7
        np.testing.assert_array_equal(
            mixed.view(np.uint8).reshape(32, 4), np.take_along_axis(both, indices, 1)
        )


def random_integers(
    generator: np.random.Generator, shape: tuple[int, int], kind: type[np.integer]
) -> np.ndarray:
    """Random integers of a type's whole range, including both ends."""
    ends = np.iinfo(kind)
    numbers = generator.integers(ends.min, ends.max + 1, shape).astype(kind)
    numbers[0, :4], numbers[1, :4] = ends.min, ends.max
    return numbers


def check_matrices(run: Run, device: str = "cpu") -> None:
    """Four 8×8 matrices loaded by rows and by columns, one row of them zeros."""
    numbers = np.arange(1, 257, dtype=np.int16).reshape(4, 8, 8)
    words = torch.from_numpy(numbers).view(torch.int32).flatten()
    held = numbers.copy()
    held[0, 5] = 0
    for is_transposed in ("false", "true"):
        out = torch.zeros(32, 4, dtype=torch.int32)
        _, result = launched(
            run, f"probe_matrices<{is_transposed}>", words, out, shared_bytes=512, device=device
        )
        matrices = held if is_transposed == "false" else held.transpose(0, 2, 1)
        expected = np.stack(
            [matrices[m][GROUP, 2 * QUAD + i] for m in range(4) for i in range(2)], 1
        )
        np.testing.assert_array_equal(result.view(np.int16), expected)


def check_lanes(run: Run, device: str = "cpu") -> None:
    """Shuffles within 8 lanes, and a vote."""
    (result,) = launched(
        run, "probe_lanes<8>", torch.zeros(5, 32, dtype=torch.int32), device=device
    )
    votes = sum(1 << lane for lane in range(0, 32, 3))
    expected = [
        LANE ^ 5,
        np.where(LANE % 8 + 3 < 8, LANE + 3, LANE),
        np.where(LANE % 8 >= 3, LANE - 3, LANE),
        LANE // 8 * 8 + 7,
        np.full(32, votes),
    ]
    np.testing.assert_array_equal(result.view(np.uint32), np.stack(expected))


def check_numbers(run: Run, device: str = "cpu") -> None:
    """Rounding to even, NaN, infinities and zeros of both signs; 2^x and 1/x to three units of the
    last place.
    """
    odd = [
        0.0,
        -0.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1 + 2**-8,
        1 + 3 * 2**-8,
        1 + 2**-11,
        65504.0,
        70000.0,
        1e-3,
        -7.25,
    ]
    numbers = torch.cat([torch.tensor(odd), torch.randn(64 - len(odd)) * 3])
    for kind, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        rooms = [torch.zeros(32, dtype=torch.int32), *(torch.zeros(32) for _ in range(4))]
        _, packed, low, high, power, inverse = launched(
            run, f"probe_numbers<{kind}>", numbers, *rooms, device=device
        )
        rounded = numbers.to(dtype)
        known = ~numbers.isnan().numpy()
        np.testing.assert_array_equal(
            packed.view(np.int16)[known], rounded.view(torch.int16).numpy()[known]
        )
        np.testing.assert_array_equal(np.stack([low, high], 1).flatten(), rounded.float().numpy())
        first = numbers[:32].numpy()
        with np.errstate(divide="ignore", over="ignore"):
            np.testing.assert_allclose(power, np.exp2(first), rtol=4e-7)
            np.testing.assert_allclose(inverse, 1 / first, rtol=4e-7)


CHECKS = (
    check_products,
    check_whole_products,
    check_bytes,
    check_matrices,
    check_lanes,
    check_numbers,
)
ENTRIES = (
    *(
        f"probe_{what}<{kind}>"
        for what in ("product", "numbers")
        for kind in ("bfloat16", "float16")
    ),
    *(f"probe_{what}<{kind}>" for what in ("whole_product", "bytes") for kind in ("int8", "uint8")),
    "probe_matrices<false>",
    "probe_matrices<true>",
    "probe_lanes<8>",
)
