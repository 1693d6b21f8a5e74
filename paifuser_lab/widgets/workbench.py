"""The whole bench in one widget: see, choose, watch the measured effect, undo, save the recipe."""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import traitlets

from ..errors import PaifuserError, WorkloadError, first_line
from ..progress import is_static
from ..recipe import Recipe
from ..records import (
    Allocation,
    AttentionCost,
    Comparison,
    Coupling,
    CutCost,
    FusionMap,
    Importance,
    Profile,
    Sensitivity,
)
from ..session import Session
from ..session.state import State
from ..variant import Variant
from ..workload import Workload, workload_of
from .allocating import limits_of, point_at, with_point
from .attending import checked_kind, with_attention
from .choices import with_precision, with_pruning, without
from .fusing import fused_by_recipe, fused_now, with_all, with_place
from .lifetime import held, hold, let_go, weakly
from .panel import Panel
from .shown import Shown
from .wire import packed, packed_profile

logger = logging.getLogger(__name__)


class Workbench(Panel):
    """`lab.Workbench(work)`: click, or set `bench.recipe`, and read `bench.variant`,
    `bench.comparison`, `bench.profile`.

    `bench.selected` is the chosen layer. `bench.wait()` waits until what was chosen is measured.
    The worker profiles and measures in the background; the model that you gave is never changed.

    A workbench lives as long as something refers to it: a variable, or in a notebook the output
    that shows it. One that is shown by no name is closed when the next one of the same model is
    made, as by running its cell again. What a closed one had kept is free.
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

    def __init__(self, work: Workload, *, rounds: int = 30, seconds: float = 10.0) -> None:
        work = workload_of(work)
        _replace_earlier(work)
        self._drawn: Profile | None = None
        self._viewed: tuple[Any, ...] = ()
        self.session = Session(work, rounds=rounds, seconds=seconds)
        weakref.finalize(self, self.session.close)
        self.shown = Shown(work)
        super().__init__(
            "workbench", workload=work.name, state=self.shown.state(self.session.state)
        )
        self._stop_listening = self.session.observe(weakly(self._on_state))
        self._on_state(self.session.state)

    @property
    def recipe(self) -> Recipe:
        """What is chosen; set it to choose a whole recipe."""
        return self.session.recipe

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None:
        self.session.set_recipe(recipe)

    @property
    def variant(self) -> Variant | None:
        """The model with the recipe applied, as soon as it is."""
        return self.session.state.variant

    @property
    def comparison(self) -> Comparison | None:
        """The measured effect, as far as it is known."""
        return self.session.state.comparison

    @property
    def profile(self) -> Profile | None:
        """The layers of what runs now, as far as they are known."""
        return self.session.state.profile

    @property
    def sensitivity(self) -> Sensitivity | None:
        """How much each layer matters, where that was looked at; set it to show one that you
        have.
        """
        return self.session.state.sensitivity

    @sensitivity.setter
    def sensitivity(self, found: Sensitivity | None) -> None:
        if found is not None:
            check_layers(found, self.session.work)
        self.session.show("sensitivity", found)

    @property
    def importance(self) -> Importance | None:
        """How much each channel matters, where that was looked at; set it to show one that you
        have.
        """
        return self.session.state.importance

    @importance.setter
    def importance(self, found: Importance | None) -> None:
        if found is not None:
            check_layers(found, self.session.work)
        self.session.show("importance", found)
        if found is not None:
            self.session.look_at("coupling")

    @property
    def coupling(self) -> Coupling | None:
        """Which channels go together, as soon as somebody has looked at how much they matter."""
        return self.session.state.coupling

    @property
    def cut_cost(self) -> CutCost | None:
        """What the model as it is would cost with fewer channels, known together with
        `coupling`.
        """
        return self.session.state.cut_cost

    @property
    def allocation(self) -> Allocation | None:
        """A number format for each layer and the frontier of others, where that was planned; set it
        to show one that you have.
        """
        return self.session.state.allocation

    @allocation.setter
    def allocation(self, found: Allocation | None) -> None:
        if found is not None:
            check_known("allocation", found.workload, found.formats, self.session.work)
        self.session.show("allocation", found)

    @property
    def fusions(self) -> FusionMap | None:
        """Where layers of the model as it is can run as one, where that was looked at; set it to
        show one that you have.
        """
        return self.session.state.fusions

    @fusions.setter
    def fusions(self, found: FusionMap | None) -> None:
        if found is not None:
            check_known(
                "fusion map",
                found.workload,
                [layer for one in found.fusions for layer in one.layers],
                self.session.work,
            )
        self.session.show("fusions", found)

    @property
    def attention_cost(self) -> AttentionCost | None:
        """What attention to a part of the keys costs, where that was looked at; set it to show one
        that you have.
        """
        return self.session.state.attention_cost

    @attention_cost.setter
    def attention_cost(self, found: AttentionCost | None) -> None:
        if found is not None:
            check_known(
                "attention cost",
                found.workload,
                [row.layer for row in found.layers],
                self.session.work,
            )
        self.session.show("attention_cost", found)

    def open(self) -> None:
        """Open the way to the page; ipywidgets would refer to the workbench from here on, shown or
        not.
        """
        super().open()
        let_go(self)

    def wait(self, timeout: float | None = None) -> State:
        """Wait until nothing is left to apply or to measure."""
        return self.session.wait(timeout)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Where no widget can live, what it would have come to: the layers and the measured
        effect.
        """
        if not is_static():
            hold(self)
            return super()._repr_mimebundle_(**kwargs)
        self.wait()
        measured = self.comparison._repr_html_() if self.comparison is not None else ""
        shown: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return shown | {"text/html": measured + shown["text/html"]}

    def close(self, *, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """End the worker and the widget; when Python itself ends, the globals that this needs are
        gone, and nobody is told.
        """
        if is_ending():
            return
        if hasattr(self, "_stop_listening"):  # else it was never whole
            self._stop_listening()
            self.session.close()
        super().close()

    def _on_state(self, state: State) -> None:
        """Send what changed, and only that; large things only when they are others."""
        profile = state.profile or state.baseline
        if profile is not None and profile is not self._drawn:
            self._drawn = self.record = profile
            self.data = packed_profile(profile)
            self._on_selected()
        views = self._views_of(state)
        if views is not None:
            self.views = views
        self.state = self.shown.state(state) | {
            key: self.state[key] for key in ("code", "saved") if key in self.state
        }

    def _views_of(self, state: State) -> dict[str, Any] | None:
        """The tabs beside the layers; None while they are what they were."""
        before = self._viewed[1] if self._viewed else None
        compared = (
            before if state.is_busy else state.comparison
        )  # a tab does not go while somebody reads it
        looked = (
            state.sensitivity,
            state.importance,
            state.coupling,
            state.cut_cost,
            state.allocation,
        )
        viewed = (
            self._drawn,
            compared,
            *looked,
            state.fusions,
            fused_by_recipe(state),
            state.attention_cost,
        )
        if self.views and all(
            one is other for one, other in zip(self._viewed, viewed, strict=True)
        ):
            return None
        self._viewed = viewed
        views: dict[str, Any] = {}
        if self._drawn is not None:
            views["roofline"] = packed(self._drawn.roofline)
        if compared is not None:
            views["comparison"] = packed(compared)
        if state.sensitivity is not None:
            views["sensitivity"] = self.shown.packed("sensitivity", state.sensitivity)
        if state.importance is not None:
            views["importance"] = self.shown.packed("importance", state.importance)
        if state.coupling is not None:
            views["coupling"] = self.shown.coupling(state.coupling, state.cut_cost)
        if state.allocation is not None:
            views["allocation"] = self.shown.packed("allocation", state.allocation)
        if (fusions := self.shown.fusions(state)) is not None:
            views["fusion"] = self.shown.packed("fusion", fusions)
        if state.attention_cost is not None:
            views["attention"] = self.shown.packed("attention", state.attention_cost)
        return views | {"hardware": self.shown.hardware}

    @traitlets.observe("selected")
    def _on_selected(self, change: Any = None) -> None:
        state = self.session.state
        profile = state.profile or state.baseline
        self.detail = (
            self.shown.detail(profile, self.selected, state.baseline) if profile is not None else {}
        )

    @traitlets.observe("requests")
    def _on_requests(self, change: Any) -> None:
        """Serve what the page asked for, in order, each once; what goes wrong is told in place, and
        the widget lives on.

        An answer and that it was served go out as one message: between two, the page would show
        what it foresaw beside what came.
        """
        for request in sorted(change["new"], key=lambda one: one["id"]):
            if request["id"] <= self.served:
                continue
            with self.session.paused(), self.hold_sync():
                try:
                    self._serve(request)
                except Exception as error:
                    told = (
                        str(error)
                        if isinstance(error, PaifuserError)
                        else f"{type(error).__name__}: {first_line(error)}"
                    )
                    if not isinstance(error, PaifuserError):
                        logger.exception("request %s failed", request.get("do"))
                    self.session.tell(told)
                self.served = request["id"]

    def _serve(self, request: dict[str, Any]) -> None:
        answers: dict[str, Callable[[], Any]] = {
            "choose": lambda: self.session.choose(request["step"]),
            "precision": lambda: self.session.set_recipe(
                with_precision(self.recipe, request["layer"], request["name"])
            ),
            "prune": lambda: self.session.set_recipe(self._pruned(request)),
            "drop": lambda: self.session.set_recipe(
                without(self.recipe, int(request["index"]), str(request.get("label", "")))
            ),
            "undo": self.session.undo,
            "redo": self.session.redo,
            "stop": self.session.stop,
            "measure": self.session.measure_again,
            "sensitivity": lambda: self.session.look_at("sensitivity"),
            "importance": lambda: self.session.look_at("importance"),
            "allocation": lambda: self.session.look_at(
                "allocation", **limits_of(request, self.session.state)
            ),
            "allocate": lambda: self._allocate(request["point"]),
            "fusion": lambda: self.session.look_at("fusion"),
            "fuse": lambda: self._fuse(request["place"], is_on=bool(request["is_on"])),
            "fuse_all": lambda: self.session.set_recipe(
                with_all(self.recipe, is_on=bool(request["is_on"]))
            ),
            "attention_cost": lambda: self.session.look_at(
                "attention", kind=checked_kind(request["kind"])
            ),
            "attention": lambda: self.session.set_recipe(
                with_attention(self.recipe, self.attention_cost, request)
            ),
            "dismiss": lambda: self.session.tell(None),
            "save": self._save,
            "code": lambda: self._note(code=self.recipe.as_code()),
        }
        if request["do"] not in answers:
            raise PaifuserError(
                f"The workbench does not know '{request['do']}'; it knows {', '.join(answers)}."
            )
        answers[request["do"]]()

    def _allocate(self, place: Any) -> None:
        """Choose a point of the plan, and have it held against what was predicted."""
        self.session.set_recipe(with_point(self.recipe, point_at(self.allocation, place)))
        self.session.look_at("achieved", place=place)

    def _fuse(self, place: str, *, is_on: bool) -> None:
        """Have one place run as one, or no longer."""
        state = self.session.state
        found = self.shown.fusions(state)
        if found is None:
            raise PaifuserError(
                "Nobody has looked yet at what can run as one; find what can be fused first."
            )
        self.session.set_recipe(
            with_place(state.recipe, found, fused_now(state)["on"], place, is_on=is_on)
        )

    def _pruned(self, request: dict[str, Any]) -> Recipe:
        """The recipe with what a threshold removes, judged as the person saw it."""
        return with_pruning(
            self.recipe, self._ratios(request), self.importance.method if self.importance else ""
        )

    def _ratios(self, request: dict[str, Any]) -> dict[str, float]:
        """What to remove of each layer: of one, or of all by one threshold."""
        if request["layer"]:
            return {request["layer"]: float(request["ratio"])}
        if self.importance is None:
            raise PaifuserError(
                "Nobody has looked yet at how much each channel matters; find the importance first."
            )
        kept = self.importance.kept(threshold=request["threshold"])
        return dict.fromkeys(kept, 0.0) | self.importance.ratios(kept)

    def _save(self) -> None:
        path = self.recipe.save(Path("recipe.yaml"))
        self._note(saved=path.name)

    def _note(self, **told: str) -> None:
        self.state = self.state | told

    def __repr__(self) -> str:
        return f"Workbench({self.session.work.name}: {self.recipe.label})"


def _replace_earlier(work: Workload) -> None:
    """Let go of the workbenches of this model that only their outputs refer to: a cell that is run
    again makes a new one.
    """
    for one in held():
        if (
            isinstance(one, Workbench)
            and one.session.work.name == work.name
            and str(one.session.work.model) == str(work.model)
        ):
            let_go(one)


def check_layers(found: Sensitivity | Importance, work: Workload) -> None:
    """Refuse what was found of another model."""
    check_known(
        type(found).__name__.lower(), found.workload, [row.layer for row in found.rows], work
    )


def check_known(what: str, of: str, layers: Iterable[str], work: Workload) -> None:
    """Refuse what has layers that a workload's model has not."""
    known = {name for name, _ in work.model.named_modules()}
    if strangers := [layer for layer in layers if layer not in known]:
        raise WorkloadError(
            f"The {what} of {of} has a layer '{strangers[0]}' that {work.name} has not; give one "
            "of the same model."
        )
