"""Every kernel of `tests/support/kernel_table.py`: the CUDA source, run on the CPU, against
float64, its launches, and the inputs that it declines or refuses.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paifuser_lab.bench.kernels.cases import exact, unwritten
from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import KERNELS, operators
from paifuser_lab.kernels.compile import shipped
from paifuser_lab.kernels.kernel import DeclinedError
from tests.support.cuda_on_cpu.emulator import EmulationError
from tests.support.kernel_checks import built, check_operator, emulator_for_cpu, needs_compiler
from tests.support.kernel_table import FP32, INT8, ROWS, UINT8, Run

every_kernel = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def each(attribute):
    """Every entry of a column of the table, with its kernel."""
    entries = [
        pytest.param(row, entry, id=f"{name}-{index}")
        for name, row in ROWS.items()
        for index, entry in enumerate(getattr(row, attribute))
    ]
    return pytest.mark.parametrize(("row", "entry"), entries)


def planned(row, inputs, tile=None):
    """A launch and its output, which is not written yet."""
    out = unwritten(row.kernel, inputs)
    return out, row.kernel.plan(out, *inputs, tile=tile)


def emulated(row, inputs, order=0):
    """The kernel's output on the emulator, all cases compiled together."""
    out, launch = planned(row, inputs)
    built(shipped(row.kernel.name), row.entries, order=order)(launch)
    return out


def test_every_kernel_is_in_the_table():
    assert ROWS.keys() == KERNELS.keys()


@needs_compiler
@every_kernel
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_kernel_equals_float64_at_every_shape(row, data):
    inputs = row.inputs(**row.draw(data.draw))
    output = emulated(row, inputs, data.draw(st.integers(0, 9)))
    assert row.error(output, inputs) <= 1


@needs_compiler
@each("every_tile")
def test_every_tile_gives_the_same_output(row, entry):
    torch.manual_seed(0)
    inputs, kernel = row.inputs(**entry.options), row.kernel
    first = entry.tile or ()
    tiles = [tile for tile in kernel.tiles if kernel.tiles.numbers(tile)[: len(first)] == first]
    plans = [planned(row, inputs, tile) for tile in tiles]
    for start in range(0, len(plans), 40):  # compiled as one module: a tenth of a second for each
        some = plans[start : start + 40]
        entries = tuple(launch.entry for _, launch in some)
        assert len(set(entries)) == len(entries)
        for out, launch in some:
            built(shipped(kernel.name), entries)(launch)
            assert row.error(out, inputs) <= 1


@needs_compiler
@each("clean")
@pytest.mark.parametrize("check", ["races", "bounds"])
def test_the_sanitizers_find_nothing(row, entry, check):
    _, launch = planned(row, row.inputs(**entry.options), row.tile(entry.tile))
    built(shipped(row.kernel.name), (launch.entry,), check)(launch)


@needs_compiler
@each("planted")
def test_planted_mistakes_are_caught(row, entry):
    run = entry.run or Run({})
    source = shipped(row.kernel.name)
    assert entry.text in source, f"{row.kernel.name} no longer has the line {entry.text!r}"
    default = row.kernel.tiles.default
    _, launch = planned(row, row.inputs(**run.options), row.tile(run.tile) or default or None)
    with pytest.raises(EmulationError, match=f"(?s){entry.words}"):
        built(source.replace(entry.text, entry.instead, 1), (launch.entry,), entry.check)(launch)


@needs_compiler
@each("wrong")
def test_planted_errors_of_arithmetic_and_of_waiting_are_noticed(row, entry):
    text, instead = entry
    source, inputs = shipped(row.kernel.name), row.inputs()
    assert text in source
    out, launch = planned(row, inputs, row.kernel.tiles.default or None)
    built(source.replace(text, instead), (launch.entry,))(launch)
    assert row.error(out, inputs) > 1


@needs_compiler
@each("sound")
def test_the_operator_is_sound(row, entry):
    check_operator(row.kernel, row.entries, row.inputs(**entry))


@needs_compiler
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.poisoned])
def test_not_a_number_propagates_as_in_torch(name):
    row = ROWS[name]
    for case in row.cases:
        inputs = row.inputs(**case)
        row.poisoned(inputs)
        output, expected = emulated(row, inputs), exact(row.kernel, inputs)
        assert output.isnan().equal(expected.isnan()), case
        assert 0 < output.isnan().sum() < output.numel() / 2


