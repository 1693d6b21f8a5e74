"""Tiles compiled, dropped, ranked, stored and read again; fakes stand in for the GPU."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from paifuser_lab.bench.kernels.cases import cases, exact
from paifuser_lab.bench.kernels.tuning import Contest, published, ranked_offline, tunable, winner
from paifuser_lab.cli import program
from paifuser_lab.errors import KernelError, MeasureError
from paifuser_lab.kernels import tiles as tiles_module
from paifuser_lab.kernels.disassembly import instructions_run, unit_of
from paifuser_lab.kernels.kernel import Kernel, Launch
from paifuser_lab.kernels.tiles import Tiles, forget_measured_tiles, measured_tile
from paifuser_lab.kernels.tuning import candidates as candidates_module
from paifuser_lab.kernels.tuning import store
from paifuser_lab.kernels.tuning.bound import (
    LIMITS,
    Bound,
    blocks_at_once,
    bound_of,
    device_of,
    limits_of,
)
from paifuser_lab.kernels.tuning.candidates import Candidate, Candidates, compile_tiles
from paifuser_lab.kernels.tuning.store import Best, keep, measured_on
from paifuser_lab.machine.datasheets import find_device
from tests.support.kernel_checks import needs_disassembler, needs_nvrtc

H200 = device_of(find_device("H200").device)
GPU = torch.device("cuda", 0)
CHOICES = {"rows": (64, 128), "stages": (2, 3)}


def with_kernel(case, **changes):
    """A case whose kernel differs."""
    kernel = replace(case.kernel, **changes)
    return replace(case, subject=replace(case.subject, kernel=kernel))


def launch(threads=256, shared_bytes=0, blocks=132, *tensors):
    return Launch(
        "made", f"made<{threads}>", (blocks, 1, 1), (threads, 1, 1), shared_bytes, tensors
    )


# how many blocks run at once


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared_bytes", "count"),
    [
        ((9, 0), 256, 128, 0, 2),  # registers
        ((9, 0), 256, 129, 0, 1),  # which are allocated in eights
        ((9, 0), 128, 32, 0, 16),  # threads
        ((8, 6), 128, 32, 0, 12),
        ((9, 0), 32, 16, 0, 32),  # blocks
        # shared memory, a kilobyte of which is reserved for each block
        ((9, 0), 128, 32, 75 << 10, 3),
        ((9, 0), 128, 32, 76 << 10, 2),
        ((8, 0), 128, 32, 164 << 10, 0),
        ((9, 0), 1024, 128, 0, 0),
    ],
)
def test_a_multiprocessor_runs_as_many_blocks_as_its_scarcest_resource_allows(
    capability, threads, registers, shared_bytes, count
):
    assert blocks_at_once(launch(threads, shared_bytes), registers, LIMITS[capability]) == count


@given(
    st.sampled_from(sorted(LIMITS)),
    st.integers(1, 32),
    st.integers(1, 255),
    st.integers(0, 227 << 10),
)
def test_more_resources_per_block_never_allow_more_blocks(
    capability, warps, registers, shared_bytes
):
    count = partial(blocks_at_once, limits=LIMITS[capability])
    now = count(launch(32 * warps, shared_bytes), registers)
    assert now >= count(launch(32 * warps, shared_bytes + 512), registers)
    assert now >= count(launch(32 * warps, shared_bytes), registers + 1)
    assert now >= count(launch(32 * warps + 32, shared_bytes), registers)
    assert now * warps * 32 * registers <= 1 << 16


def test_a_capability_has_the_limits_of_its_generation_or_is_refused():
    assert limits_of((10, 3)) == LIMITS[10, 0] and limits_of((8, 7)) == LIMITS[8, 6]
    with pytest.raises(KernelError, match=r"7\.5"):
        limits_of((7, 5))


# how many instructions run


LISTING = """
\t\t.text:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0020*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0030*/                   HMMA.16816.F32.BF16 R12, R4, R7, R12 ;
        /*0040*/              @!P0 BRA `(.L_x_1) ;
        /*0050*/              @P1 BRA `(.L_x_2) ;
        /*0060*/                   FFMA R1, R1, R1, R1 ;
.L_x_2:
        /*0070*/                   EXIT ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3);
        /*0090*/                   NOP;
