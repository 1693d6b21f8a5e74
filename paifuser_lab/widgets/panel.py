"""A panel: one widget that shows one view, with a picture of the same record for places that cannot
run widgets; a panel that answers its page, and one that follows what runs. Built on anywidget.
"""

from __future__ import annotations

import html
from typing import Any
from weakref import WeakSet

import anywidget
import traitlets

from ..progress import is_static
from ..records import Record
from ..records.record import workload_key
from ..views import DRAWERS, Drawing, figure
from ..views.style import image
from .linker import front_end, style_name
from .section import packed

MAX_TABLE_LENGTH = 40_000  # characters of HTML


class Panel(anywidget.AnyWidget):  # type: ignore[misc]
    """A view of a record. `panel.selected` is the selected layer: set it, or `panel.observe(...,
    "selected")`.

    Panels of the same workload share the selection: a click in one selects in the others.
    """

    view = traitlets.Unicode(help="which view is drawn").tag(sync=True)
    data = traitlets.Dict(help="what the view shows").tag(sync=True)
    selected = traitlets.Unicode("", help="the chosen layer's dotted path; '' is none").tag(
        sync=True
    )
    requests: traitlets.List[Any] = traitlets.List(help="what the page asked for").tag(sync=True)
    served = traitlets.Int(0, help="the id of the last request that was served").tag(sync=True)

    def __init__(
        self, view: str, record: Record | None = None, *, workload: str = "", **traits: Any
    ) -> None:
        self.record = record
        self._esm, self._css = front_end(view)
        data = packed(record) if record is not None else {}
        # anywidget replaces an older style sheet with the same id
        super().__init__(view=view, data=data, _anywidget_id=style_name(), **traits)
        key = workload_key(workload or getattr(record, "workload", ""))
        self._companions: WeakSet[Panel] = PANELS.setdefault(key, WeakSet()) if key else WeakSet()
        self._companions.add(self)

    @traitlets.observe("selected")
    def _select_in_companions(self, change: Any) -> None:
        for panel in tuple(getattr(self, "_companions", ())):
            if panel.selected != change["new"]:
                panel.selected = change["new"]

    def figure(self, *, dark: bool = False) -> Drawing:
        """The same record as a matplotlib figure."""
        if self.record is None or type(self.record).__name__ not in DRAWERS:
            raise TypeError(f"{self!r} has no matplotlib figure.")
        return figure(self.record, dark=dark)

    def twin(self) -> str:
        """Static HTML for places without widgets: the record's figure and its table."""
        return self._picture() + self._table()

    def brief_twin(self) -> str:
        """The static HTML that the live widget, which waits for it, replaces."""
        brief = getattr(self.record, "brief_html", None)
        if brief is not None:
            return str(brief())
        table = self._table()
        if len(table) > MAX_TABLE_LENGTH:
            table = f"<pre>{html.escape(repr(self))}; its table is its frame</pre>"
        return self._picture() + table

    def _picture(self) -> str:
        if type(self.record).__name__ not in DRAWERS:
            return ""
        drawing = self.figure()
        return image(drawing.png(), "plain", str(drawing.get_label()))

    def _table(self) -> str:
        table = getattr(self.record, "_repr_html_", None)
        return str(table()) if table is not None else f"<pre>{html.escape(repr(self))}</pre>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        if is_static():
            # a figure beside the HTML would not be seen: Jupyter and nbconvert prefer HTML
            return {"text/html": self.twin(), "text/plain": repr(self)}
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "text/plain": repr(self), "text/html": self.brief_twin()}, metadata

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.record!r})"


class AskedPanel(Panel):
    """A panel that answers its page by itself, without a workbench."""

    @traitlets.observe("requests")
    def _on_requests(self, change: Any) -> None:
        """Serve the page's requests in order, each once."""
        for request in sorted(change["new"], key=lambda request: request["id"]):
            if request["id"] > self.served:
                with self.hold_sync():  # one message: "served" alone would redraw the old choice
                    self.served = request["id"]
                    self.serve(request)

    def serve(self, request: dict[str, Any]) -> None:
        """Do what the page asks for."""
        raise NotImplementedError


class Monitor(Panel):
    """A live view of what still runs; without widgets, the record's figure and table stand in."""

    before = ""  # a sentence that stands in its place until there is a record

    def __call__(self, record: Any, /) -> None:
        """Show the record so far."""
        self.record = record
        if not is_static():
            self.data = packed(record)

    def twin(self) -> str:
        return super().twin() if self.record is not None else f"<p>{self.before}</p>"

    def brief_twin(self) -> str:
        return super().brief_twin() if self.record is not None else self.twin()


PANELS: dict[str, WeakSet[Panel]] = {}  # by the key of their workload