def misaligned(tensor):
    """A copy of the same strides, the first element of which is not aligned."""
    base = tensor.new_zeros(tensor.numel() + 3)
    copy = base.as_strided(tensor.shape, tensor.stride(), 3)
    assert copy.data_ptr() % 16
    return copy.copy_(tensor)


def permuted(tensor):
    """A copy whose first dimension is the innermost in memory."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


@needs_compiler
@every_kernel
def test_permuted_and_misaligned_inputs_are_accepted(row):
    inputs = row.inputs(**row.cases[0])
    operator = getattr(torch.ops.paifuser, row.kernel.name)
    expected = emulated(row, inputs)
    with emulator_for_cpu(row.kernel, row.entries) as launches:
        for change in (permuted, misaligned, torch.clone):
            changed = [change(value) if isinstance(value, Tensor) else value for value in inputs]
            output = operator(*changed)
            assert output.equal(expected) and output.stride() == expected.stride()
    assert len(launches) == 3


LONG, EMPTY = torch.zeros(150, 64), torch.zeros(8)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("window_attention", {"dtype": FP32}, "torch.bfloat16, torch.float16, not torch.float32"),
        ("window_attention", {"window": 5, "shift": (1, 1)}, "a window of 7, 8, 12, not 5"),
        ("window_attention", {"size": 48}, "a head of 32, 64, not 48"),
        ("depthwise", {"shape": (1, 12, 9, 9)}, "multiples of 8 channels, not 12"),
        ("depthwise", {"stride": 3}, "a stride of 1, 2, not 3"),
        ("pointwise", {"shape": (9, 12)}, "multiples of 8 columns, not 12, 72"),
        ("pointwise", {"columns": 20}, "multiples of 8 columns, not 136, 20"),
        ("depthwise_int8", {"shape": (1, 24, 9, 9)}, "multiples of 16 channels, not 24"),
        ("depthwise_int8", {"stride": 3}, "a stride of 1, 2, not 3"),
        ("depthwise_int8", {"side": 4}, "a side of 3, 5, 7, 9, not 4"),
        ("pointwise_int8", {"shape": (9, 24)}, "multiples of 16 columns, not 24, 80"),
        ("pointwise_int8", {"columns": 24}, "multiples of 16 columns, not 208, 24"),
        ("block_sparse_attention", {"size": 32}, "a head of 64, 128, not 32"),
        ("block_sparse_attention", {"scale": -1.0}, "a scale above 0, not -1.0"),
    ],
)
def test_unsupported_inputs_are_declined_and_computed_by_torch(name, options, words, monkeypatch):
    monkeypatch.setattr(operators, "_warned", set())
    row = ROWS[name]
    inputs = row.inputs(**options)
    with pytest.raises(DeclinedError, match=words):
        planned(row, inputs)
    with (
        emulator_for_cpu(row.kernel, ()) as launches,
        pytest.warns(UserWarning, match=f"{name} runs in torch.*{words}"),
    ):
        output = getattr(torch.ops.paifuser, name)(*inputs)
    assert not launches and output.equal(row.kernel.compose(*inputs))
    if not row.kernel.is_differentiable:
        assert row.error(output, inputs) <= 1


@pytest.mark.parametrize(
    ("name", "index", "value", "words"),
    [
        ("depthwise", 0, torch.randn(1, 72, 11, 13), "tensors of one dtype"),
        ("pointwise", 1, torch.randn(72, 136), "tensors of one dtype"),
        ("pointwise_int8", 3, torch.ones(80).double(), "scales and bias in torch.float32"),
    ],
)
def test_mixed_dtypes_are_declined(name, index, value, words):
    row = ROWS[name]
    inputs = list(row.inputs())
    inputs[index] = value
    with pytest.raises(DeclinedError, match=words):
        planned(row, inputs)


@pytest.mark.parametrize(
    ("name", "index", "value", "words"),
    [
        ("window_attention", 0, torch.zeros(1, 14, 14, 192), "takes qkv as"),
        ("window_attention", 0, torch.zeros(1, 14, 15, 3, 2, 32), "14 × 15 into windows of 7"),
        ("window_attention", 1, torch.zeros(169, 2), r"a bias of \(2, 169\)"),
        ("window_attention", 3, [7, 0], "two shifts from 0 to 6"),
        ("depthwise", 0, torch.zeros(8, 9, 9), "takes images as"),
        ("depthwise", 1, torch.zeros(72, 1, 15, 15), "side 15 to images of 11 × 13"),
        ("depthwise", 1, torch.zeros(72, 1, 3, 5), r"a square weight of \(72, 1, 5, 5\)"),
        ("depthwise", 2, EMPTY, r"a bias of \(72,\), not \(8,\)"),
        ("depthwise", 3, torch.zeros(1, 72, 4, 4), r"a residual of \(1, 72, 11, 13\)"),
        ("depthwise", 4, 0, "a stride from 1"),
        ("depthwise", 6, "mish", "the activations none, relu.* not 'mish'"),
        ("pointwise", 0, LONG, r"takes \(…, in\) and a weight of \(out, in\)"),
        ("pointwise", 1, torch.zeros(72, 136, 1), r"takes \(…, in\) and a weight of \(out, in\)"),
        ("pointwise", 2, EMPTY, r"a bias of \(72,\)"),
        ("pointwise", 3, LONG, r"a residual of \(150, 72\)"),
        ("pointwise", 4, "mish", "the activations none, relu.* not 'mish'"),
        ("depthwise_int8", 0, torch.zeros(8, 9, 9, dtype=UINT8), "takes images as"),
        ("depthwise_int8", 0, torch.zeros(1, 80, 9, 9), "not torch.float32 and torch.int8"),
        ("depthwise_int8", 2, torch.zeros(80, 1, 3, 5, dtype=INT8), "a square weight of"),
        ("depthwise_int8", 3, EMPTY, r"scales of \(80,\)"),
        (
            "depthwise_int8",
            6,
            torch.zeros(1, 80, 4, 4, dtype=UINT8),
            r"residual of \(1, 80, 11",
        ),
        ("depthwise_int8", 13, 0, "a stride from 1"),
        ("pointwise_int8", 0, torch.zeros(150, 208), "a weight in torch.int8, not torch.float32"),
        ("pointwise_int8", 0, LONG.to(UINT8), r"takes \(…, in\) and a weight of \(out, in\)"),
        ("pointwise_int8", 1, -3, "zero points within torch.uint8, from 0 to 255, not -3"),
        ("pointwise_int8", 2, torch.zeros(80, 208, dtype=UINT8), "not torch.uint8 and torch.uint8"),
        ("pointwise_int8", 3, EMPTY, r"scales of \(80,\)"),
        ("pointwise_int8", 4, torch.ones(80), "sums in integers, not in torch.float32"),
        ("pointwise_int8", 5, torch.zeros(1, 80), r"bias of \(80,\)"),
        ("pointwise_int8", 6, torch.zeros(150, 80), "a residual in torch.uint8"),
        ("pointwise_int8", 9, 0.0, "an output scale above 0"),
        ("pointwise_int8", 11, INT8, "in torch.uint8, or floats, not torch.int8"),
        ("pointwise_int8", 12, "mish", "the activations none, relu.* not 'mish'"),
        ("block_sparse_attention", 1, torch.zeros(1, 2, 100, 64), "queries, keys and values as"),
        ("block_sparse_attention", 0, torch.zeros(1, 4, 130, 64), "repeat the keys of shared"),
        ("block_sparse_attention", 3, torch.zeros(1, 2, 3, 1), "`choose_blocks` returns them"),
        ("block_sparse_attention", 3, torch.zeros(1, 2, 2, 1).int(), r"\(1, 2, 3\) × most"),
        ("block_sparse_attention", 4, torch.zeros(2).int(), r"lengths as \(1,\) in int32"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(name, index, value, words):
    inputs = list(ROWS[name].inputs(**({"side": 3} if name == "depthwise_int8" else {})))
    inputs[index] = value
    with pytest.raises(KernelError, match=f"^{name}.*{words}"):
        getattr(torch.ops.paifuser, name)(*inputs)


@needs_compiler
@pytest.mark.parametrize("name", ["depthwise_int8", "pointwise_int8"])
def test_where_fp32_is_exact_every_output_equals_torchs(name):
    """Ties and extremes included: scales are powers of two."""
    row = ROWS[name]
    clamps = [
        case
        for case in row.cases
        if case["dtype"] == case["into"] and case["activation"] in ("none", "relu", "relu6")
    ]
    assert len(clamps) >= 4
    for case in clamps:
        inputs = row.inputs(**case, is_exact=True)
        assert emulated(row, inputs).equal(row.kernel.compose(*inputs)), case
