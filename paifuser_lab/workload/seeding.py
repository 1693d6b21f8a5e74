"""Random numbers by seed, epoch and step alone: a resumed training needs no stored state."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch


def seed_of(*what: int) -> int:
    """One seed derived from several numbers."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest())


def seed_all(device: torch.device, *what: int) -> None:
    """Seed torch, numpy and Python; other devices keep their state."""
    seed = seed_of(*what)
    torch.default_generator.manual_seed(seed)
    numpy.random.seed(seed % 2**32)
    random.seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def preserve_rng(device: torch.device) -> Iterator[None]:
    """Restore the random state of torch, numpy and Python on exit."""
    numbers, choices = numpy.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        numpy.random.set_state(numbers)
        random.setstate(choices)


@contextmanager
def seeded_generators(loader: Any, seed: int) -> Iterator[None]:
    """Seed the random generators that a loader and its samplers own; they are restored on exit."""
    holders = [loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler"))]
    own = {
        id(generator): generator
        for holder in holders
        if isinstance(generator := getattr(holder, "generator", None), torch.Generator)
    }
    states = [(generator, generator.get_state()) for generator in own.values()]
    for generator in own.values():
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