"""


def test_the_loop_that_multiplies_counts_as_often_as_the_operations_require():
    once = 9  # each instruction but the padding
    assert instructions_run(LISTING, 2 * 4096) == once
    assert instructions_run(LISTING, 10 * 2 * 4096) == once + 9 * 4
    assert instructions_run(LISTING, 1) == once, "never less than the code itself"
    assert unit_of(LISTING) == "matrices"


def test_without_matrix_products_the_multiply_adds_are_counted():
    plain = LISTING.replace("HMMA.16816.F32.BF16", "FFMA")
    assert unit_of(plain) == "plain"
    assert instructions_run(plain, 64 + 10 * 2 * 64) == 9 + 9 * 4
    bytes_of_four = LISTING.replace("HMMA.16816.F32.BF16", "IDP.4A.U8.S8")
    assert unit_of(bytes_of_four) == "four bytes"
    assert instructions_run(bytes_of_four, 10 * 2 * 256) == 9 + 9 * 4
    assert unit_of(LISTING.replace("HMMA.16816.F32.BF16", "IMMA.16832.U8.S8")) == "int8 matrices"


def test_code_without_a_loop_counts_once():
    assert instructions_run(LISTING.replace("BRA `(.L_x_1)", "NOP"), 1e9) == 8


# the bound


def test_a_bound_is_the_largest_of_bytes_products_and_instructions():
    moved = torch.empty(48_000_000, dtype=torch.uint8, device="meta")
    bound = bound_of(launch(128, 0, 132, moved), 9_895_000_000, 1000, unit="matrices", device=H200)
    assert bound.bytes_us == pytest.approx(10.0)
    assert bound.products_us == pytest.approx(10.0)
    # a block on each multiprocessor
    assert bound.issue_us == pytest.approx(1000 * 4 / 4 / 1983, rel=0.01)
    assert bound.us == max(bound)


def test_one_block_too_many_makes_the_busiest_multiprocessor_twice_as_busy():
    full = bound_of(launch(128, 0, 132), 10**9, 1000, unit="matrices", device=H200)
    more = bound_of(launch(128, 0, 133), 10**9, 1000, unit="matrices", device=H200)
    assert more.issue_us == pytest.approx(2 * full.issue_us)
    assert more.products_us == pytest.approx(2 * full.products_us * 132 / 133)


def test_the_clock_of_a_device_follows_from_its_rate():
    assert H200.clock_ghz == pytest.approx(1.98, abs=0.01)
    assert device_of(find_device("A100").device).clock_ghz == pytest.approx(1.41, abs=0.01)


def test_time_that_concurrent_blocks_hide_counts_less():
    bound = Bound(bytes_us=10.0, products_us=2.0, issue_us=4.0)
    alone, pair = (
        Candidate({}, 32, 0, 4, at_once, 100.0, bound).estimated_us for at_once in (1, 2)
    )
    assert (alone, pair) == (16.0, 13.0)


# compiled, dropped, ranked

SOURCE = """
extern "C++" template <int NUMBERS, int BLOCKS>
__global__ void __launch_bounds__(256, BLOCKS) made(const float* from, float* to, int turns) {
    float kept[NUMBERS];
    for (int i = 0; i < NUMBERS; ++i) kept[i] = from[threadIdx.x + i * 256];
    for (int turn = 0; turn < turns; ++turn)
#pragma unroll
        for (int i = 0; i < NUMBERS; ++i)
            kept[i] = kept[i] * kept[(i + 7) % NUMBERS] + kept[(i + 1) % NUMBERS];
    for (int i = 0; i < NUMBERS; ++i) to[threadIdx.x + i * 256] = kept[i];
}
"""


@needs_nvrtc
@needs_disassembler
def test_tiles_that_spill_or_do_not_fit_or_do_not_compile_are_dropped_with_the_reason(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    monkeypatch.setattr(candidates_module, "shipped", lambda kernel: SOURCE)
    tiles = Tiles({"numbers": (8, 64), "blocks": (1, 8), "kilobytes": (8, 300)}, {})

    def launch_of(tile):
        if tile["numbers"] == 8 and tile["blocks"] == 1 and tile["kilobytes"] == 300:
            raise KernelError("it is declined")
        entry = f"made<{tile['numbers']}, {tile['blocks']}>"
        return Launch(
            "made",
            entry,
            (132, 1, 1),
            (256, 1, 1),
            tile["kilobytes"] << 10,
            (torch.empty(256, device="meta"),),
        )

    candidates = compile_tiles(tiles, launch_of, 10**8, architecture="sm_90a", device=H200)
    reasons = {tuple(tile.values()): reason for tile, reason in candidates.dropped}
    names = {tuple(candidate.tile.values()) for candidate in candidates.ranked}
    assert names == {(8, 1, 8), (8, 8, 8), (64, 1, 8)}
    assert reasons[8, 1, 300] == "it is declined"
    assert "spill" in reasons[64, 8, 8] and "no block fits" in reasons[64, 1, 300]
    estimates = [candidate.estimated_us for candidate in candidates.ranked]
    assert estimates == sorted(estimates)
    assert all(candidate.instructions > 500 for candidate in candidates.ranked), "the loop is long"
    first = candidates.table()[0]
    assert first["rank"] == "1" and first["numbers"] in ("8", "64")


@needs_nvrtc
@needs_disassembler
def test_real_tiles_compile_for_a_gpu_that_is_not_here_and_are_ranked():
    case = next(case for case in tunable(("pointwise",)))
    some = {
        "rows": (64, 128),
        "columns": (64,),
        "depth": (32,),
        "stages": (2,),
        "down": (2,),
        "blocks": (2,),
    }
    known = case.kernel.tiles
    few = replace(
        known, choices={name: some.get(name, (known.default[name],)) for name in known.choices}
    )
    candidates = ranked_offline(with_kernel(case, tiles=few), published("H200"))
    assert len(candidates.ranked) == 2 and not candidates.dropped
    estimates = {candidate.estimated_us for candidate in candidates.ranked}
    assert len(estimates) == len(candidates.ranked), "the estimates differ"
    # 231 MB take that long on any device of today
    assert all(candidate.bound.us >= 40 for candidate in candidates.ranked)


def test_only_devices_that_run_the_kernels_can_be_ranked_for():
    with pytest.raises(KernelError, match=r"V100.*does not run these kernels; name one of A100"):
        published("V100")


# what was measured


def best(tile, ms=0.5):
    return Best(
        tile=tile, ms=ms, default_ms=1.0, when="2026-01-01T00:00:00+00:00", versions={"torch": "2"}
    )


@pytest.fixture
def h200(tmp_path, monkeypatch):
    """An H200 without tiles in the user's cache, and the folder of the shipped tiles."""
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(tiles_module, "_device_name", lambda index: "NVIDIA H200")
    monkeypatch.setattr(store, "asset", lambda name: tmp_path / "shipped" / name.rpartition("/")[2])
    forget_measured_tiles()
    yield tmp_path / "shipped"
    forget_measured_tiles()


