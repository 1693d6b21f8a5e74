"""A section of the workbench: a view, its record, requests and queries, declared in `tabs/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..jobs import QUERIES, Query
from ..model.layers import channel_of
from ..records import Record
from ..session import Session
from ..session.state import State
from ..variant.recipe import Recipe
from ..views import picture_of
from ..views.picture import Picture
from ..workload import Workload
from .wire import dumped, pictured

Data = dict[str, Any]
Request = dict[str, Any]
NONE = "none in this model"


class Bench(Protocol):
    """The part of the workbench that a request handler may use."""

    session: Session

    @property
    def recipe(self) -> Recipe:
        """The chosen recipe; set it to choose another one."""

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None: ...


class Context(Protocol):
    """What `Section.state` may use beside the session's state."""

    work: Workload

    def once(self, name: str, make: Callable[[], Any], *sources: Any) -> Any:
        """The result of `make`, computed again only when one of its sources is another object."""


@dataclass(frozen=True)
class Question:
    """What the page asks before an answer is known, and the query and request that answer it."""

    query: str
    request: str
    question: str
    use: str
    verb: str = "Measure"
    field: str = ""  # a text that may be typed for the request, and what stands in it until then
    hint: str = ""


@dataclass(frozen=True)
class Chart:
    """A view that is a picture: its name for screen readers, and the question before it."""

    label: str
    question: Question | None = None
    before: str = ""  # a sentence that stands in its place until there is a record


@dataclass(frozen=True, eq=False)
class Section:
    """A view and all that belongs to it; `register` adds it to the workbench."""

    name: str
    """The view's name, for the page and as the folder of its ES modules."""
    record: type[Record] | None = None
    """The record type that it shows; `lab.show` selects the view by it."""
    pack: Callable[..., Data | None] = dumped
    """Encodes the record for the page; its arguments are the result of `sources`."""
    panel: Callable[[Any], Any] | None = None
    """The widget of a record alone, if something can be chosen in it."""
    title: str = ""
    """Its heading in the workbench; '' if the workbench does not show it."""
    hint: str = ""
    """The exact term for what it is about, as a tooltip."""
    tab: str = ""
    """The tab that contains it: layers, options, results or machine; '' for a tab of its own."""
    place: str = ""
    """Where it stands in its tab: '' below the others, "segment" in place of the others, "beside"
    on the right, the name of a segment below that one; "sheet" is over the body of the workbench
    instead of in a tab.
    """
    absent: Callable[[State, Context], str] = lambda state, context: ""
    """Why it does not apply to this model, as in "none in this model"; '' if it does."""
    is_by_layer: bool = False
    """Whether the details of the selected layer stand beside it."""
    is_always_shown: bool = False
    """Whether it is shown before its record is known, since it has the button that requests it."""
    record_name: str = ""
    """The name of its record in the state; '' if that is the section's name."""
    sources: Callable[[State], tuple[Any, ...]] | None = None
    """The arguments of `pack` in the workbench, if not its record alone."""
    state: Callable[[State, Context], Data] = lambda state, context: {}
    """What it adds to the state that the page is sent."""
    requests: Mapping[str, Callable[[Bench, Request], None]] = field(default_factory=dict)
    """Handlers of the page's requests: a click edits the recipe or starts a query."""
    queries: tuple[Query, ...] = ()
    """The session's queries that compute its record."""
    follow_up: str = ""
    """The query to run after its record is set from outside."""
    layers: Callable[[Any], Iterable[str]] = lambda record: ()
    """The layers that a record names; the workbench's model must have them."""
    chart: Chart | None = None
    """Set if the view is a picture, which has no ES modules of its own."""

    def sources_in(self, state: State) -> tuple[Any, ...]:
        """The arguments of `pack`; the section is not shown if all are None."""
        if self.sources is not None:
            return self.sources(state)
        return (state.record(self.record_name or self.name),)


def chart_section(
    name: str,
    record: type[Record],
    label: str,
    question: Question | None = None,
    before: str = "",
    *,
    picture: Callable[..., Picture] = picture_of,
    **more: Any,
) -> Section:
    """A section whose view is a picture: that which `views` has of its record."""

    def pack(*sources: Any) -> Data:
        return pictured(picture(*sources))

    return Section(name, record=record, pack=pack, chart=Chart(label, question, before), **more)


_SECTIONS: dict[str, Section] = {}


def sections() -> tuple[Section, ...]:
    """All sections, in the order of the workbench's tabs."""
    return tuple(_SECTIONS.values())


def section_of(record: Record) -> Section | None:
    """The section that shows a record of this type."""
    return next((section for section in sections() if section.record is type(record)), None)


def packed(record: Record) -> Data:
    """The data of a record's view."""
    section = section_of(record)
    data = section.pack(record) if section is not None else dumped(record)
    return data or {}


def register(section: Section) -> None:
    """Add a section; its name, record type, requests and queries are its own."""
    QUERIES.update({query.name: query for query in section.queries})
    _SECTIONS[section.name] = section


def of_recipe(state: State, name: str) -> Any:
    """A record of the current recipe; None if it was not asked for."""
    return (state.record(name) or {}).get(state.recipe.digest)


def no_weights(state: State, context: Context) -> str:
    """Why no layer can have another format or fewer channels: none has a weight that can."""

    def reason() -> str:
        layers = context.work.model.modules()
        return "" if any(channel_of(layer) is not None for layer in layers) else NONE

    return str(context.once("weights absent", reason, context.work))


def no_attention(state: State, context: Context) -> str:
    """Why attention cannot be sparse: no class, no code and no operator that ran names it."""
    baseline = state.baseline
    if state.attention_cost is not None:
        return ""

    def reason() -> str:
        classes = {type(module) for module in context.work.model.modules()}
        names = {name for kind in classes for name in (kind.__name__, *_named_in(kind))}
        ran = {operator.name for row in baseline or () for operator in row.operators}
        return "" if any("attention" in name.lower() for name in names | ran) else NONE

    return str(context.once("attention absent", reason, context.work, baseline))


def _named_in(kind: type[Any]) -> tuple[str, ...]:
    """The names that a module's forward uses; () where it is not Python's."""
    code = getattr(kind.forward, "__code__", None)
    return code.co_names if code is not None else ()
