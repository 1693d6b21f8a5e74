"""The README's code does what it says, on small models in place of the full ones."""

from __future__ import annotations

import re
from pathlib import Path

import paifuser_lab as lab

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SMALL = {'"segvit-maps"': '"segvit-tiny"'}


def code_under(title: str) -> str:
    """The first block of Python under a heading."""
    section = README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    match = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert match is not None
    found = match[1]
    for name, small in SMALL.items():
        found = found.replace(name, small)
    return found


def test_layers_run_as_one_and_attend_to_less_as_the_readme_says():
    names = {"lab": lab, "work": lab.load("resnet18-tiny")}
    exec(code_under("Layers as one, attention to less"), names)
    off = [one.place for one in lab.apply(names["work"], names["fast"]).fusions.fusions if one.standing == "off"]
    assert off
    assert all(place.startswith("layer4.") for place in off)
    assert names["panel"].step == {"attention": {"kind": "topk", "keep": 0.1}}
