"""The benchmark of kernels: all but a GPU's own time runs here, on the emulator and with fake
graphs and clocks.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from paifuser_lab.bench.kernels import KernelBench, bench, peers, preflight, running, timing
from paifuser_lab.bench.kernels.cases import cases, error_of, floor_bytes
from paifuser_lab.bench.kernels.peers import Peer
from paifuser_lab.bench.kernels.preflight import probed
from paifuser_lab.bench.kernels.record import OURS, KernelCase, KernelProbe
from paifuser_lab.bench.kernels.running import errors_on_synthetic_data
from paifuser_lab.bench.kernels.timing import calls_of, sets_needed, timed_in_turn
from paifuser_lab.cli import program
from paifuser_lab.errors import KernelError, MeasureError
from paifuser_lab.kernels import KERNELS, choose_blocks
from paifuser_lab.kernels.kernel import Launch
from paifuser_lab.records import Ceiling
from tests.support.kernel_checks import needs_compiler, run_by

CPU = torch.device("cpu")
REAL, SMALL = cases(), cases(is_small=True)
CEILING = Ceiling(threads=1, fp32_gflops=1e5, bf16_gflops=8e5, bandwidth_gbs=4000.0)


def bench_of(**changes):
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


def test_times_are_relative_to_the_ceilings_and_to_the_best_peer(tmp_path):
    record = bench_of()
    (row,) = record.table()
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
    assert record.is_good
    assert "1 of 1 probes held" in record.summary and "4.00 TB/s, 800 TFLOP/s" in record.summary
    assert KernelBench.load(record.save(tmp_path / "bench.json")) == record


def test_a_peer_that_computes_something_else_does_not_count():
    record = bench_of(errors={OURS: 0.9, "compiled": 1e4})
    assert record.table()[0]["best peer"] == "cuDNN 50.0"
    assert "compiled has 10000 times the error" in record.summary


@pytest.mark.parametrize("error", [1.5, float("inf"), float("nan")])
def test_a_wrong_output_is_reported(error, tmp_path):
    record = bench_of(errors={OURS: error})
    assert "WRONG" in record.table()[0]["error / allowed"]
    assert str(KernelBench.load(record.save(tmp_path / "bench.json"))) == str(record)
    assert not record.is_good


def test_failures_are_reported_and_missing_figures_are_a_dash():
    record = bench_of(us={}, errors={}, failures={OURS: "no driver"})
    assert [
        record.table()[0][key] for key in ("error / allowed", "µs", "best peer", "times as fast")
    ] == ["–"] * 4
    assert not record.is_good
    assert "depthwise, 3×3: ours: no driver" in record.summary
    broken = bench_of().model_copy(update={"probes": (KernelProbe(name="lanes", failure="other"),)})
    assert not broken.is_good and "probe lanes: other" in broken.summary


def test_enough_sets_of_inputs_take_turns_to_exceed_the_cache():
    assert sets_needed(10, 100) == 30
    assert sets_needed(1000, 100) == 1
    assert sets_needed(0, 1 << 40) == 64
    assert len(calls_of([lambda: None] * 3)) == 9
    assert len(calls_of([lambda: None] * 20)) == 20


def test_candidates_are_timed_in_turn_and_each_round_starts_with_the_next():
    order = []
    times = iter([1.0, 4.0, 6.0, 3.0, 2.0, 5.0])
    candidates = {"a": (lambda: order.append("a"), 2), "b": (lambda: order.append("b"), 4)}

    def clock(run):
        run()
        return next(times)

    assert timed_in_turn(candidates, clock, 3) == {"a": 1000.0, "b": 1250.0}
    assert "".join(order) == "abbaab"


def test_errors_are_relative_to_the_allowed_error():
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
    by_name = {
        case.name: (case.operations, case.make(torch.device("meta")), case.kernel) for case in REAL
    }
    operations, inputs, kernel = by_name["ResNet-50 64 → 256, residual"]
    assert round(floor_bytes(inputs, kernel.empty(*inputs)) / 1e6, 1) == 231.2
    assert round(operations / 1e9, 1) == 6.6


def test_without_a_gpu_the_error_names_the_option_for_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasureError, match=r"no GPU .* nothing can be timed; `--on cpu` checks"):
        bench()


def test_unknown_devices_and_cases_are_refused():
    with pytest.raises(MeasureError, match="gpu or cpu, not on 'tpu'"):
        bench(on="tpu")
    with pytest.raises(
        MeasureError, match=r"No case is called nothing; there are Swin-T stage 1, .*"
    ):
        bench(("nothing",), on="cpu")


@needs_compiler
def test_on_a_cpu_the_same_cases_run_in_the_emulator(tmp_path):
    result = CliRunner().invoke(
        program.app,
        ["bench", "kernels", "stage 3", "3×3", "--on", "cpu", "--json", str(tmp_path / "b.json")],
    )
    assert result.exit_code == 0, result.output
    record = KernelBench.load(tmp_path / "b.json")
    assert [case.name for case in record.cases] == ["Swin-T stage 3, shifted", "MobileNetV2 3×3"]
    assert all(0 < case.errors[OURS] <= 1 and not case.us for case in record.cases)
    assert len(record.probes) == 6 and record.is_good
    assert "Nothing was timed" in record.summary


@needs_compiler
def test_a_kernel_that_writes_nothing_is_wrong_and_fails_the_command(monkeypatch):
    monkeypatch.setattr(running, "emulated", lambda: lambda launch: None)
    monkeypatch.setattr(running, "probed", lambda _: ())
    result = CliRunner().invoke(program.app, ["bench", "kernels", "3×3", "--on", "cpu"])
    assert result.exit_code == 1
    assert "inf WRONG" in result.output


@pytest.fixture
def fake_gpu(monkeypatch):
    """Graphs are plain calls, and each takes as long as it has calls."""

    def captured(calls):
        return lambda: [call() for call in calls]

    monkeypatch.setattr(timing, "MIN_CALLS", 2)
    monkeypatch.setattr(running, "captured", captured)
    monkeypatch.setattr(running, "event_clock", lambda run: float(len(run())))


def with_peers(name, *more):
    (case,) = (case for case in SMALL if case.name == name)
    return replace(case, subject=replace(case.subject, peers=lambda: more))


@needs_compiler
def test_ours_and_every_peer_are_checked_against_float64_and_timed(fake_gpu):
    def broken():
        raise RuntimeError("no such backend\nand more")

    case = with_peers(
        "MobileNetV2 24 → 144",
        Peer("slow", lambda: KERNELS["pointwise"].compose, 1e9),
        Peer("same", lambda: KERNELS["pointwise"].compose),
        Peer("broken", broken),
        Peer(
            "prepared",
            lambda: lambda inputs: KERNELS["pointwise"].compose(*inputs),
            prepare=lambda inputs: (inputs,),
            is_aside=True,
        ),
        Peer("other", lambda: lambda x, weight, *_: torch.zeros(*x.shape[:-1], len(weight))),
    )
    run = preflight.emulated()
    with run_by(run, "cpu"):
        result = running._timed(case, CPU, run, 1 << 10, float("inf"))
    assert result.us == dict.fromkeys((OURS, "same", "prepared", "other", "slow"), 1000.0)
    assert result.asides == ("prepared",) and "prepared" not in result.errors
    assert result.errors[OURS] <= 1 and result.errors["same"] < 10 and result.errors["other"] > 30
    assert result.failures == {"broken": "RuntimeError: no such backend"}
    with run_by(run, "cpu"):
        hurried = running._timed(case, CPU, run, 1 << 10, 0.0)
    assert set(hurried.us) == {OURS}
    assert "no time was left" in hurried.failures["slow"]


@needs_compiler
def test_a_run_on_a_gpu_fills_the_record(fake_gpu, monkeypatch, tmp_path):
    chosen = tuple(
        with_peers(name, Peer("same", lambda: KERNELS["depthwise"].compose))
        for name in ("MobileNetV2 3×3", "ConvNeXt-T 7×7")
    )
    properties = SimpleNamespace(name="a GPU", L2_cache_size=1 << 10)
    device = SimpleNamespace(ceiling=CEILING)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(running, "cuda_accelerators", lambda names: ((device,), "a word"))
    monkeypatch.setattr(running, "probed", lambda _: (KernelProbe(name="lanes"),))
    monkeypatch.setattr(
        running, "errors_on_synthetic_data", lambda device: errors_on_synthetic_data(device)[:1]
    )
    monkeypatch.setattr(running, "TOKENS", 128)
    with run_by(preflight.emulated(), "cpu"):
        record = running._on_gpu(chosen, float("inf"), CPU)
    assert record.is_good and record.ran_on == "a GPU" and record.remarks == ("a word",)
    assert [set(case.us) for case in record.cases] == [{OURS, "same"}] * 2
    assert {row["times as fast"] for row in record.table()} == {"1.00 ×"}
    assert KernelBench.load(record.save(tmp_path / "bench.json")) == record


def test_a_case_that_fails_does_not_end_the_others_and_an_interrupt_keeps_the_results():
    def measure(index, case):
        if index == 1:
            raise RuntimeError("CUDA error: an illegal memory access\nand more")
        if index == 2:
            raise KeyboardInterrupt
        return running._blank(case, 1)

    results, remarks = running._each(SMALL, measure)
    assert [case.failures for case in results] == [
        {},
        {OURS: "RuntimeError: CUDA error: an illegal memory access"},
    ]
    assert remarks == ("Interrupted: the results until then are shown.",)


def test_a_fallback_is_not_timed_as_ours(fake_gpu):
    case = with_peers("MobileNetV2 3×3", Peer("same", lambda: KERNELS["depthwise"].compose))

    def refused(_):
        raise KernelError("no driver")

    with run_by(refused, "cpu"):
        result = running._timed(case, CPU, refused, 1 << 10, float("inf"))
        assert result.failures == {OURS: "no driver"} and set(result.us) == {"same"}
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
def test_flex_attention_computes_the_same_windows(case):
    inputs = tuple(
        value.float() if isinstance(value, torch.Tensor) else value for value in case.make(CPU)
    )
    expected = case.kernel.compose(*inputs)
    torch.testing.assert_close(peers.flex_windows(*inputs), expected, rtol=1e-4, atol=1e-5)


def test_a_linear_layer_is_the_same_as_a_convolution():
    for case in SMALL:
        if case.kernel.name == "pointwise":
            inputs = tuple(
                value.double() if isinstance(value, torch.Tensor) else value
                for value in case.make(CPU)
            )
            torch.testing.assert_close(peers.convolved(*inputs), case.kernel.compose(*inputs))


SPARSE = [case for case in SMALL if case.kernel.name == "block_sparse_attention"]


@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_attends_to_the_same_blocks(case):
    inputs = tuple(
        value.float() if torch.is_tensor(value) and value.is_floating_point() else value
        for value in case.make(CPU)
    )
    query, key, _, kept, _, is_causal, _ = inputs
    mask = peers.for_flex(inputs)[3]
    listed = torch.zeros(*kept.shape[:3], kept.shape[2] + 1).scatter(
        3, kept.long() % (kept.shape[2] + 1), 1.0
    )[..., :-1]
    assert mask.to_dense().equal(listed.int())
    partial = mask.kv_num_blocks.sum().item()
    assert partial == (kept.shape[1] * kept.shape[2] if is_causal else 0)
    # Uncompiled FlexAttention uses the positions alone, hence all blocks.
    full = tuple(
        choose_blocks(query, key, density=1.0, is_causal=is_causal) if value is kept else value
        for value in inputs
    )
    output = peers.attend_by_flex(*peers.for_flex(full))
    torch.testing.assert_close(output, case.kernel.compose(*full), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(output, peers.attend_to_all(*full), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case.name)
def test_asides_choose_the_same_blocks_as_the_case(case):
    inputs = case.make(CPU)
    assert peers.choose_and_attend(*inputs).equal(case.kernel.compose(*inputs))
    attend = peers.with_choice(lambda query, key, value, mask, scale: mask.to_dense())
    assert attend(*inputs).equal(peers.for_flex(inputs)[3].to_dense())


def test_the_error_of_choosing_is_reported_by_density():
    walk, noise = errors_on_synthetic_data(CPU)
    assert walk.errors[1.0] < 0.01 and walk.errors[0.25] < noise.errors[0.25]
    assert str(noise).startswith(
        "Error of attention to chosen blocks by density, independent random numbers"
    )
    record = bench_of(asides=("cuDNN",)).model_copy(update={"densities": (walk,)})
    assert str(walk) in record.summary and "3×3: cuDNN 50.0 µs" in record.summary
    assert bench_of(asides=("compiled",)).table()[0]["best peer"] == "cuDNN 50.0"


def test_every_case_has_peers_of_several_kinds():
    for case in REAL:
        names = [peer.name for peer in case.subject.peers()]
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
    results = tuple(preflight.loadable())
    assert loaded == [
        (kernel.name, entry) for kernel in KERNELS.values() for entry in kernel.budgets
    ]
    assert {probe.failure for probe in results} == {"", "KernelError: no kernel image"}


def test_outside_a_checkout_the_probes_fail_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(preflight, "SUPPORT", tmp_path)
    preflight._module.cache_clear()
    (probe,) = probed("cpu")
    assert "only in a checkout of this project" in probe.failure
    preflight._module.cache_clear()


def test_without_a_compiler_the_emulator_is_refused(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MeasureError, match=r"by g\+\+, which is not installed"):
        preflight.emulated()


INT8 = [case for case in SMALL if case.kernel.name.endswith("_int8")]


@pytest.mark.parametrize("case", INT8, ids=lambda case: case.name)
def test_peers_of_int8_kernels_compute_the_same(case, processor):
    processor.has_vnni()  # torch's integer product saturates without
    inputs = case.make(CPU)
    expected = case.kernel.compose(*inputs)
    if case.kernel.name == "pointwise_int8":
        assert peers.by_int_mm(*inputs).equal(expected)
    name = case.kernel.name
    in_bf16 = getattr(torch.ops.paifuser, name.removesuffix("_int8"))(*peers.in_bf16(name, inputs))
    out_scale, out_zero = inputs[9:11]
    values = (expected.double() - out_zero) * out_scale
    is_inside = (expected > -128) & (expected < 127)
    assert is_inside.double().mean() > 0.5
    torch.testing.assert_close(in_bf16[is_inside].double(), values[is_inside], rtol=0.05, atol=0.1)


@pytest.mark.parametrize("case", INT8, ids=lambda case: case.name)
def test_a_quantized_value_may_be_its_neighbour_only_midway_between_them(case):
    inputs = case.make(CPU)
    expected = case.kernel.compose(*inputs)
    allowed = case.subject.allowed(inputs, expected)
    assert error_of(expected, expected, allowed) == 0
    assert error_of(expected.int() + 1, expected, allowed) == 2
    assert 0 < (allowed == 1).double().mean() < 0.05
