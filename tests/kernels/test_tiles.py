"""Tiles of kernels: which are valid, which one a launch uses, and which properties of the inputs
decide it.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paifuser_lab.bench.kernels.cases import cases
from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import KERNELS
from paifuser_lab.kernels import kernel as kernel_module
from paifuser_lab.kernels.kernel import rounded_size
from paifuser_lab.kernels.tiles import RESERVED_BYTES, SHARED_BYTES, Tiles

TILED = [kernel for kernel in KERNELS.values() if kernel.tiles.choices]
CASES = [case for case in cases() if case.kernel in TILED]
META = torch.device("meta")
ODD = Tiles(
    choices={"a": (1, 2), "b": (3, 4)},
    default={"a": 1, "b": 4},
    is_valid=lambda tile: tile["a"] + tile["b"] == 5,
)


def name_of(case):
    return case.name


def planned(case, **options):
    inputs = case.make(META)
    return case.kernel.plan(case.kernel.empty(*inputs), *inputs, **options)


def test_tiles_are_the_valid_combinations():
    assert list(ODD) == [{"a": 1, "b": 4}, {"a": 2, "b": 3}]
    assert all(
        (dict(zip("ab", numbers, strict=True)) in ODD) == (sum(numbers) == 5)
        for numbers in product((1, 2), (3, 4))
    )
    assert (
        {"a": 0, "b": 5} not in ODD
        and {"a": 1} not in ODD
        and {"a": 1, "b": 4, "c": 0} not in ODD
        and "a" not in ODD
    )
    assert ODD.numbers({"b": 3, "a": 2}) == (2, 3) and ODD.tile((2, 3)) == {"a": 2, "b": 3}


@pytest.mark.parametrize("kernel", TILED, ids=lambda kernel: kernel.name)
def test_a_kernel_has_some_tiles_and_its_default_is_one_of_them(kernel):
    assert kernel.tiles.default in kernel.tiles
    assert 10 < len(list(kernel.tiles)) < 200


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_tile_of_a_real_shape_fits_a_multiprocessor_and_is_an_entry_of_its_own(case):
    launches = [planned(case, tile=tile) for tile in case.kernel.tiles]
    assert len({launch.entry for launch in launches}) == len(launches)
    for launch in launches:
        assert launch.shared_bytes + RESERVED_BYTES <= SHARED_BYTES
        assert 32 <= launch.block[0] <= 1024 and launch.block[0] % 32 == 0


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_launch_uses_the_measured_tile_or_the_default(case, monkeypatch):
    lookups = []
    *_, last = case.kernel.tiles

    def measured(name, tiles, problem, device):
        lookups.append((name, tiles, problem, device))
        return last

    before = planned(case)
    numbers = ", ".join(map(str, case.kernel.tiles.numbers(default_tile(case))))
    assert before.entry.endswith(f", {numbers}>")
    monkeypatch.setattr(kernel_module, "measured_tile", measured)
    assert shape_of(planned(case)) == shape_of(planned(case, tile=last)) != shape_of(before)
    assert lookups == [
        (case.kernel.name, case.kernel.tiles, case.kernel.problem(*case.make(META)), META)
    ]


def shape_of(launch):
    return launch.entry, launch.grid, launch.block, launch.shared_bytes


def default_tile(case):
    """The default tile, or that for heads of 64."""
    if case.name == "16k tokens, a tenth":
        return {**case.kernel.tiles.default, "held": 0, "blocks": 4}
    return case.kernel.tiles.default


@pytest.mark.parametrize("kernel", TILED, ids=lambda kernel: kernel.name)
def test_a_tile_that_the_source_does_not_take_is_refused(kernel):
    case = next(case for case in CASES if case.kernel is kernel)
    name = next(iter(kernel.tiles.choices))
    with pytest.raises(
        KernelError,
        match=(
            rf"{kernel.name} has no tile {name} 5, .*; it takes {name} of .* or .*, in valid "
            r"combinations"
        ),
    ):
        planned(case, tile={**kernel.tiles.default, name: 5})
    with pytest.raises(
        KernelError, match=f"{kernel.name} has no tile without choices; it takes {name}"
    ):
        planned(case, tile={})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Swin-T stage 1, shifted", "bfloat16 windows=2^13 window=7 size=32 shifted"),
        (
            "ConvNeXt-T 7×7",
            "bfloat16 images=2^6 channels=96 size=56x56 side=7 stride=1 padding=3 none",
        ),
        ("ResNet-50 64 → 256, residual", "bfloat16 rows=2^18 depth=64 columns=256 relu residual"),
        ("8k tokens, a quarter, causal", "bfloat16 heads=2^4 blocks=2^7 most=2^5 size=128 causal"),
    ],
)
def test_a_problem_is_described_in_a_line(name, problem):
    (case,) = (case for case in CASES if case.name == name)
    assert case.kernel.problem(*case.make(META)) == problem


@given(count=st.integers(1, 1 << 40))
def test_a_size_is_rounded_up_to_a_power_of_two(count):
    power = int(rounded_size(count).removeprefix("2^"))
    assert 2**power >= count and (power == 0 or 2 ** (power - 1) < count)
