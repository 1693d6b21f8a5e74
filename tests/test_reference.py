"""The reference that the site generates has a meaning for everything that a user may give."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import paifuser_lab as lab

ROOT = Path(__file__).parent.parent
reference = runpy.run_path(str(ROOT / "docs" / "reference.py"))


def meanings(page: str) -> list[tuple[str, str]]:
    """The last cell of each row of a page's tables, by the page's heading and the row's name."""
    heading, rows = "", []
    for line in reference[page]().splitlines():
        heading = line if line.startswith("## ") else heading
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows.append((f"{heading} {cells[0]}", cells[-1]))
    return rows


@pytest.mark.parametrize(("page", "least"), [("steps", 60), ("commands", 100), ("variables", 7)])
def test_every_option_and_variable_has_a_meaning(page: str, least: int) -> None:
    rows = meanings(page)
    assert len(rows) >= least and [name for name, meaning in rows if not meaning] == []


def test_every_public_name_has_a_docstring_on_the_page_of_functions_or_of_records() -> None:
    text: Any = reference["functions"]() + reference["records"]()
    headings = re.findall(r"^## (\w+)\n\n(.)", text, re.MULTILINE)
    assert set(lab.__all__) <= {name for name, first in headings if first.strip()}


def test_the_page_of_functions_is_the_same_from_build_to_build() -> None:
    assert " at 0x" not in reference["functions"]()


def test_every_environment_variable_is_on_its_page() -> None:
    named = {
        name
        for file in (ROOT / "paifuser_lab").rglob("*.py")
        for name in re.findall(r"PAIFUSER_[A-Z]+", file.read_text(encoding="utf-8"))
    }
    assert named == reference["VARIABLES"].keys()
