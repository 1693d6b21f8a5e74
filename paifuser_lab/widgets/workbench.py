"""The workbench widget: see the layers, choose steps, watch the measured effect, undo, save.

It lives as long as it is referenced, or shown and not replaced: ipywidgets references every widget
until it is closed, so that an abandoned one would keep its model in memory.
"""

from __future__ import annotations

import logging
import re
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

import ipywidgets
import traitlets
from ipywidgets.widgets import widget as registry

from .._files import write_text
from ..errors import MeasureError, PaifuserError, WorkloadError, message_of
from ..machine.openmp import notebook_shell, release_after_cells
from ..planner import SearchResult
from ..profiler import side_by_side
from ..progress import is_static
from ..records import (
    Allocation,
    AttentionCost,
    Comparison,
    Coupling,
    CutCost,
    FusionMap,
    Importance,
    Profile,
    Record,
    Results,
    SearchGoal,
    Sensitivity,
)
from ..session import Session
from ..session.state import State
from ..variant import Variant
from ..variant.recipe import Recipe
from ..views.report import report_page
from ..workload import Workload, workload_of
from .panel import Panel
from .presenter import Presenter
from .recipe_edits import saved_as_new, without
from .section import Section, sections
from .tabs.faster import search

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)
Value = TypeVar("Value")


class SectionRecord(Generic[R]):
    """An attribute of the workbench: the record of a section, or None; set it to show one."""

    def __init__(self, section: str) -> None:
        self.name = section

    @overload
    def __get__(self, bench: None, owner: type) -> Self: ...
    @overload
    def __get__(self, bench: Workbench, owner: type) -> R | None: ...
    def __get__(self, bench: Workbench | None, owner: type) -> Self | R | None:
        if bench is None:
            return self
        record: R | None = bench.session.state.record(self._key)
        return record

    def __set__(self, bench: Workbench, record: R | None) -> None:
        if record is not None:
            check_layers(record, self._section, bench.session.work)
        bench.session.show(self._key, record)
        if record is not None and self._section.follow_up:
            bench.session.query(self._section.follow_up)

    @property
    def _section(self) -> Section:
        return next(section for section in sections() if section.name == self.name)

    @property
    def _key(self) -> str:
        return self._section.record_name or self.name


