"""The map in CONTRIBUTING.md has the floors of the house test and the arrows of the imports."""

from __future__ import annotations

import re

import pytest

from tests.support import draw_map


@pytest.mark.parametrize("theme", draw_map.FILES)
def test_the_map_s_floors_are_those_of_the_house_test(theme):
    text = draw_map.FILES[theme].read_text(encoding="utf-8")
    drawn = [
        frozenset(re.findall(r'data-room="(\w+)"', floor))
        for floor in re.findall(r'<g data-floor="\d+">\n(.*?)\n</g>\n', text + "\n", re.DOTALL)
    ]
    assert tuple(drawn) == draw_map.floors(), "`make map` draws it anew"


@pytest.mark.parametrize("theme", draw_map.FILES)
def test_the_map_is_drawn_from_the_imports_as_they_are(theme):
    text = draw_map.FILES[theme].read_text(encoding="utf-8")
    assert text == draw_map.svg(theme), "`make map` draws it anew"


def test_every_room_has_a_description():
    assert draw_map.ABOUT.keys() == {room for floor in draw_map.floors() for room in floor}


def test_an_arrow_that_others_imply_is_left_out():
    arrows = set(draw_map.arrows())
    direct = draw_map.imports()
    assert all(target in direct[room] for room, target in arrows)
    assert len(arrows) < sum(map(len, direct.values())) / 3
    for room, target in arrows:
        others = direct[room] - {target}
        assert not any(target in direct[other] for other in others)
