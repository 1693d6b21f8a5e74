"""The section of fusion: the sites that can run as one operator, and recipe edits that switch a
site on or off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ...errors import PaifuserError, RecipeError
from ...records import Fusion, FusionMap
from ...session.state import State
from ...variant.recipe import Recipe
from ..recipe_edits import with_options
from ..section import Bench, Request, Section
from ..wire import floats, numbered

NUMBERS = ("saved_bytes", "apart_ms", "fused_ms", "error")


def packed_fusions(fusions: FusionMap) -> dict[str, Any]:
    """The sites in their order; numbers as float32, NaN if not measured."""
    sites = fusions.fusions
    return {
        "title": f"{fusions.workload}: what runs as one",
        "machine": fusions.machine,
        "whole": fusions.whole,
        "notes": list(fusions.notes),
        "layers": [list(site.layers) for site in sites],
        "pattern": numbered(site.pattern for site in sites),
        "runs": numbered(site.runs for site in sites),
        "standing": numbered(site.standing for site in sites),
        "reason": numbered(site.reason for site in sites),
        "numbers": {
            name: floats(getattr(site, name) for site in sites)
            for name in ("apart_ms", "fused_ms", "saved_bytes", "error")
        },
    }


def fused_by_recipe(state: State) -> FusionMap | None:
    """The fusions of the applied recipe; None until it is applied."""
    if state.variant is None or state.variant.recipe != state.recipe:
        return None
    return state.variant.fusions


def map_shown(measured: FusionMap | None, applied: FusionMap | None) -> FusionMap | None:
    """The recipe's fusions, with numbers that the query measured where they have none."""
    if measured is None or applied is None:
        return applied or measured
    before = {site.layers: site for site in measured.fusions}
    return applied.model_copy(
        update={
            "fusions": tuple(
                _with_numbers(site, before.get(site.layers)) for site in applied.fusions
            )
        }
    )


def fused_now(state: State) -> dict[str, Any]:
    """Whether the recipe has the step fuse, and which sites it fuses."""
    options, applied = fuse_options(state.recipe), fused_by_recipe(state)
    if options is None:
        return {"has_step": False, "on": []}
    if applied is not None:
        return {"has_step": True, "on": [site.place for site in applied.fused]}
    return {
        "has_step": True,
        "on": list(chosen(options, state.fusions)) if state.fusions is not None else [],
    }


def fuse_options(recipe: Recipe) -> dict[str, Any] | None:
    """The options of the recipe's step fuse; None if it has none."""
    return next((step.options for step in recipe if step.kind == "fuse"), None)


def chosen(options: Mapping[str, Any], fusions: FusionMap) -> tuple[str, ...]:
    """The sites that a step fuses: those that are faster, and those that are forced on."""

    def is_on(site: Fusion) -> bool:
        is_chosen = _is_named(options.get("on", ()), site) or (
            _is_named(options.get("layers", ("*",)), site) and not is_slower(site)
        )
        return site.can_switch and is_chosen and not _is_named(options.get("off", ()), site)

    return tuple(site.place for site in fusions.fusions if is_on(site))


def is_slower(site: Fusion) -> bool:
    """Whether a site is left unfused because fusing it would be slower."""
    return site.standing == "slower" or (
        site.standing == "off" and site.speedup is not None and site.speedup < 1
    )


def with_place(
    recipe: Recipe, fusions: FusionMap, now: Iterable[str], place: str, *, is_on: bool
) -> Recipe:
    """The recipe with one site switched on or off and all others unchanged; without a step fuse,
    only this site is fused.

    The step is removed if no site remains.
    """
    _check(fusions, place)
    chosen_places = (set(now) | {place}) if is_on else (set(now) - {place})
    options = fuse_options(recipe)
    earlier = options or {}
    on = [site.place for site in fusions.fusions if site.place in chosen_places]
    forced = [
        site.place
        for site in fusions.fusions
        if site.place in chosen_places
        and (is_slower(site) or _is_named(earlier.get("on", ()), site))
    ]
    off = [
        site.place
        for site in fusions.fusions
        if site.can_switch and not is_slower(site) and site.place not in chosen_places
    ]
    changes = (
        {"layers": on, "on": forced}
        if options is None or "layers" in options
        else {"off": off, "on": forced}
    )
    return with_options(
        recipe, "fuse", {name: value for name, value in changes.items() if value} if on else None
    )


def with_all(recipe: Recipe, *, is_on: bool) -> Recipe:
    """The recipe that fuses every site that is faster, or nothing."""
    return with_options(recipe, "fuse", {} if is_on else None)


def _check(fusions: FusionMap, place: str) -> None:
    site = next((site for site in fusions.fusions if site.place == place), None)
    if site is None:
        raise RecipeError(
            f"'{place}' is not a site that can be fused; find what can be fused again."
        )
    if not site.can_switch:
        raise RecipeError(
            f"'{place}' cannot be fused: {site.reason or 'no backend fuses it here'}."
        )


def _is_named(patterns: Iterable[str], site: Fusion) -> bool:
    return any(fnmatchcase(site.place, pattern) for pattern in patterns)


def _with_numbers(applied: Fusion, measured: Fusion | None) -> Fusion:
    known = {
        name: getattr(measured, name)
        for name in NUMBERS
        if measured is not None and getattr(applied, name) is None
    }
    return applied.model_copy(update=known)


def _fuse(bench: Bench, request: Request) -> None:
    """Switch the fusion of one site on or off."""
    state = bench.session.state
    shown = map_shown(state.fusions, fused_by_recipe(state))
    if shown is None:
        raise PaifuserError("What can be fused is not known yet; find it first.")
    is_on = bool(request["is_on"])
    now = fused_now(state)["on"]
    bench.recipe = with_place(state.recipe, shown, now, request["place"], is_on=is_on)


def _fuse_all(bench: Bench, request: Request) -> None:
    bench.recipe = with_all(bench.recipe, is_on=bool(request["is_on"]))


def _pack(measured: FusionMap | None, applied: FusionMap | None = None) -> dict[str, Any] | None:
    shown = map_shown(measured, applied)
    return packed_fusions(shown) if shown is not None else None


SECTION = Section(
    "fusion",
    record=FusionMap,
    record_name="fusions",
    pack=_pack,
    title="Joined layers",
    hint="operator fusion",
    tab="options",
    place="segment",
    is_wide=True,
    is_always_shown=True,
    sources=lambda state: (state.fusions, fused_by_recipe(state)),
    state=lambda state, context: {"fused": fused_now(state)},
    requests={
        "fusion": lambda bench, request: bench.session.query("fusion"),
        "fuse": _fuse,
        "fuse_all": _fuse_all,
    },
    layers=lambda record: (layer for site in record.fusions for layer in site.layers),
)
