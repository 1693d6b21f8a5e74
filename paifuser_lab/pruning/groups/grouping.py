"""Groups of channels, whose units are classes of ids with positions in the same weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from torch import nn

from ...records import ChannelGroup, Coupling, Member
from ...workload import Inputs, Workload, workload_of
from .channel_ids import ChannelIds, Numbers, Span
from .label_space import LabelSpace
from .trace_labels import trace

Flags = NDArray[numpy.bool_]
SINGLE_UNIT = "it is a single unit"


@dataclass(frozen=True)
class Structure:
    """The groups of a model, and for each of their units its class of channel ids."""

    groups: tuple[ChannelGroup, ...]
    units: tuple[tuple[int, ...], ...]
    spans: tuple[Span, ...]
    classes: Numbers  # of each channel id
    space: LabelSpace

    def record(self, name: str) -> Coupling:
        """The groups as a record."""
        return Coupling(workload=name, groups=self.groups)

    def kept(self, removed: set[int]) -> Flags:
        """Whether each channel id stays when these classes are removed."""
        return ~numpy.isin(
            self.classes, numpy.fromiter(removed, dtype=numpy.int64, count=len(removed))
        )


@dataclass(frozen=True)
class CutProblem:
    """What a cut is chosen for: workload, present model with its groups, and threads."""

    work: Workload
    model: nn.Module
    structure: Structure
    threads: int
    should_stop: Callable[[], bool] = lambda: False

    @property
    def groups(self) -> tuple[ChannelGroup, ...]:
        """The groups of channels that can only be cut together."""
        return self.structure.groups


def couple(model: nn.Module, inputs: Inputs) -> Structure:
    """Find which channels of a model go together, from one run on example inputs."""
    space = trace(model, inputs)
    channel_ids = space.channel_ids
    classes = channel_ids.roots(numpy.arange(channel_ids.count))
    kinds = _kinds(model, space)
    grouped = _by_signature(channel_ids, classes, kinds)
    grouped = [
        (signature, units) for signature, units in grouped if not _is_window(channel_ids, signature)
    ]
    groups = [_group(channel_ids, signature, units, kinds) for signature, units in grouped]
    order = sorted(range(len(groups)), key=lambda index: grouped[index][1][0])
    return Structure(
        tuple(groups[index] for index in order),
        tuple(tuple(grouped[index][1]) for index in order),
        tuple(channel_ids.spans),
        classes,
        space,
    )


def channel_groups(work: Workload) -> Coupling:
    """Every group of channels of a workload's model, before anything is cut."""
    work = workload_of(work)
    return couple(work.model, work.inputs).record(work.name)


Signature = tuple[tuple[int, int], ...]  # spans, and how many positions a unit has in each


def _by_signature(
    channel_ids: ChannelIds, classes: Numbers, kinds: list[str]
) -> list[tuple[Signature, list[int]]]:
    """Classes that have equally many positions in the same spans."""
    positions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, span in enumerate(channel_ids.spans):
        if not span.weight:
            continue
        roots, counts = numpy.unique(classes[span.start : span.stop], return_counts=True)
        for root, count in zip(roots.tolist(), counts.tolist(), strict=True):
            positions[root].append((number, count))
    grouped: dict[tuple[Signature, bool], list[int]] = defaultdict(list)
    for root, spans in positions.items():
        if any(kinds[number] == "rows" for number, _ in spans):
            grouped[(tuple(spans), root in channel_ids.fixed)].append(root)
    return [(signature, sorted(units)) for (signature, _), units in grouped.items()]


def _group(
    channel_ids: ChannelIds, signature: Signature, units: list[int], kinds: list[str]
) -> ChannelGroup:
    members = tuple(_member(channel_ids.spans[number], kinds[number]) for number, _ in signature)
    main = max(
        (index for index, member in enumerate(members) if member.kind == "rows"),
        key=lambda index: signature[index][1],
    )
    return ChannelGroup(
        name=members[main].layer or members[main].parameter,
        width=len(units),
        unit=signature[main][1],
        members=members,
        pinned=_obstacle(channel_ids, signature, units),
    )


def _is_window(channel_ids: ChannelIds, signature: Signature) -> bool:
    """Whether this is one whole dimension of a weight that is not channels, such as a window."""
    (number, count), *others = signature
    span = channel_ids.spans[number]
    return not others and span.dimension > 0 and count == span.stop - span.start


def _obstacle(channel_ids: ChannelIds, signature: Signature, units: list[int]) -> str | None:
    """Why a group cannot lose a unit."""
    root = units[0]
    if root in channel_ids.fixed:
        return channel_ids.fixed[root]
    if any(
        count == channel_ids.spans[number].stop - channel_ids.spans[number].start
        for number, count in signature
    ):
        return channel_ids.tied.get(root, SINGLE_UNIT)
    return None


def _member(span: Span, kind: str) -> Member:
    layer, _, parameter = span.weight.rpartition(".")
    return Member.model_validate(
        {"layer": layer, "parameter": parameter, "dimension": span.dimension, "kind": kind}
    )


def _kinds(model: nn.Module, space: LabelSpace) -> list[str]:
    """The kind of each span: 'buffer', 'columns' if it is only summed over, else 'rows'."""
    buffers = {name for name, _ in model.named_buffers()}
    return [
        "buffer"
        if span.weight in buffers
        else "columns"
        if number in space.consumed - space.emitted
        else "rows"
        for number, span in enumerate(space.channel_ids.spans)
    ]
