"""Random weights that are the same in every process, and that behave like trained ones.

Trained networks have batch-norms that are not the identity; a fold that ignored them would still be
exact on a new `nn.BatchNorm2d`. So every norm is drawn away from the identity, and the fan-in
rule keeps activations at a reasonable scale.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import nn

RELU_GAIN = math.sqrt(2.0)
SILU_GAIN = 1.5
RESIDUAL_SCALE = 0.3


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw the same random numbers every time, and leave the caller's random state as it was."""
    # On the CPU whatever the default device (meta apart, where nothing is drawn): other devices
    # draw other numbers. And not torch.manual_seed, which would reseed the caller's accelerators
    # too.
    device = "meta" if torch.get_default_device().type == "meta" else "cpu"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.default_generator.manual_seed(seed)
        yield


def initialise(model: nn.Module, *, gain: float = 1.0) -> None:
    """Draw every weight from the current random state; `gain` compensates for the activation.

    Parameters that belong to a model's own classes (position embeddings, layer scales) are drawn
    where they are made.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
                module.weight.normal_(std=gain / math.sqrt(_fan_in(module)))
                if module.bias is not None:
                    module.bias.normal_(std=0.02)
            elif isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                module.weight.mul_(torch.empty_like(module.weight).uniform_(0.8, 1.2))
                module.bias.normal_(std=0.1)
                if (
                    isinstance(module, nn.BatchNorm2d)
                    and module.running_mean is not None
                    and module.running_var is not None
                ):
                    module.running_mean.normal_(std=0.1)
                    module.running_var.uniform_(0.7, 1.4)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(std=0.02)


def damp(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """Start a residual branch's last norm small, so that the sum of many does not explode."""
    nn.init.constant_(norm.weight, RESIDUAL_SCALE)
    return norm


def _fan_in(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear) -> float:
    if isinstance(layer, nn.ConvTranspose2d):
        return layer.weight[:, 0].numel() / layer.groups / math.prod(layer.stride)
    return layer.weight[0].numel()
