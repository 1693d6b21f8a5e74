"""Which examples a rank sees: each example once an epoch over all ranks, in as many steps on each
rank, in an order that seed and epoch determine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler

from ..errors import ParallelError
from .group import Group


class EachOnce(Sampler[list[int]]):
    """The batches of one rank. Where the examples do not divide evenly, sizes of batches differ by
    one: no example is repeated or left out, and no rank waits for a step that another has not.

    Like torch's DistributedSampler it has `set_epoch`; without it, each pass is the next epoch.
    """

    def __init__(
        self,
        examples: int,
        batch_size: int,
        group: Group,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        world = group.world
        if drop_last:
            examples -= examples % (world * batch_size)
        if examples < world:
            raise ParallelError(
                f"{examples} examples are too few for {world} ranks"
                f"{' with drop_last' if drop_last else ''}; give each at least one."
            )
        self.examples, self.group, self.shuffle, self.seed = examples, group, shuffle, seed
        # as many steps as whole batches need, but none with a rank that has no example
        self.steps = min(-(-examples // (world * batch_size)), examples // world)
        self.epoch = 0

    def __len__(self) -> int:
        return self.steps

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = (
            torch.randperm(self.examples, generator=generator)
            if self.shuffle
            else torch.arange(self.examples)
        ).tolist()
        self.epoch += 1
        parts = self.steps * self.group.world
        for step in range(self.steps):
            part = step * self.group.world + self.group.rank
            yield order[part * self.examples // parts : (part + 1) * self.examples // parts]


def divided_loader(loader: DataLoader[Any], group: Group, seed: int = 0) -> DataLoader[Any]:
    """The same loader for one rank: its part of each batch; `batch_size` is that of one rank."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        raise ParallelError(
            "The loader's examples cannot be picked by number, so that they cannot be divided "
            "among ranks; give a map-style dataset and a batch_size, or divide it yourself by "
            "parallel.join().rank."
        )
    sampler = EachOnce(
        len(loader.dataset),  # type: ignore[arg-type]
        loader.batch_size,
        group,
        shuffle=isinstance(loader.sampler, RandomSampler),
        seed=seed,
        drop_last=loader.drop_last,
    )
    return DataLoader(loader.dataset, batch_sampler=sampler, **_options_of(loader))


def _options_of(loader: DataLoader[Any]) -> dict[str, Any]:
    names: tuple[str, ...] = (
        "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator",
        "multiprocessing_context", "persistent_workers",
    )  # fmt: skip
    if loader.num_workers:
        names = (*names, "prefetch_factor")
    return {name: getattr(loader, name) for name in names}
