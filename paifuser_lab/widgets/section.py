"""What a section of the workbench is: one view, the record that it shows, and what it asks for. One
declaration each in `tabs/`, which the workbench, `lab.show` and the linker go by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..errors import PaifuserError
from ..recipe import Recipe
from ..records import Record
from ..session import Session
from ..session.queries import QUERIES, Query
from ..session.state import State
from ..workload import Workload
from .wire import dumped

Data = dict[str, Any]
Request = dict[str, Any]


class Bench(Protocol):
    """What a section's request may use of the workbench."""

    session: Session

    @property
    def recipe(self) -> Recipe:
        """What is chosen; set it to choose a whole recipe."""

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None: ...


class Context(Protocol):
    """What a section's part of the state may use beside the session's state."""

    work: Workload

    def once(self, name: str, make: Callable[[], Any], *sources: Any) -> Any:
        """What `make` returns, made anew only when one of its sources is another object."""


def _no_layers(record: Any) -> Iterable[str]:
    return ()


def _no_state(state: State, context: Context) -> Data:
    return {}


@dataclass(frozen=True, eq=False)
class Section:
    """A view and all that belongs to it; register it, and the workbench has it."""

    name: str
    """The view's name on the wire, and of its folder of ES modules."""
    record: type[Record] | None = None
    """Which record it shows; `lab.show` finds the view by it."""
    pack: Callable[..., Data | None] = dumped
    """A record as the page takes it; it is given what `sources` returns."""
    panel: Callable[[Any], Any] | None = None
    """The widget of a record alone, where something can be chosen in it."""
    title: str = ""
    """Its heading in the workbench; '' where the workbench does not have it."""
    tab: str = ""
    """The tab that holds it; '' for a tab of its own."""
    is_wide: bool = False
    """Whether it is not about one layer, and takes the place of the details."""
    is_always_shown: bool = False
    """Whether it is there before its record is: it is where that is asked for."""
    is_kept_while_busy: bool = False
    """Whether it stays as it is while the worker is busy."""
    record_name: str = ""
    """What the state calls its record; '' where that is the section's name."""
    sources: Callable[[State], tuple[Any, ...]] | None = None
    """What it is packed from in the workbench, where that is not its record alone."""
    state: Callable[[State, Context], Data] = _no_state
    """What it adds to the state on the wire."""
    requests: Mapping[str, Callable[[Bench, Request], None]] = field(default_factory=dict)
    """What the page may ask for: how a click edits the recipe, or what is to be found."""
    queries: tuple[Query, ...] = ()
    """How its record is found by the session's worker."""
    follow_up: str = ""
    """The query that comes next where somebody sets its record."""
    layers: Callable[[Any], Iterable[str]] = _no_layers
    """The layers that a record names, which the model of a workbench must have."""
    folder: Path | None = None
    """Its ES modules, where they are not in `widgets/`."""

    def sources_in(self, state: State) -> tuple[Any, ...]:
        """What it is packed from; it is not shown where all of that is None."""
        if self.sources is not None:
            return self.sources(state)
        return (state.record(self.record_name or self.name),)


_SECTIONS: dict[str, Section] = {}


def sections() -> tuple[Section, ...]:
    """All sections, in the order of the workbench's tabs."""
    return tuple(_SECTIONS.values())


def section_of(record: Record) -> Section | None:
    """The section that shows a record of this type."""
    return next((one for one in sections() if one.record is type(record)), None)


def packed(record: Record) -> Data:
    """What the view of a record is sent."""
    section = section_of(record)
    data = section.pack(record) if section is not None else dumped(record)
    return data or {}


def register(section: Section) -> None:
    """Add a section; its name, its record and its requests must be its own."""
    for other in sections():
        if other.name == section.name or (section.record and other.record is section.record):
            raise PaifuserError(
                f"There is a section '{other.name}' already that shows {other.record}; give "
                f"'{section.name}' another name and another record."
            )
        if both := sorted(section.requests.keys() & other.requests.keys()):
            raise PaifuserError(
                f"'{section.name}' and '{other.name}' both answer '{both[0]}'; rename one of them."
            )
    for query in section.queries:
        if QUERIES.setdefault(query.name, query) is not query:
            raise PaifuserError(f"There is a query '{query.name}' already; give it another name.")
    _SECTIONS[section.name] = section


def unregister(name: str) -> None:
    """Take a section and its own queries away again."""
    for query in _SECTIONS.pop(name).queries:
        QUERIES.pop(query.name, None)
