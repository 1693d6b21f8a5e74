"""What a run of the tests left out: a line for each reason, and how to have those tests run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

# The first whose words are in the reason; a reason of none is a fact of the machine.
HOW = {
    "Chromium": "install chromium or google-chrome",
    r"g\+\+|C\+\+ compiler": "install g++",
    "no GPU": "run them on a machine with an NVIDIA GPU",
    "is not installed|could not import": "`make install` has every package",
}


def gather(skipped: Mapping[str, str], file: Path | None) -> dict[str, str]:
    """The reason of each test that was skipped, by its name; with a file, also those that earlier
    runs wrote there.
    """
    if file is None:
        return dict(skipped)

    gathered = (json.loads(file.read_text("utf-8")) if file.exists() else {}) | skipped
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(gathered), "utf-8")
    return gathered


def lines(skipped: Mapping[str, str]) -> list[str]:
    """One line for each reason, the most frequent first."""
    names: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names.setdefault(_without_place(reason), []).append(name)
    return [
        f"skipped {_count(names[reason])}: {reason}{_how(reason)}"
        for reason in sorted(names, key=lambda reason: -len(names[reason]))
    ]


def _count(names: list[str]) -> str:
    """How many tests, and how many files that were skipped before their tests were known."""
    tests = sum("::" in name for name in names)
    counts = {"test": tests, "whole file": len(names) - tests}
    return " and ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in counts.items() if n)


def _without_place(reason: str) -> str:
    """A reason without pytest's prefix and what Python adds to a failed import."""
    reason = reason.removeprefix("Skipped: ").rstrip(".")
    return re.sub(r"(could not import '[^']*').*", r"\1", reason)


def _how(reason: str) -> str:
    return next((f"; {how}" for words, how in HOW.items() if re.search(words, reason)), "")
