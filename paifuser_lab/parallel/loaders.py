"""Which examples a rank sees: each once an epoch over all ranks, in as many steps on each, in an
order that seed and epoch determine; and a data set that all ranks of a machine read in the same
memory, so that each example is fetched once, by rank 0.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
)

from ..errors import ParallelError, first_line
from .group import Group

SHARED = "/dev/shm"  # where Linux keeps files in memory
ALIGNMENT = 64


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
    examples = len(loader.dataset)  # type: ignore[arg-type]
    chosen: Any = loader.sampler
    is_usual = type(chosen) in (RandomSampler, SequentialSampler) and len(chosen) == examples
    if not is_usual or getattr(chosen, "replacement", False):
        raise ParallelError(
            f"The loader's {type(chosen).__name__} chooses the examples, which would be lost where "
            "they are divided among ranks; give the data set that is meant (a Subset), or divide "
            "it yourself by parallel.join().rank."
        )
    sampler = EachOnce(
        examples,
        loader.batch_size,
        group,
        shuffle=isinstance(chosen, RandomSampler),
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


class SharedExamples(Dataset[Any]):
    """The examples, mapped into this process. What is drawn from a data set's random changes is
    fixed by it: each example is the same in every epoch.
    """

    def __init__(self, values: list[Tensor], spec: Any, *, is_batched: bool) -> None:
        self.values, self.spec, self.is_batched = values, spec, is_batched
        self.mapped_bytes = self.copied_bytes = 0

    def __len__(self) -> int:
        return len(self.values[0])

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """A whole batch where it is collated as usual, else its examples."""
        if not self.is_batched:
            return [self[index] for index in indices]
        first, count = indices[0], len(indices)
        is_range = list(indices) == list(range(first, first + count))
        batch = [
            value[first : first + count] if is_range else value[torch.tensor(indices)]
            for value in self.values
        ]
        self._count(batch, is_copied=not is_range)
        return pytree.tree_unflatten(batch, self.spec)

    def __getitem__(self, index: int) -> Any:
        example = [value[index] for value in self.values]
        self._count(example, is_copied=True)  # by whatever joins the examples
        return pytree.tree_unflatten(example, self.spec)

    def _count(self, tensors: list[Tensor], *, is_copied: bool) -> None:
        size = sum(tensor.nbytes for tensor in tensors)
        self.mapped_bytes += size
        self.copied_bytes += size if is_copied else 0


def shared_loader(loader: DataLoader[Any], group: Group) -> DataLoader[Any]:
    """The same loader, already divided among the ranks, on examples in shared memory."""
    if int(os.environ.get("LOCAL_WORLD_SIZE", group.world)) != group.world:
        raise ParallelError("shared_memory is for ranks on one machine; leave it out here.")
    is_batched = loader.collate_fn is default_collate
    examples = share(loader.dataset, group, is_batched=is_batched)
    sampler = loader.batch_sampler
    assert isinstance(sampler, EachOnce)
    collate = _unchanged if is_batched else loader.collate_fn
    return DataLoader(examples, batch_sampler=sampler, collate_fn=collate)


def share(dataset: Any, group: Group, *, is_batched: bool = True) -> SharedExamples:
    """Read the examples on rank 0 into memory that every rank maps; nothing of it stays on disk."""
    message: list[Any] = [None]
    path: Path | None = None
    if group.rank == 0:
        try:
            path, shapes, spec = _written(dataset)
            message = [(str(path), shapes, spec)]
        except Exception as error:  # a data set's own, told to all ranks
            message = [ParallelError(f"the data cannot be shared: {first_line(error)}")]
    if not group.is_alone:
        dist.broadcast_object_list(message, 0)
    if isinstance(message[0], ParallelError):
        raise message[0]
    name, shapes, spec = message[0]
    try:
        values = [_mapped(Path(name), *shape) for shape in shapes]
        if not group.is_alone:
            dist.barrier()
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    return SharedExamples(values, spec, is_batched=is_batched)


def _written(dataset: Any) -> tuple[Path, list[tuple[int, tuple[int, ...], torch.dtype]], Any]:
    """Write all examples, one leaf after another; the offset, shape and dtype of each leaf."""
    count = len(dataset)
    first, spec = pytree.tree_flatten(dataset[0])
    leaves = [_tensor(leaf) for leaf in first]
    shapes, end = [], 0
    for leaf in leaves:
        shapes.append((end, (count, *leaf.shape), leaf.dtype))
        end += -(-count * leaf.nbytes // ALIGNMENT) * ALIGNMENT
    folder = SHARED if Path(SHARED).is_dir() else tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if end > free:
        raise ParallelError(f"it takes {end:,} bytes, and {folder} has {free:,}; leave it out")
    descriptor, name = tempfile.mkstemp(prefix="paifuser-", dir=folder)
    os.close(descriptor)
    path = Path(name)
    try:
        os.truncate(path, max(end, 1))
        values = [_mapped(path, *shape) for shape in shapes]
        for index in range(count):
            example, other = pytree.tree_flatten(dataset[index])
            if other != spec:
                raise ParallelError(f"example {index} has another structure than example 0")
            for value, leaf in zip(values, map(_tensor, example), strict=True):
                if leaf.shape != value.shape[1:] or leaf.dtype != value.dtype:
                    raise ParallelError(
                        f"example {index} is {leaf.dtype} {tuple(leaf.shape)} where example 0 is "
                        f"{value.dtype} {tuple(value.shape[1:])}"
                    )
                value[index] = leaf
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path, shapes, spec


def _mapped(path: Path, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    size = torch.Size(shape).numel()
    whole = torch.from_file(str(path), shared=True, size=path.stat().st_size, dtype=torch.uint8)
    part = whole[offset : offset + size * dtype.itemsize]
    return part.view(dtype).view(shape)


def _tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor | numpy.ndarray | int | float | numpy.generic):
        return torch.as_tensor(leaf)
    raise ParallelError(f"an example has a {type(leaf).__name__}, which is no tensor or number")


def _unchanged(batch: Any) -> Any:
    return batch
