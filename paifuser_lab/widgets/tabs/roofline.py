"""The section of the roofline: the layers of a profile under the machine's roofline."""

from __future__ import annotations

from typing import Any

from ...records import Profile, Roofline
from ..section import Section
from ..wire import dumped


def _pack(shown: Roofline | Profile) -> dict[str, Any]:
    return dumped(shown.roofline if isinstance(shown, Profile) else shown)


SECTION = Section(
    "roofline",
    record=Roofline,
    pack=_pack,
    title="How near each layer comes to what this machine can do",
    tab="machine",
    sources=lambda state: (state.profile or state.baseline,),
)