class Workbench(Panel):
    """`lab.Workbench(work)`: click, or set `bench.recipe`, and read `bench.variant`,
    `bench.comparison`, `bench.profile`.

    `bench.selected` is the selected layer. `bench.wait()` waits until the recipe is measured. The
    worker profiles and measures in the background; your model is never changed.

    A workbench lives as long as it is referenced: by a variable, or in a notebook by the output
    that shows it. If only an output references it, it is closed when the next one of the same
    model is made, as by running its cell again. Closing it frees what it cached.
    """

    state = traitlets.Dict(help="header, recipe, what the worker does, and the error there is").tag(
        sync=True
    )
    detail = traitlets.Dict(help="facts and reasons of the selected layer").tag(sync=True)
    views = traitlets.Dict(help="what the other tabs show, by view").tag(sync=True)
    live = traitlets.Dict(
        help=(
            "while a threshold of channels is dragged: its layer ('' for all), threshold, kept; "
            "else {}"
        )
    ).tag(sync=True)
    cut = traitlets.Dict(help="which channels are kept, and what that saves, also meanwhile").tag(
        sync=True
    )

    sensitivity = SectionRecord[Sensitivity]("sensitivity")
    importance = SectionRecord[Importance]("importance")
    allocation = SectionRecord[Allocation]("allocation")
    fusions = SectionRecord[FusionMap]("fusion")
    attention_cost = SectionRecord[AttentionCost]("attention")
    candidates = SectionRecord[SearchResult]("faster")

    def __init__(self, work: Workload, *, rounds: int = 30, seconds: float = 10.0) -> None:
        work = workload_of(work)
        _replace_earlier(work)
        self._shown_profiles: tuple[Profile | None, Profile | None] = None, None
        self._noted_of: Recipe | None = None  # the recipe that `code` and `saved` are of
        release_after_cells()
        self.presenter = Presenter(work)
        self.presenter.state(State(Recipe(workload=work.name)))  # reads weights: before it is timed
        self.session = Session(work, rounds=rounds, seconds=seconds)
        weakref.finalize(self, self.session.close)
        super().__init__(
            "workbench", workload=work.name, state=self.presenter.state(self.session.state)
        )
        self._stop_listening = self.session.observe(weak_call(self._on_state))
        self._on_state(self.session.state)

    @property
    def recipe(self) -> Recipe:
        """The chosen recipe; set it to choose another one."""
        return self.session.recipe

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None:
        self.session.set_recipe(recipe)

    @property
    def variant(self) -> Variant | None:
        """The model with the recipe applied; None until it is."""
        return self.session.state.variant

    @property
    def comparison(self) -> Comparison | None:
        """The measured effect, as far as it is measured."""
        return self.session.state.comparison

    @property
    def profile(self) -> Profile | None:
        """The profile of the current variant, or None."""
        return self.session.state.profile

    @property
    def results(self) -> Results | None:
        """Everything tried so far; None before the first measurement."""
        return self.session.state.results

    @property
    def coupling(self) -> Coupling | None:
        """Which channels are removed together; known once their importance was requested."""
        return self.session.state.coupling

    @property
    def cut_cost(self) -> CutCost | None:
        """What the original model would cost with fewer channels; known along with `coupling`."""
        return self.session.state.cut_cost

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the chosen recipe's measured effect as one page that works offline; its path."""
        state, work = self.session.state, self.session.work
        if state.variant is None or state.comparison is None:
            raise MeasureError("The recipe is not measured yet; call wait() before report().")
        sides = None
        if state.baseline is not None and state.profile is not None:
            sides = side_by_side(state.baseline, state.profile)
        code = work.loading_code
        page = report_page(state.comparison, state.recipe, work.graph(), sides, load=code)
        return write_text(path, page)

    def open(self) -> None:
        """Open the comm, and undo the reference that ipywidgets adds to what may not be shown."""
        super().open()
        release(self)

    def wait(self, timeout: float | None = None) -> State:
        """Wait until nothing is left to apply or measure."""
        return self.session.wait(timeout)

    def faster(
        self,
        goal: SearchGoal = "latency",
        metric_drop: float = 0.01,
        may_train: bool = False,
        seconds: float = 60.0,
    ) -> None:
        """Search in the background for what makes the model faster or smaller; the ranking so far
        is `bench.candidates`, and `bench.wait()` waits for its end.

        `goal` is latency, throughput, size or memory; `metric_drop` the loss of the metric that is
        allowed, without labelled data the relative error of the output.
        """
        search(self, goal, metric_drop, may_train, seconds)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget; elsewhere static HTML of the layers and the effect, once it is measured."""
        if not is_static():
            hold(self)
            return super()._repr_mimebundle_(**kwargs)
        self.wait()
        measured = self.comparison._repr_html_() if self.comparison is not None else ""
        shown: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return shown | {"text/html": measured + shown["text/html"]}

    def close(self, *, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """End the worker and the widget; nothing at interpreter exit, when globals are gone."""
        if is_ending():
            return
        if hasattr(self, "_stop_listening"):  # else `__init__` failed
            self._stop_listening()
            self.session.close()
        super().close()

    def _on_state(self, state: State) -> None:
        """Send what changed; large values only when they are other objects."""
        profile = state.profile or state.baseline
        if profile is not None and not self._is_shown(profile, state.baseline):
            self._shown_profiles, self.record = (profile, state.baseline), profile
            self.data = self.presenter.profile(profile, state.baseline)
            self._on_selected()
        views = self.presenter.views(state)
        if views is not None:
            self.views = views
            self._on_selected()  # a search replaces what was expected
        notes = ("code", "saved") if state.recipe == self._noted_of else ()
        kept = {key: self.state[key] for key in notes if key in self.state}
        self.state = self.presenter.state(state) | kept
        self._tell_cut()

    def _is_shown(self, *profiles: Profile | None) -> bool:
        """Whether the page has these very profiles, which its times before and reasons are of."""
        return all(a is b for a, b in zip(profiles, self._shown_profiles, strict=True))

    @traitlets.observe("selected")
    def _on_selected(self, change: Any = None) -> None:
        self.detail = self.presenter.detail(self.session.state, self.selected)

    @traitlets.observe("live")
    def _tell_cut(self, change: Any = None) -> None:
        self.cut = self.presenter.cut(self.session.state, self.live)

    @traitlets.observe("requests")
    def _on_requests(self, change: Any) -> None:
        """Handle the page's requests in order, each once; an error is shown in the page.

        The result and `served` are sent as one message: between two messages, the page would
        show its own expectation beside the result.
        """
        for request in sorted(change["new"], key=lambda request: request["id"]):
            if request["id"] <= self.served:
                continue
            with self.session.paused(), self.hold_sync():
                try:
                    self._serve(request)
                except Exception as error:
                    if not isinstance(error, PaifuserError):
                        logger.exception("request %s failed", request.get("do"))
                    self.session.set_error(message_of(error))
                self.served = request["id"]

    def _serve(self, request: dict[str, Any]) -> None:
        handlers = self._handlers()
        if request["do"] not in handlers:
            raise PaifuserError(
                f"The workbench does not know '{request['do']}'; it knows {', '.join(handlers)}."
            )
        handlers[request["do"]](request)

    def _handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Handlers of the page's requests: the workbench's own, and those of the sections."""
        session = self.session
        handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "choose": lambda request: session.choose(request["step"]),
            "drop": lambda request: session.set_recipe(
                without(self.recipe, int(request["index"]), str(request.get("label", "")))
            ),
            "undo": lambda request: session.undo(),
            "redo": lambda request: session.redo(),
            "stop": lambda request: session.stop(request.get("query")),
            "measure": lambda request: session.measure_again(),
            "wait_for_quiet": lambda request: session.measure_again(when_quiet=True),
            "dismiss": lambda request: session.set_error(None),
            "save": lambda request: self._save(),
            "code": lambda request: self._add_to_state(
                code=self.recipe.as_code(session.work.loading_code)
            ),
        }
        for section in sections():
            handlers |= {name: partial(handler, self) for name, handler in section.requests.items()}
        return handlers

    def _save(self) -> None:
        """Save the recipe; if that fails, the page is not told of an earlier file."""
        self.state = {key: value for key, value in self.state.items() if key != "saved"}
        self._add_to_state(saved=saved_as_new(self.recipe))

    def _add_to_state(self, **notes: str) -> None:
        self._noted_of = self.recipe
        self.state = self.state | notes

    def __repr__(self) -> str:
        return f"Workbench({self.session.work.name}: {self.recipe.label})"


