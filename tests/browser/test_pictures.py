"""One command makes the README's screenshots: the whole workbench, light and dark."""

from __future__ import annotations

import numpy
from PIL import Image

from benchmarks.pictures import take_pictures
from tests.browser import jupyterlab

pytestmark = jupyterlab.marks()


def test_screenshots_of_the_workbench_are_made_in_both_themes(tmp_path):
    light, dark = take_pictures(tmp_path, "resnet18-tiny", rounds=1, seconds=0.1)
    assert (light.name, dark.name) == ("workbench-light.png", "workbench-dark.png")
    sizes, brightness = [], []
    for path in (light, dark):
        with Image.open(path) as picture:
            sizes.append(picture.size)
            brightness.append(numpy.median(numpy.asarray(picture.convert("L"))))
    assert abs(sizes[0][1] - sizes[1][1]) <= 2 and sizes[0][0] == sizes[1][0] > 1000
    assert brightness[0] > 200 and brightness[1] < 60
    assert all(path.stat().st_size < 300_000 for path in (light, dark))
