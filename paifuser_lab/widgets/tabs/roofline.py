"""The section of the roofline: the layers of a profile under the machine's roofline."""

from __future__ import annotations

from ...records import Profile, Roofline
from ...views.picture import Picture
from ...views.roofline import picture
from ..section import chart_section


def _picture(shown: Roofline | Profile) -> Picture:
    return picture(shown.roofline if isinstance(shown, Profile) else shown)


SECTION = chart_section(
    "roofline",
    Roofline,
    "roofline",
    before="How near does each layer come to what this machine can do? The profile tells, in "
    "seconds.",
    title="How near each layer comes to what this machine can do",
    tab="machine",
    picture=_picture,
    sources=lambda state: (state.profile or state.baseline,),
)
