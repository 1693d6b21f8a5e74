"""Progress of long work, in notebooks, terminals and papermill logs. Built on tqdm.

In a notebook a bar is HTML, not a widget: a stored notebook would show an error in its place.

PAIFUSER_PROGRESS chooses: `auto` (a bar in notebooks and terminals, plain lines elsewhere), `bar`,
`lines` or `none`. PAIFUSER_STATIC=1 leaves widgets out of notebooks, and bars become plain lines.
"""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

LINE_EVERY_S = 5.0
DRAW_EVERY_S = 0.2


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


class _CellBar:
    """A bar in a cell's output; `close` empties that output."""

    def __init__(self, what: str, total: int | None) -> None:
        from IPython.display import display

        self.what, self.total, self.done = what, total, 0
        self.started_at = self.drawn_at = time.monotonic()
        show: Any = display
        self.handle = show(self._bundle(""), raw=True, display_id=True)

    def advance(self, count: int = 1, doing: str = "") -> None:
        self.done += count
        if time.monotonic() - self.drawn_at > DRAW_EVERY_S:
            self.drawn_at = time.monotonic()
            self.handle.update(self._bundle(doing), raw=True)

    def close(self) -> None:
        self.handle.update({}, raw=True)

    def _bundle(self, doing: str) -> dict[str, str]:
        from tqdm import tqdm

        meter: Any = tqdm.format_meter  # its total may be None
        text: str = meter(
            self.done,
            self.total,
            time.monotonic() - self.started_at,
            prefix=self.what,
            postfix=doing,
            bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
            if self.total is not None
            else "{desc}: {n_fmt} [{elapsed}{postfix}]",
        )
        share = "" if self.total is None else f' value="{self.done}" max="{max(self.total, 1)}"'
        return {
            "text/plain": text,
            "text/html": f"<progress{share}></progress> <small>{html.escape(text)}</small>",
        }


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Progress]:
    """Show how far `what` is, as a bar, lines or nothing; `total` is None where unknown."""
    style = _style()
    if style != "bar":
        yield _Silent() if style == "none" else _Lines(what, total)
        return
    if _is_in_kernel():
        cell_bar = _CellBar(what, total)
        try:
            yield cell_bar
        finally:
            cell_bar.close()
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, leave=False) as bar:
        yield _Bar(bar)
        # work that stops at its time limit is complete; tqdm would leave its unfilled bar, in red
        bar.total = bar.n


def is_static() -> bool:
    """Whether to leave out widgets, for papermill and nbconvert."""
    return os.environ.get("PAIFUSER_STATIC", "") not in ("", "0")


def _is_in_kernel() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def _style() -> str:
    style = os.environ.get("PAIFUSER_PROGRESS", "auto")
    if style != "auto":
        return style
    if _is_in_kernel():
        return "lines" if is_static() else "bar"
    return "bar" if sys.stderr.isatty() else "lines"