TILES = Tiles(CHOICES, {"rows": 64, "stages": 2}, lambda tile: tile != {"rows": 128, "stages": 3})


def test_a_measured_tile_is_read_again_and_the_users_replaces_the_shipped_one(h200):
    assert measured_tile("made", TILES, "small", GPU) is None
    h200.mkdir()
    shipped = {
        "made": {
            "small": best({"rows": 64, "stages": 3}),
            "large": best({"rows": 128, "stages": 2}),
        }
    }
    (h200 / "nvidia-h200.json").write_text(
        store.Measured(device="NVIDIA H200", kernels=shipped).model_dump_json()
    )
    forget_measured_tiles()
    assert measured_tile("made", TILES, "small", GPU) == {"rows": 64, "stages": 3}
    keep("NVIDIA H200", "made", "small", best({"rows": 128, "stages": 2}))
    assert measured_tile("made", TILES, "small", GPU) == {"rows": 64, "stages": 3}, (
        "it is looked up once"
    )
    forget_measured_tiles()
    assert measured_tile("made", TILES, "small", GPU) == {"rows": 128, "stages": 2}
    assert measured_tile("made", TILES, "large", GPU) == {"rows": 128, "stages": 2}, (
        "the other shipped tiles stay"
    )
    assert measured_tile("made", TILES, "small", torch.device("cpu")) is None
    assert set(measured_on("NVIDIA H200").kernels["made"]) == {"small", "large"}
    assert measured_on("NVIDIA A100").kernels == {}


@pytest.mark.usefixtures("h200")
def test_no_file_is_read_after_the_first_time(monkeypatch):
    keep("NVIDIA H200", "made", "small", best({"rows": 128, "stages": 2}))
    assert measured_tile("made", TILES, "small", GPU)
    monkeypatch.setattr(store, "_read", lambda *_: pytest.fail("files were read again"))
    assert (
        measured_tile("made", TILES, "small", GPU)
        and measured_tile("made", TILES, "never measured", GPU) is None
    )


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(
    "tile",
    [
        {"rows": 128, "stages": 3},
        {"rows": 32, "stages": 2},
        {"rows": 64},
        {"rows": 64, "stages": 2, "x": 1},
    ],
)
def test_a_tile_that_the_source_no_longer_takes_is_ignored(tile):
    keep("NVIDIA H200", "made", "small", best(tile))
    forget_measured_tiles()
    assert measured_tile("made", TILES, "small", GPU) is None


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a valid file of tiles"),
        ("[]", "not a valid file of tiles"),
        ('{"format": 2, "device": "NVIDIA H200"}', "format"),
        ('{"format": 1, "device": "NVIDIA A100"}', "it is of NVIDIA A100"),
        (
            '{"format": 1, "device": "NVIDIA H200", '
            '"kernels": {"made": {"small": {"tile": {"rows": "rm -rf"}}}}}',
            "rows",
        ),
        (
            json.dumps(
                {
                    "device": "NVIDIA H200",
                    "kernels": {"made": {"small": {**best({}).model_dump(), "ms": -1}}},
                }
            ),
            "greater than 0",
        ),
    ],
)
def test_a_poisoned_file_is_one_warning_and_no_tile(text, message, tmp_path):
    path = tmp_path / "own" / "tuned" / "nvidia-h200.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.warns(UserWarning, match=message) as warned:
        assert measured_tile("made", TILES, "small", GPU) is None
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert measured_tile("made", TILES, "large", GPU) is None


