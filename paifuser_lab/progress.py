"""Progress of long work, in notebooks, terminals and papermill logs. Stands on tqdm.

PAIFUSER_PROGRESS chooses: `auto` (a bar where a person is, plain lines elsewhere), `bar`, `lines`
or `none`. PAIFUSER_STATIC=1 leaves widgets out of notebooks, so that a bar becomes plain lines.
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
    """What long work reports its progress to: how much is done, and what it is doing."""

    def advance(self, count: int = 1, doing: str = "") -> None: ...


class _Silent:
    def advance(self, count: int = 1, doing: str = "") -> None:
        return


class _Lines:
    """Plain lines, a few seconds apart, for logs."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.said_at = time.monotonic()

    def advance(self, count: int = 1, doing: str = "") -> None:
        self.done += count
        if time.monotonic() - self.said_at > LINE_EVERY_S:
            self.said_at = time.monotonic()
            print(
                f"{self.what}: {self.done} of {self.total}{' · ' + doing if doing else ''}",
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
def progress(what: str, total: int) -> Iterator[Progress]:
    """Show how far `what` has come, in the way that suits where it runs."""
    style = _style()
    if style != "bar":
        yield _Silent() if style == "none" else _Lines(what, total)
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=what, leave=False) as bar:
        yield _Bar(bar)
        # work that ends at its time limit is done, and a bar short of its total would stay, in red
        bar.total = bar.n


def is_static() -> bool:
    """Whether widgets are to be left out, as papermill and nbconvert want it."""
    return os.environ.get("PAIFUSER_STATIC", "") not in ("", "0")


def _style() -> str:
    chosen = os.environ.get("PAIFUSER_PROGRESS", "auto")
    if chosen != "auto":
        return chosen
    if "ipykernel" in sys.modules:
        return "lines" if is_static() else "bar"
    return "bar" if sys.stderr.isatty() else "lines"
