"""The section of two profiles, layer by layer: a record alone, or two results of the session."""

from __future__ import annotations

from typing import Any

from ...profiler import side_by_side
from ...records import Profile, SideBySide
from ...session.state import State
from ...views import picture_of
from ...views.picture import Picture
from ..section import chart_section


def _picture(first: Any, second: Profile | None = None) -> Picture:
    return picture_of(first if second is None else side_by_side(first, second))


def _sources(state: State) -> tuple[Any, ...]:
    """The profiles of two results if both are kept; other ones once the latencies are restated."""
    compared = state.record("side_by_side")
    if compared is None:
        return (None,)
    tried, numbers = compared
    profiles = [tried.profile(number) for number in numbers]
    is_pair = len({id(profile) for profile in profiles if profile is not None}) == 2
    return tuple(profiles) if is_pair else (None,)


SECTION = chart_section(
    "side_by_side",
    SideBySide,
    "side by side",
    picture=_picture,
    sources=_sources,
    title="Layer by layer",
    tab="results",
)