def _replace_earlier(work: Workload) -> None:
    """Release workbenches of this model that only an output refers to: its cell runs again."""
    for widget in held():
        if (
            isinstance(widget, Workbench)
            and widget.session.work.name == work.name
            and str(widget.session.work.model) == str(work.model)
        ):
            release(widget)
            _forget(widget)


def _forget(widget: ipywidgets.Widget) -> None:
    """Drop a widget from the outputs that IPython keeps: `Out[n]`, `_n`, `_`, `__` and `___`."""
    shell = notebook_shell()
    if shell is None:
        return
    names = shell.user_ns
    for kept in (names.get("_oh", {}), names, shell.user_ns_hidden, vars(shell.displayhook)):
        for name, shown in list(kept.items()):
            if shown is widget and re.fullmatch(r"_{1,3}|_?\d+", str(name)):
                kept[name] = ""


def check_layers(record: Any, section: Section, work: Workload) -> None:
    """Raise if the record is of another model."""
    known = {name for name, _ in work.model.named_modules()}
    if unknown := [layer for layer in section.layers(record) if layer not in known]:
        record_type = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(record).__name__).lower()
        raise WorkloadError(
            f"The {record_type} of {record.workload} has a layer '{unknown[0]}' that {work.name} "
            "does not have; give a record of the same model."
        )


def release(widget: ipywidgets.Widget) -> None:
    """Reference a widget weakly: it is collected with its views when nothing else refers to it.

    It stays listed, so that a page that is loaded again finds it; closing, also as it is collected,
    takes it off the list.
    """
    _instances()[widget.model_id] = weakref.proxy(widget)
    widget.comm.on_msg(weak_call(widget._handle_msg))


def hold(widget: ipywidgets.Widget) -> None:
    """Reference a widget until it is closed, as any other: it is shown, perhaps without a name."""
    _instances()[widget.model_id] = widget


def held() -> list[ipywidgets.Widget]:
    """The widgets that ipywidgets references, and not weakly."""
    listed = list(_instances().values())
    return [widget for widget in listed if not isinstance(widget, weakref.ProxyType)]


def weak_call(method: Callable[[Value], None]) -> Callable[[Value], None]:
    """A call of a method that references its object weakly; does nothing once it is collected."""
    reference = weakref.WeakMethod(method)

    def call(value: Value) -> None:
        if (bound := reference()) is not None:
            bound(value)

    return call


def _instances() -> dict[str, Any]:
    instances: dict[str, Any] = registry._instances
    return instances