# on a device


def fake_contest(us_of, wrong=(), default_tile=None):
    """A case of the bench whose kernel knows the output, and a clock that reads each tile's time
    from a table.
    """
    case = next(case for case in cases(is_small=True) if case.kernel.name == "pointwise")
    tiles = Tiles(CHOICES, {"rows": 64, "stages": 2})
    inputs = case.make(torch.device("cpu"))
    output = exact(case.kernel, inputs)
    clock = {"us": 0.0}

    class Fake(Kernel):
        def plan(self, out, *inputs, tile):
            return SimpleNamespace(tile=tuple(tile.values()), out=out)

    def run(launch):
        launch.out.copy_(output + 1 if launch.tile in wrong else output)
        clock["us"] += us_of[launch.tile]

    def timed(run):
        clock["us"] = 0.0
        run()
        return clock["us"] / 1e3

    changes = {"tiles": tiles, "default_tile": lambda inputs: default_tile}
    fake = Fake(**{**vars(case.kernel), **changes})
    case = replace(case, subject=replace(case.subject, kernel=fake))
    contest = Contest(case, [inputs], run, lambda calls: lambda: [call() for call in calls], timed)
    bound = Bound(1.0, 1.0, 1.0)
    candidates = tuple(Candidate(tile, 32, 0, 4, 2, 9.0, bound) for tile in tiles)
    return contest, Candidates(candidates, ())


def test_the_fastest_right_tile_wins_and_the_default_is_timed_beside_it():
    us = {(64, 2): 30.0, (64, 3): 20.0, (128, 2): 10.0, (128, 3): 25.0}
    best = winner(*fake_contest(us, wrong={(128, 2)}), budget=9, seconds=60)
    assert best.tile == {"rows": 64, "stages": 3}
    assert (best.ms, best.default_ms) == pytest.approx((0.02, 0.03))
    (failed,) = [attempt for attempt in best.search.attempts if attempt.failure]
    assert failed.tile == {"rows": 128, "stages": 2} and "off by" in failed.failure
    text = str(best)
    assert "1.50 times as fast as the default" in text and "every tile was tried" in text


def test_where_nothing_is_faster_the_default_stays():
    best = winner(
        *fake_contest(dict.fromkeys([(64, 2), (64, 3), (128, 2), (128, 3)], 10.0)),
        budget=9,
        seconds=60,
    )
    assert best.tile == {"rows": 64, "stages": 2} and best.ms == best.default_ms


def test_the_default_of_the_inputs_is_the_rival_where_a_kernel_has_one():
    us = {(64, 2): 30.0, (64, 3): 20.0, (128, 2): 10.0, (128, 3): 25.0}
    own = {"rows": 128, "stages": 2}
    best = winner(*fake_contest(us, default_tile=own), budget=9, seconds=60)
    assert best.tile == own and best.ms == best.default_ms == pytest.approx(0.01)
    assert best.search.attempts[0].tile == own


def test_a_wrong_default_is_reported_and_there_is_no_winner():
    contest, candidates = fake_contest(
        dict.fromkeys([(64, 2), (64, 3), (128, 2), (128, 3)], 10.0), wrong={(64, 2)}
    )
    with pytest.raises(
        KernelError, match="its default tile, rows 64, stages 2, fails: its output is off by"
    ):
        winner(contest, candidates, budget=9, seconds=60)


# from a terminal


def test_without_a_gpu_the_command_names_the_offline_option(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(program.app, ["tune-kernels", "pointwise"])
    assert isinstance(result.exception, MeasureError) and "--offline" in str(result.exception)


def test_the_command_ranks_offline_and_reports_that_nothing_was_timed(monkeypatch):
    tile = {"rows": 64, "stages": 2}
    row = Candidate(tile, 32, 1024, 4, 2, 900.0, Bound(3.0, 2.0, 1.0))
    monkeypatch.setattr(
        "paifuser_lab.bench.kernels.tuning.ranked_offline",
        lambda case, device: Candidates((row,), ((tile, "16 bytes spill"),)),
    )
    result = CliRunner().invoke(program.app, ["tune-kernels", "ResNet-50", "--offline"])
    assert result.exit_code == 0, result.output
    assert (
        "predicted for NVIDIA H200" in result.output
        and "1 dropped: 16 bytes spill" in result.output
    )
    assert "4.5" in result.output and "no measurement has confirmed" in result.output
