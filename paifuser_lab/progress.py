"""Progress of long work, in notebooks, terminals and papermill logs. Built on tqdm.

PAIFUSER_PROGRESS chooses: `auto` (a bar in notebooks and terminals, plain lines elsewhere), `bar`,
`lines` or `none`. PAIFUSER_STATIC=1 leaves widgets out of notebooks, and bars become plain lines.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

LINE_EVERY_S = 5.0


class Progress(Protocol):
    """The object to which long work reports how much is done and what it is doing."""

    def advance(self, count: int = 1, doing: str = "") -> None: ...


class _Silent:
    def advance(self, count: int = 1, doing: str = "") -> None:
        return


class _Lines:
    """Plain lines, a few seconds apart, for logs."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.total, self.done = what, total, 0
        self.printed_at = time.monotonic()

    def advance(self, count: int = 1, doing: str = "") -> None:
        self.done += count
        if time.monotonic() - self.printed_at > LINE_EVERY_S:
            self.printed_at = time.monotonic()
            of = f" of {self.total}" if self.total is not None else ""
            print(
                f"{self.what}: {self.done}{of}{' · ' + doing if doing else ''}",
                file=sys.stderr,
                flush=True,
            )


class _Bar:
    def __init__(self, bar: Any) -> None:
        self.bar = bar

    def advance(self, count: int = 1, doing: str = "") -> None:
        if doing:
            self.bar.set_postfix_str(doing, refresh=False)
        self.bar.update(count)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Progress]:
    """Show the progress of `what` as a bar, as lines or not at all, depending on where it runs;
    `total` is None where nobody knows it.
    """
    style = _style()
    if style != "bar":
        yield _Silent() if style == "none" else _Lines(what, total)
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=what, leave=False) as bar:
        yield _Bar(bar)
        # work that stops at its time limit is complete; tqdm would leave its unfilled bar, in red
        bar.total = bar.n


def is_static() -> bool:
    """Whether to leave out widgets, for papermill and nbconvert."""
    return os.environ.get("PAIFUSER_STATIC", "") not in ("", "0")


def _style() -> str:
    style = os.environ.get("PAIFUSER_PROGRESS", "auto")
    if style != "auto":
        return style
    if "ipykernel" in sys.modules:
        return "lines" if is_static() else "bar"
    return "bar" if sys.stderr.isatty() else "lines"
