"""What operators cost: FLOPs as torch counts them, multiply-adds by hand, bytes really moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import paifuser_lab as lab
from paifuser_lab.profiler.cost import is_counted_by_torch
from paifuser_lab.profiler.operators import Operators, watch_operators
from paifuser_lab.workload import Workload, running

TINY = ("resnet18-tiny", "swin-t-tiny", "bert-base-tiny", "unet-tiny")
CONFIGS: dict[str, dict[str, Any]] = {
    "t5": {
        "num_layers": 1,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 32,
        "num_heads": 2,
        "vocab_size": 101,
    },
    "mixtral": {
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 101,
        "num_key_value_heads": 1,
        "num_local_experts": 2,
        "max_position_embeddings": 16,
    },
}


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def seen(model: nn.Module, *inputs: Any) -> Operators:
    return operators_of(Workload(model, inputs))


def operators_of(work: Workload) -> Operators:
    def fresh_call() -> Callable[[], Any]:
        inputs = work.inputs.clone()
        return lambda: inputs(work.model)

    with running(work.model):
        return watch_operators(work.model, fresh_call, runs=1)


def total(operators: Operators, what: str) -> int:
    return sum(getattr(cost, what) for cost in operators.costs.values())


def flops_that_torch_counts(operators: Operators) -> int:
    return sum(
        cost.flops for (_, name), cost in operators.costs.items() if is_counted_by_torch(name)
    )


def torch_flops(work: Workload) -> int:
    with running(work.model), FlopCounterMode(display=False) as counter:
        work.inputs.clone()(work.model)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", [*TINY, *CONFIGS])
def test_flops_of_a_model_are_those_of_torchs_own_counter(name: str) -> None:
    if name in CONFIGS:
        pytest.importorskip("transformers")
    work = lab.load(f"hf:{name}" if name in CONFIGS else name, **CONFIGS.get(name, {}))
    assert flops_that_torch_counts(operators_of(work)) == torch_flops(work) > 0


def attention(length: int, keys: int, width: int, value: int) -> int:
    return length * keys * (width + value)


BY_HAND: dict[str, tuple[nn.Module, tuple[Any, ...], int]] = {
    "convolution": (nn.Conv2d(3, 8, 3), (torch.ones(2, 3, 10, 10),), 2 * 8 * 8 * 8 * 3 * 9),
    "in groups": (
        nn.Conv2d(8, 16, 3, groups=4, padding=1),
        (torch.ones(1, 8, 5, 5),),
        16 * 25 * 2 * 9,
    ),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, padding=1), (torch.ones(1, 8, 5, 5),), 8 * 25 * 9),
    "transposed in groups": (
        nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2),
        (torch.ones(1, 4, 5, 5),),
        4 * 25 * 3 * 4,
    ),
    "in three dimensions": (nn.Conv3d(2, 4, 2), (torch.ones(1, 2, 4, 4, 4),), 4 * 27 * 2 * 8),
    "linear": (nn.Linear(8, 5), (torch.ones(2, 3, 8),), 6 * 8 * 5),
    "inner product": (Call(torch.dot), (torch.ones(4), torch.ones(4)), 4),
    "einsum": (
        Call(lambda a, b: torch.einsum("bij,bkj->bik", a, b)),
        (torch.ones(2, 3, 4), torch.ones(2, 5, 4)),
        2 * 3 * 4 * 5,
    ),
    "attention": (
        Call(functional.scaled_dot_product_attention),
        (torch.ones(2, 3, 5, 8), torch.ones(2, 3, 7, 8), torch.ones(2, 3, 7, 8)),
        6 * attention(5, 7, 8, 8),
    ),
    "attention by hand": (
        Call(lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
        (torch.ones(2, 5, 8), torch.ones(2, 7, 8), torch.ones(2, 7, 4)),
        2 * attention(5, 7, 8, 4),
    ),
    "layer norm": (nn.LayerNorm(8), (torch.ones(2, 8),), 0),
    "batch norm": (nn.BatchNorm2d(4), (torch.ones(2, 4, 3, 3),), 0),
    "long short-term memory": (nn.LSTM(6, 5), (torch.ones(7, 2, 6),), 7 * 2 * 4 * 5 * (6 + 5)),
    "in two layers and both directions": (
        nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True),
        (torch.ones(2, 7, 6),),
        7 * 2 * 2 * 4 * 5 * (6 + 5) + 7 * 2 * 2 * 4 * 5 * (10 + 5),
    ),
    "multi-head attention": (
        nn.MultiheadAttention(8, 2, batch_first=True),
        (torch.ones(2, 5, 8), torch.ones(2, 5, 8), torch.ones(2, 5, 8)),
        2 * (5 * 4 * 64 + attention(5, 5, 8, 8)),
    ),
    "a fused encoder layer": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        (torch.ones(2, 5, 8),),
        2 * (5 * (4 * 64 + 2 * 128) + attention(5, 5, 8, 8)),
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_multiply_adds_are_those_counted_by_hand(case: str) -> None:
    model, inputs, macs = BY_HAND[case]
    operators = seen(model, *inputs)
    assert total(operators, "macs") == macs
    assert total(operators, "flops") >= 2 * macs


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_that_an_encoder_leaves_out_is_not_counted() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[0, 3:] = True
    operators = operators_of(
        Workload(model, {"src": torch.ones(2, 5, 8), "src_key_padding_mask": mask})
    )
    tokens = 3 + 5
    assert total(operators, "macs") == tokens * (4 * 64 + 2 * 128) + attention(
        3, 3, 8, 8
    ) + attention(5, 5, 8, 8)
    assert operators.output_shapes["layers.0"] == ((2, 5, 8),)
    assert not any(
        name == "unbind" for layer, name in operators.calls if layer.startswith("layers")
    ), "the watcher counted itself"


class Inferring(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 5)

    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        return self.line(x).softmax(-1)


def test_a_model_in_inference_mode_is_counted_and_timed_by_the_same_names() -> None:
    model = Inferring()
    operators = seen(model, torch.ones(2, 8))
    assert total(operators, "macs") == 2 * 8 * 5
    assert set(operators.runs_ms[0]) == set(operators.calls) and all(operators.runs_ms[0].values())


def test_control_flow_within_an_operator_counts_the_branch_that_is_taken() -> None:
    weights = torch.eye(4)
    model = Call(lambda x: torch.cond(x.sum() > 0, lambda y: y @ weights, lambda y: y.sin(), (x,)))
    assert total(seen(model, torch.ones(2, 4)), "macs") == 2 * 4 * 4
    assert total(seen(model, -torch.ones(2, 4)), "macs") == 0


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flexible_attention_is_counted_as_torch_does() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    operators = seen(Call(lambda x: flex_attention(x, x, x)), torch.ones(1, 2, 16, 16))
    assert total(operators, "macs") == 2 * attention(16, 16, 16, 16)


MOVES: dict[str, tuple[nn.Module, tuple[Any, ...], int, int]] = {
    "a view moves nothing": (Call(lambda x: x.view(6).unsqueeze(0)), (torch.ones(2, 3),), 0, 0),
    "pointwise reads and writes": (nn.ReLU(), (torch.ones(2, 3),), 24, 24),
    "what is read twice is read once": (Call(lambda x: x * x), (torch.ones(2, 3),), 24, 24),
    "what was expanded lies there once": (
        Call(lambda x: x.expand(4, 3).clone()),
        (torch.ones(1, 3),),
        12,
        48,
    ),
    "overwriting reads nothing": (Call(lambda x: x.fill_(1)), (torch.ones(2, 3),), 0, 24),
    "a table is read where it is needed": (
        nn.Embedding(1000, 4),
        (torch.zeros(2, dtype=torch.long),),
        2 * 16 + 16,
        32,
    ),
    "batched matrices take no copies": (
        Call(torch.matmul),
        (torch.ones(2, 2, 4, 4), torch.ones(2, 2, 4, 4)),
        512,
        256,
    ),
    "linear reads its weights": (nn.Linear(4, 5), (torch.ones(2, 4),), 4 * (8 + 20 + 5), 40),
}


@pytest.mark.parametrize("case", MOVES)
def test_bytes_are_those_that_move(case: str) -> None:
    model, inputs, read, written = MOVES[case]
    operators = seen(model, *inputs)
    assert (total(operators, "read_bytes"), total(operators, "written_bytes")) == (read, written)


FLOPS: dict[str, tuple[nn.Module, tuple[Any, ...], int]] = {
    "one an element": (nn.ReLU(), (torch.ones(2, 3),), 6),
    "copies compute nothing": (
        Call(lambda x: x.to(torch.bfloat16).clone()),
        (torch.ones(2, 3),),
        0,
    ),
    "sums look at each": (Call(lambda x: x.sum()), (torch.ones(2, 3),), 6),
    "windows look at each of theirs": (nn.MaxPool2d(3, 2), (torch.ones(1, 2, 7, 7),), 2 * 9 * 9),
    "softmax": (nn.Softmax(-1), (torch.ones(2, 3),), 5 * 6),
    "layer norm": (nn.LayerNorm(3), (torch.ones(2, 3),), 7 * 6),
    "batch norm": (nn.BatchNorm1d(3), (torch.ones(2, 3),), 2 * 6),
    "embedding": (nn.Embedding(9, 4), (torch.zeros(2, dtype=torch.long),), 0),
}


@pytest.mark.parametrize("case", FLOPS)
def test_what_torch_does_not_count_is_counted_by_the_element(case: str) -> None:
    model, inputs, flops = FLOPS[case]
    assert total(seen(model, *inputs), "flops") == flops


def test_a_model_whose_call_is_its_own_is_counted_once() -> None:
    class OwnCall(nn.Module):
        def __call__(self, x: Tensor) -> Tensor:
            return x @ x

    assert total(seen(OwnCall(), torch.ones(4, 4)), "macs") == 4**3
