"""Labels: the channel ids that the elements of a tensor depend on, and the operations that rules
use on them.

A label holds for every element of a tensor the channel id with which it is kept or removed. A
tensor has a label for each of its dimensions that can be narrowed: an activation usually one, a
weight matrix one for its rows and one for its columns. A dimension along which a label is constant
has stride 0, so that labels are small and view operators act on them as on the tensor. A tensor
without labels is fixed in all its dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from .channel_ids import FIXED, ChannelIds, Numbers

Label = Tensor  # of integers, with its tensor's shape
Labels = tuple[Label, ...]
# the channel ids along a dimension; its length where nothing of it can be removed
Row = Numbers | int


@dataclass(frozen=True)
class Size:
    """A number that a layer may store as an attribute: the count of these channel ids."""

    layer: str
    attribute: str  # empty where its name is the user's own
    channel_ids: Tensor


@dataclass(frozen=True)
class Shape:
    """The properties of a convolution or a matrix product that do not depend on its widths."""

    kind: str
    # of a convolution its batch and spatial sizes, of a product its rows
    input_sizes: tuple[int, ...]
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    has_bias: bool = False
    is_channels_last: bool = False
    dtype: torch.dtype = torch.float32
    device: str = "cpu"


@dataclass(frozen=True)
class Product:
    """One operator's multiply-adds: `times` the product of `sizes`; and its output values:
    `output_times` the product of `output_sizes`.
    """

    layer: str
    shape: Shape
    times: int
    # of a convolution output and input channels; of a product rows, input and output channels
    sizes: tuple[Row, ...]
    output_times: int
    output_sizes: tuple[Row, ...]


class LabelSpace:
    """The channel ids of one model, and the operations on labels of them."""

    def __init__(self) -> None:
        self.channel_ids = ChannelIds()
        self.sizes: dict[tuple[str, str, int], Size] = {}
        self.emitted: set[int] = set()
        self.consumed: set[int] = set()
        self.watched: list[Label] = []
        self.products: list[Product] = []

    def new_labels(self, shape: Sequence[int], dims: Iterable[int], weight: str = "") -> Labels:
        """Labels of new ids for the dimensions of a weight; or of a constant, for those along which
        all values are equal: fewer would do as well.
        """
        return tuple(
            spread(torch.from_numpy(self.channel_ids.fresh(weight, dim, shape[dim])), dim, shape)
            for dim in dims
            if shape[dim] > 1
        )

    def varies(self, label: Label) -> tuple[int, ...]:
        """The dimensions along which the elements are not all kept or removed together."""
        inner = core(label)
        if not any(size > 1 for size in inner.shape):
            return ()
        roots = self.channel_ids.roots(inner.numpy())
        return tuple(
            d
            for d in range(roots.ndim)
            if roots.shape[d] > 1 and (roots != roots.take([0], axis=d)).any()
        )

    def unite(self, first: Label, second: Label) -> None:
        """Join the ids at equal positions."""
        left, right = numpy.broadcast_arrays(core(first).numpy(), core(second).numpy())
        self.channel_ids.join(left, right)

    def keep_whole(self, label: Label, dims: Iterable[int], why: str) -> Label:
        """Join everything along these dimensions, so that they cannot lose a part."""
        for dim in dims:
            if label.shape[dim] > 1 and label.stride(dim) != 0:
                first = label.narrow(dim, 0, 1)
                self.unite(label, first)
                self.channel_ids.tie(core(first).numpy(), why)
                label = first.expand(label.shape)
        return label

    def keep_all_whole(self, labels: Labels, dims: Iterable[int], why: str) -> Labels:
        """The same for every label of a tensor."""
        dims = tuple(dims)
        return tuple(self.keep_whole(label, dims, why) for label in labels)

    def axes(self, labels: Labels, dims: Sequence[int], why: str) -> list[Tensor | None]:
        """The row of ids along each of these dimensions, each from a label of its own, assigned to
        the first dimension along which it varies.

        Where two dimensions were merged into one, such as heads and head size, the outer one keeps
        its units.
        """
        rows: list[Tensor | None] = [None] * len(dims)
        for label in labels:
            varied = self.varies(label)
            index = next(
                (index for index, dim in enumerate(dims) if dim in varied and rows[index] is None),
                None,
            )
            kept = None if index is None else dims[index]
            label = self.keep_whole(label, [dim for dim in varied if dim != kept], why)
            if index is not None and kept is not None:
                rows[index] = along(label, kept)
        return rows

    def match(self, first: Tensor | None, second: Tensor | None, why: str) -> None:
        """Join two rows; where one is None (fixed), keep the other whole."""
        if first is not None and second is not None:
            self.unite(first, second)
        for row in (first, second):
            if row is not None and (first is None or second is None):
                self.keep_whole(row, [0], why)

    def fix(self, labels: Labels, why: str) -> None:
        """Mark these labels as not removable."""
        for label in labels:
            self.channel_ids.fix(core(label).numpy(), why)

    def tie_blocks(self, label: Label, dim: int, count: int) -> None:
        """Split a dimension into equal parts that lose the same positions."""
        parts = unfolded(label, dim, (count, -1))
        self.unite(parts, parts.narrow(dim, 0, 1))

    def record_length(self, layer: str, attribute: str, row: Tensor | None) -> None:
        """Record that a layer may store the length of this row in an attribute."""
        if row is not None:
            key = (layer, attribute, len(row) if attribute else int(row[0]) * 2**20 + len(row))
            self.sizes.setdefault(key, Size(layer, attribute, row))

    def emit(self, *rows: Tensor | None) -> None:
        """Record that the weights of these ids produce values along them."""
        self.emitted |= self._spans_of(rows)

    def consume(self, *rows: Tensor | None) -> None:
        """Record that the weights of these ids are summed over along them."""
        self.consumed |= self._spans_of(rows)

    def watch(self, labels: Labels) -> None:
        """Store labels of several dimensions, since a tensor can be cut along one only."""
        self.watched += [
            label for label in labels if sum(size > 1 for size in core(label).shape) > 1
        ]

    def settle(self) -> None:
        """Leave no label that varies along several dimensions: keep that with the most classes."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for label in self.watched:
                varied = self.varies(label)
                if len(varied) > 1:
                    best = max(varied, key=lambda dim: self._classes_along(label, dim))
                    self.keep_whole(
                        label,
                        [dim for dim in varied if dim != best],
                        "a reshape mixes it with others",
                    )
                    is_settled = False

    def _classes_along(self, label: Label, dim: int) -> int:
        """The number of units that could be removed if only this dimension lost any."""
        roots = numpy.moveaxis(self.channel_ids.roots(core(label).numpy()), dim, 0).reshape(
            core(label).shape[dim], -1
        )
        names, columns = numpy.unique(roots, return_inverse=True)
        columns = columns.reshape(roots.shape)
        rows = numpy.broadcast_to(numpy.arange(len(roots))[:, None], roots.shape)
        nodes = len(roots) + len(names)
        graph = coo_array(
            (numpy.ones(roots.size), (rows.ravel(), len(roots) + columns.ravel())),
            shape=(nodes, nodes),
        )
        _, component = connected_components(graph, directed=False)
        stays = {
            int(component[len(roots) + i])
            for i, name in enumerate(names.tolist())
            if name == FIXED or name in self.channel_ids.fixed
        }
        return len(set(component[: len(roots)].tolist()) - stays)

    def _spans_of(self, rows: Iterable[Tensor | None]) -> set[int]:
        return {
            span
            for row in rows
            if row is not None
            for span in self.channel_ids.spans_of(core(row).numpy())
        }


def core(label: Label) -> Tensor:
    """A label without its repetitions: one position along every dimension of stride 0."""
    return label[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in label.stride())]


def compressed(label: Label) -> Label:
    """The same label, with stride 0 wherever it repeats."""
    shape = label.shape
    for dim in range(label.ndim):
        first = label.narrow(dim, 0, 1) if label.shape[dim] else label
        if (
            label.shape[dim] > 1
            and label.stride(dim) != 0
            and torch.equal(core(label), core(first).expand_as(core(label)))
        ):
            label = first
    return label.expand(shape)


def spread(row: Tensor, dim: int, shape: Sequence[int]) -> Label:
    """A row of ids as the label of a tensor along dimension `dim`."""
    return row.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(
        list(shape)
    )


def along(label: Label, dim: int) -> Tensor:
    """The row of ids along a dimension, at the first position of the others."""
    return label[tuple(slice(None) if d == dim else 0 for d in range(label.ndim))]


def unfolded(label: Label, dim: int, sizes: tuple[int, int]) -> Label:
    """One dimension split into two."""
    dim %= label.ndim
    return label.reshape(*label.shape[:dim], *sizes, *label.shape[dim + 1 :])
