"""Small models, each with one property that tools have to handle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab.model.weights import weights_hash
from paifuser_lab.workload import UNSEEN, Inputs, Workload


class Small(nn.Module):
    """Convolution, batch-norm, ReLU, linear: the common case, with non-trivial batch-norm
    statistics.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.head = nn.Linear(8, 5)
        enliven(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.relu(self.norm(self.conv(images))).mean((2, 3)))


class Mapped(nn.Module):
    """Takes keyword arguments and returns a dict with a nested tuple, a constant and a None."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.line = nn.Linear(6, 4)
        self.config = {"hidden": 6}

    def forward(
        self, ids: Tensor, mask: Tensor | None = None, scale: float = 1.0
    ) -> dict[str, Any]:
        hidden = self.table(ids)
        if mask is not None:
            hidden = hidden * mask.unsqueeze(-1)
        return {
            "logits": self.line(hidden) * scale,
            "states": (hidden, None),
            "kind": "mapped",
            "count": 3,
        }

    def helper(self) -> str:
        return "helped"


class Counting(nn.Module):
    """Its forward changes a buffer in place, or rebinds it."""

    def __init__(self, *, rebinds: bool = False) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.rebinds = rebinds
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.rebinds:
            self.calls = self.calls + 1
        else:
            self.calls += 1
        return self.line(x)


class Scribbling(nn.Module):
    """Its forward changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x.add_(1))


class Tied(nn.Module):
    """The head's weight is the table's."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.body(self.table(ids)))


class SharedBias(Tied):
    """The head's bias is also the model's own, as in transformers' BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.head.bias = self.bias = nn.Parameter(torch.rand(7))


class Branching(nn.Module):
    """Its forward branches on the batch size, which an exported file cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) if x.shape[0] < 4 else -self.line(x)


class Scaled(nn.Module):
    """A plain attribute, not part of its weights, changes its output."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) * self.scale


class Viewed(nn.Module):
    """A linear layer reads its convolutions through `view`, which takes no other layout."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, images: Tensor) -> Tensor:
        seen = F.max_pool2d(F.relu(self.two(F.relu(self.one(images)))), 2)
        return self.head(seen.view(seen.size(0), -1))


class Conv1D(nn.Module):
    """GPT-2's linear layer of transformers, whose weight is the other way round."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def unchecked(model: nn.Module, inputs: Any, **options: Any) -> Workload:
    """A workload whose model was not called with its inputs, as if it had changed since."""
    work = Workload(model, UNSEEN, **options)
    work.inputs = Inputs.of(inputs)
    return work


def enliven(model: nn.Module) -> nn.Module:
    """Give batch-norms statistics, so that omitting one changes the output."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None and module.running_var is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.normal_(module.weight, 1.0, 0.5)
                nn.init.normal_(module.bias)
    return model.eval()


def random_llama(seed: int = 0, layers: int = 2, heads: int = 2, **config: Any) -> Any:
    """A language model whose logits are far from each other."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {"vocab_size": 23, "intermediate_size": 24, "max_position_embeddings": 64}
    sizes |= {"hidden_size": 8 * heads, "num_attention_heads": heads, "num_hidden_layers": layers}
    return LlamaForCausalLM(LlamaConfig(**sizes | config, initializer_range=0.3)).eval()


def images(batch: int = 2, size: int = 8) -> Tensor:
    return torch.randn(batch, 3, size, size)


def small(batch: int = 2, **options: Any) -> Workload:
    """The common case as a workload."""
    return Workload(Small(), images(batch), **{"name": "small"} | options)


def ids(batch: int = 2, length: int = 5) -> Tensor:
    return torch.randint(0, 7, (batch, length))


class OnGpu:
    """Stands for a tensor on a GPU, which numpy reads only once it is copied to the CPU."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.shape = tensor, tensor.shape

    def detach(self) -> OnGpu:
        return self

    def cpu(self) -> Tensor:
        return self.tensor


def state_of(model: nn.Module) -> dict[str, Any]:
    """The state of a model that analysis must not change."""
    return {
        "hash": weights_hash(model),
        "training": [module.training for module in model.modules()],
        "hooks": [
            len(module._forward_pre_hooks) + len(module._forward_hooks)
            for module in model.modules()
        ],
        "parameters": [
            (id(weight), weight.requires_grad, None if weight.grad is None else id(weight.grad))
            for weight in model.parameters()
        ],
        "buffers": [(id(buffer), buffer.clone().tolist()) for buffer in model.buffers()],
    }


class Perceptron(nn.Module):
    """Two linear layers around an activation, added to their input: what is checkpointed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.act(self.wide(x)))
