"""The map in CONTRIBUTING.md has the bands of the house test."""

from __future__ import annotations

import pytest

from tests.support import draw_map
from tests.support.house import BAND_OF


@pytest.mark.parametrize("theme", draw_map.FILES)
def test_the_map_has_every_room_in_its_band(theme):
    text = draw_map.FILES[theme].read_text(encoding="utf-8")
    assert text == draw_map.svg(theme), "`make map` draws it anew"
    assert all(f'data-room="{room}"' in text for room in BAND_OF)


def test_every_room_has_a_description():
    assert draw_map.ABOUT.keys() == BAND_OF.keys()
