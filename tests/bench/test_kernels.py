"""The bench of kernels: all of it but a GPU's own time runs here, on the emulator and with
stand-ins for graphs and clocks.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from paifuser_lab.bench.kernels import (
    KernelBench,
    bench,
    checkout,
    int8_cases,
    peers,
    preflight,
    running,
    sparse,
    timing,
)
from paifuser_lab.bench.kernels.cases import cases, floor_bytes
from paifuser_lab.bench.kernels.checking import error_of
from paifuser_lab.bench.kernels.peers import Peer
from paifuser_lab.bench.kernels.preflight import probed
from paifuser_lab.bench.kernels.record import OURS, KernelCase, KernelProbe
from paifuser_lab.bench.kernels.running import errors_on_made_up_data
from paifuser_lab.bench.kernels.timing import calls_of, sets_needed, timed_in_turn
from paifuser_lab.cli import program
from paifuser_lab.errors import KernelError, MeasureError
from paifuser_lab.kernels import KERNELS, choose_blocks, window_attention
from paifuser_lab.kernels.launch import Launch
from paifuser_lab.kernels.runners import run_by
from paifuser_lab.records import Ceiling
from tests.support.kernel_checks import needs_compiler

CPU = torch.device("cpu")
REAL, SMALL = cases(), cases(is_small=True)
CEILING = Ceiling(threads=1, fp32_gflops=1e5, bf16_gflops=8e5, bandwidth_gbs=4000.0)


def measured(**changes):
    case = KernelCase(
        kernel="depthwise", name="3×3", floor_bytes=40_000_000, operations=80_000_000_000
    )
    case = case.model_copy(
        update={
            "errors": {OURS: 0.9},
            "us": {OURS: 20.0, "cuDNN": 50.0, "compiled": 30.0},
            **changes,
        }
    )
    blank = KernelBench(
        machine="m", ran_on="a GPU", torch_version="2", compiler="NVRTC 13.5", ceiling=CEILING
    )
    return blank.model_copy(update={"cases": (case,), "probes": (KernelProbe(name="lanes"),)})


def test_times_are_parts_of_the_ceilings_and_of_the_best_peer(tmp_path):
    made = measured()
    (row,) = made.table()
    assert row == {
        "kernel": "depthwise",
        "case": "3×3",
        "error / allowed": "0.90",
        "µs": "20.0",
        "of bandwidth": "50%",
        "of bf16 rate": "500%",
        "best peer": "compiled 30.0",
        "times as fast": "1.50 ×",
    }
    assert made.is_sound
    assert "1 of 1 probes held" in made.summary and "4.00 TB/s, 800 TFLOP/s" in made.summary
    assert KernelBench.load(made.save(tmp_path / "bench.json")) == made


def test_a_peer_that_computes_something_else_is_no_peer():
    made = measured(errors={OURS: 0.9, "compiled": 1e4})
    assert made.table()[0]["best peer"] == "cuDNN 50.0"
    assert "compiled strays 10000 times as far" in made.summary


@pytest.mark.parametrize("error", [1.5, float("inf"), float("nan")])
def test_an_answer_that_is_wrong_is_said(error, tmp_path):
    made = measured(errors={OURS: error})
    assert "WRONG" in made.table()[0]["error / allowed"]
    assert str(KernelBench.load(made.save(tmp_path / "bench.json"))) == str(made)
    assert not made.is_sound


def test_what_failed_is_said_and_what_is_missing_is_a_dash():
    made = measured(us={}, errors={}, failures={OURS: "no driver"})
    assert [
        made.table()[0][key] for key in ("error / allowed", "µs", "best peer", "times as fast")
    ] == ["–"] * 4
    assert not made.is_sound
    assert "depthwise, 3×3: ours: no driver" in made.summary
    broken = measured().model_copy(update={"probes": (KernelProbe(name="lanes", failure="other"),)})
    assert not broken.is_sound and "probe lanes: other" in broken.summary


def test_inputs_take_turns_until_the_cache_has_forgotten_them():
    assert sets_needed(10, 100) == 30
    assert sets_needed(1000, 100) == 1
    assert sets_needed(0, 1 << 40) == 64
    assert len(calls_of([lambda: None] * 3)) == 9
    assert len(calls_of([lambda: None] * 20)) == 20


def test_candidates_are_timed_in_turn_and_another_begins_each_round():
    ran = []
    taken = iter([1.0, 4.0, 6.0, 3.0, 2.0, 5.0])
    candidates = {"a": (lambda: ran.append("a"), 2), "b": (lambda: ran.append("b"), 4)}

    def clock(run):
        run()
        return next(taken)

    assert timed_in_turn(candidates, clock, 3) == {"a": 1000.0, "b": 1250.0}
    assert "".join(ran) == "abbaab"


def test_errors_are_parts_of_what_is_allowed():
    exact = torch.tensor([1.0, 2.0]).double()
    assert error_of(torch.tensor([1.0, 2.5]), exact, 1.0) == 0.5
    assert error_of(torch.tensor([1.0, float("nan")]), exact, 1.0) == float("inf")


@pytest.mark.parametrize("case", REAL, ids=lambda case: case.name)
def test_no_real_shape_is_declined(case):
    inputs = case.make(torch.device("meta"))
    out = case.kernel.empty(*inputs)
    assert isinstance(case.kernel.plan(out, *inputs), Launch)
    assert floor_bytes(inputs, out) > out.nbytes


def test_floors_are_those_of_the_docstrings():
    found = {
        case.name: (case.operations, case.make(torch.device("meta")), case.kernel) for case in REAL
    }
    operations, inputs, kernel = found["ResNet-50 64 → 256, residual"]
    assert round(floor_bytes(inputs, kernel.empty(*inputs)) / 1e6, 1) == 231.2
    assert round(operations / 1e9, 1) == 6.6


def test_without_a_gpu_it_says_what_it_cannot_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasureError, match=r"no GPU .* nothing can be timed; `--on cpu` holds"):
        bench()


def test_what_is_not_known_is_refused():
    with pytest.raises(MeasureError, match="gpu or cpu, not on 'tpu'"):
        bench(on="tpu")
    with pytest.raises(
        MeasureError, match=r"No case is called nothing; there are Swin-T stage 1, .*"
    ):
        bench(("nothing",), on="cpu")


@needs_compiler
def test_on_a_cpu_the_same_cases_run_in_the_emulator(tmp_path):
    done = CliRunner().invoke(
        program.app,
        ["bench", "kernels", "stage 3", "3×3", "--on", "cpu", "--json", str(tmp_path / "b.json")],
    )
    assert done.exit_code == 0, done.output
    found = KernelBench.load(tmp_path / "b.json")
    assert [case.name for case in found.cases] == ["Swin-T stage 3, shifted", "MobileNetV2 3×3"]
    assert all(0 < case.errors[OURS] <= 1 and not case.us for case in found.cases)
    assert len(found.probes) == 6 and found.is_sound
    assert "Nothing was timed" in found.summary


@needs_compiler
def test_a_kernel_that_writes_nothing_is_wrong_and_the_command_fails(monkeypatch):
    monkeypatch.setattr(running, "emulated", lambda: lambda launch: None)
    monkeypatch.setattr(running, "probed", lambda _: ())
    done = CliRunner().invoke(program.app, ["bench", "kernels", "3×3", "--on", "cpu"])
    assert done.exit_code == 1
    assert "inf WRONG" in done.output


@pytest.fixture
def pretended_gpu(monkeypatch):
    """Graphs are plain calls and each takes as long as it has calls."""

    def captured(calls):
        return lambda: [call() for call in calls]

    monkeypatch.setattr(timing, "LEAST_CALLS", 2)
    monkeypatch.setattr(running, "captured", captured)
    monkeypatch.setattr(running, "event_clock", lambda run: float(len(run())))


def with_peers(name, *more):
    (case,) = (case for case in SMALL if case.name == name)
    return running.Case(**{**vars(case), "peers": lambda: more})


@needs_compiler
def test_ours_and_every_peer_are_held_to_float64_and_timed(pretended_gpu):
    def broken():
        raise RuntimeError("no such backend\nand more")

    case = with_peers(
        "MobileNetV2 24 → 144",
        Peer("slow", lambda: peers.pointwise.compose, 1e9),
        Peer("same", lambda: peers.pointwise.compose),
        Peer("broken", broken),
        Peer(
            "turned",
            lambda: lambda inputs: peers.pointwise.compose(*inputs),
            prepare=lambda inputs: (inputs,),
            is_aside=True,
        ),
        Peer("other", lambda: lambda x, weight, *_: torch.zeros(*x.shape[:-1], len(weight))),
    )
    run = checkout.emulated()
    with run_by(run, "cpu"):
        found = running._timed(case, CPU, run, 1 << 10, float("inf"))
    assert found.us == dict.fromkeys((OURS, "same", "turned", "other", "slow"), 1000.0)
    assert found.asides == ("turned",) and "turned" not in found.errors
    assert found.errors[OURS] <= 1 and found.errors["same"] < 10 and found.errors["other"] > 30
    assert found.failures == {"broken": "RuntimeError: no such backend"}
    with run_by(run, "cpu"):
        hurried = running._timed(case, CPU, run, 1 << 10, 0.0)
    assert set(hurried.us) == {OURS}
    assert "no time was left" in hurried.failures["slow"]


@needs_compiler
def test_a_run_on_a_gpu_is_put_together(pretended_gpu, monkeypatch, tmp_path):
    chosen = tuple(
        with_peers(name, Peer("same", lambda: peers.depthwise.compose))
        for name in ("MobileNetV2 3×3", "ConvNeXt-T 7×7")
    )
    properties = SimpleNamespace(name="a GPU", L2_cache_size=1 << 10)
    device = SimpleNamespace(ceiling=CEILING)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(running, "cuda_accelerators", lambda names: ((device,), "a word"))
    monkeypatch.setattr(running, "probed", lambda _: (KernelProbe(name="lanes"),))
    monkeypatch.setattr(
        running, "errors_on_made_up_data", lambda device: errors_on_made_up_data(device)[:1]
    )
    monkeypatch.setattr(running, "TOKENS", 128)
    with run_by(checkout.emulated(), "cpu"):
        found = running._on_gpu(chosen, float("inf"), CPU)
    assert found.is_sound and found.ran_on == "a GPU" and found.remarks == ("a word",)
    assert [set(case.us) for case in found.cases] == [{OURS, "same"}] * 2
    assert {row["times as fast"] for row in found.table()} == {"1.00 ×"}
    assert KernelBench.load(found.save(tmp_path / "bench.json")) == found


def test_a_case_that_fails_as_a_whole_ends_alone_and_an_interrupt_keeps_what_there_is():
    def look(index, case):
        if index == 1:
            raise RuntimeError("CUDA error: an illegal memory access\nand more")
        if index == 2:
            raise KeyboardInterrupt
        return running._blank(case, 1)

    found, remarks = running._each(SMALL, look)
    assert [case.failures for case in found] == [
        {},
        {OURS: "RuntimeError: CUDA error: an illegal memory access"},
    ]
    assert remarks == ("Interrupted: what was complete until then is shown.",)


def test_a_fallback_is_no_time_of_ours(pretended_gpu):
    case = with_peers("MobileNetV2 3×3", Peer("same", lambda: peers.depthwise.compose))

    def refused(_):
        raise KernelError("no driver")

    with run_by(refused, "cpu"):
        found = running._timed(case, CPU, refused, 1 << 10, float("inf"))
        assert found.failures == {OURS: "no driver"} and set(found.us) == {"same"}
        late = running._timed(
            case, CPU, lambda launch: launch.arguments[4].zero_(), 1 << 10, float("inf")
        )
    assert "runs in torch" in late.failures[OURS] and set(late.us) == {"same"}


@pytest.mark.parametrize(
    "case",
    [case for case in SMALL if case.kernel.name == "window_attention"],
    ids=lambda case: case.name,
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_given_the_same_windows(case):
    inputs = tuple(one.float() if isinstance(one, torch.Tensor) else one for one in case.make(CPU))
    expected = window_attention.compose(*inputs)
    torch.testing.assert_close(peers._flex_windows(*inputs), expected, rtol=1e-4, atol=1e-5)


def test_a_linear_layer_is_the_same_as_a_convolution():
    for case in SMALL:
        if case.kernel.name == "pointwise":
            inputs = tuple(
                one.double() if isinstance(one, torch.Tensor) else one for one in case.make(CPU)
            )
            torch.testing.assert_close(peers._convolved(*inputs), case.kernel.compose(*inputs))


SPARSE = [case for case in SMALL if case.kernel.name == "block_sparse_attention"]


@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_given_the_same_blocks(case):
    inputs = tuple(
        one.float() if torch.is_tensor(one) and one.is_floating_point() else one
        for one in case.make(CPU)
    )
    query, key, _, kept, _, is_causal, _ = inputs
    mask = sparse.for_flex(inputs)[3]
    listed = torch.zeros(*kept.shape[:3], kept.shape[2] + 1).scatter(
        3, kept.long() % (kept.shape[2] + 1), 1.0
    )[..., :-1]
    assert mask.to_dense().equal(listed.int())
    cut = mask.kv_num_blocks.sum().item()
    assert cut == (kept.shape[1] * kept.shape[2] if is_causal else 0)
    # Not compiled, FlexAttention goes by the places alone: all blocks, then.
    everything = tuple(
        choose_blocks(query, key, density=1.0, is_causal=is_causal) if one is kept else one
        for one in inputs
    )
    made = sparse.attend_by_flex(*sparse.for_flex(everything))
    torch.testing.assert_close(made, case.kernel.compose(*everything), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(made, sparse.attend_to_all(*everything), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case.name)
def test_asides_choose_as_the_case_did(case):
    inputs = case.make(CPU)
    assert sparse.choose_and_attend(*inputs).equal(case.kernel.compose(*inputs))
    attend = sparse.choosing_first(lambda query, key, value, mask, scale: mask.to_dense())
    assert attend(*inputs).equal(sparse.for_flex(inputs)[3].to_dense())


def test_what_choosing_costs_is_told_by_density():
    walk, noise = errors_on_made_up_data(CPU)
    assert walk.errors[1.0] < 0.01 and walk.errors[0.25] < noise.errors[0.25]
    assert str(noise).startswith(
        "Error of attention to chosen blocks by density, independent random numbers"
    )
    made = measured(asides=("cuDNN",)).model_copy(update={"densities": (walk,)})
    assert str(walk) in made.summary and "3×3: cuDNN 50.0 µs" in made.summary
    assert measured(asides=("compiled",)).table()[0]["best peer"] == "cuDNN 50.0"


def test_every_case_has_peers_of_several_kinds():
    for case in REAL:
        names = [peer.name for peer in case.peers()]
        assert len(set(names)) == len(names) >= 3
        assert (
            {"compiled", "max-autotune"}
            if case.kernel.name != "block_sparse_attention"
            else {"Flex", "SDPA flash to all"}
        ) <= set(names)


def test_every_entry_with_a_budget_is_loaded_on_a_gpu(monkeypatch):
    loaded = []

    def load(self, device, kernel, entry, shared_bytes):
        loaded.append((kernel, entry))
        if kernel == "depthwise":
            raise KernelError("no kernel image")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(preflight.CupyRunner, "load", load)
    found = tuple(preflight._loadable())
    assert loaded == [
        (kernel.name, entry) for kernel in KERNELS.values() for entry in kernel.budgets
    ]
    assert {probe.failure for probe in found} == {"", "KernelError: no kernel image"}


def test_outside_a_checkout_the_probes_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "SUPPORT", tmp_path)
    checkout.probes.cache_clear()
    (probe,) = probed("cpu")
    assert "in a checkout of this project alone" in probe.failure
    checkout.probes.cache_clear()


def test_without_a_compiler_the_emulator_says_so(monkeypatch):
    checkout.emulator.cache_clear()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MeasureError, match=r"by g\+\+, which is not installed"):
        checkout.emulated()
    checkout.emulator.cache_clear()


WHOLE = [case for case in SMALL if case.kernel.name.endswith("_int8")]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_peers_on_whole_numbers_compute_the_same(case):
    inputs = case.make(CPU)
    expected = case.kernel.compose(*inputs)
    if case.kernel.name == "pointwise_int8":
        assert int8_cases.by_int_mm(*inputs).equal(expected)
        in_bf16 = torch.ops.paifuser.pointwise(*int8_cases.as_rows(inputs))
    else:
        in_bf16 = torch.ops.paifuser.depthwise(*int8_cases.as_images(inputs))
    numbers = (expected.double() - int8_cases.OUT_ZERO) * int8_cases.OUT_SCALE
    is_inside = (expected > -128) & (expected < 127)
    assert is_inside.double().mean() > 0.5
    torch.testing.assert_close(in_bf16[is_inside].double(), numbers[is_inside], rtol=0.05, atol=0.1)


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_a_step_may_be_its_neighbour_only_midway_between_them(case):
    inputs = case.make(CPU)
    expected = case.kernel.compose(*inputs)
    allowed = case.allowed(inputs, expected)
    assert error_of(expected, expected, allowed) == 0
    assert error_of(expected.int() + 1, expected, allowed) == 2
    assert 0 < (allowed == 1).double().mean() < 0.05
