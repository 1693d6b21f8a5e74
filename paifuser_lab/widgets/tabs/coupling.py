"""The section of channel coupling: which channels are removed together."""

from __future__ import annotations

from typing import Any

from ...records import Coupling
from ..section import Section
from ..wire import integers, numbered


def packed_coupling(coupling: Coupling) -> dict[str, Any]:
    """The groups in their order; the members of all groups, group after group."""
    members = [member for group in coupling.groups for member in group.members]
    return {
        "title": coupling.title,
        "name": [group.name for group in coupling.groups],
        "width": integers(group.width for group in coupling.groups),
        "unit": integers(group.unit for group in coupling.groups),
        "pinned": numbered(group.pinned or "" for group in coupling.groups),
        "count": integers(len(group.members) for group in coupling.groups),
        "layer": numbered(member.layer for member in members),
        "parameter": numbered(member.parameter for member in members),
        "kind": numbered(member.kind for member in members),
    }


SECTION = Section(
    "coupling",
    record=Coupling,
    pack=packed_coupling,
)
