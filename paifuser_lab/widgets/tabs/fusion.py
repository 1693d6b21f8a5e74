"""What can be fused: which sites run as one operator, and the recipe in which one more or one fewer
does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ...errors import PaifuserError, RecipeError
from ...recipe import Recipe
from ...records import Fusion, FusionMap
from ...session.queries import FUSION
from ...session.state import State
from ..recipe_edits import with_options
from ..section import Bench, Request, Section
from ..wire import floats, numbered

NUMBERS = ("saved_bytes", "apart_ms", "fused_ms", "error")


def packed_fusions(found: FusionMap) -> dict[str, Any]:
    """The places in their order; their numbers as float32, where NaN is what was not measured."""
    places = found.fusions
    return {
        "title": f"{found.workload}: what runs as one",
        "machine": found.machine,
        "whole": found.whole,
        "notes": list(found.notes),
        "layers": [list(one.layers) for one in places],
        "pattern": numbered(one.pattern for one in places),
        "runs": numbered(one.runs for one in places),
        "standing": numbered(one.standing for one in places),
        "reason": numbered(one.reason for one in places),
        "numbers": {
            name: floats(getattr(one, name) for one in places)
            for name in ("apart_ms", "fused_ms", "saved_bytes", "error")
        },
    }


def fused_by_recipe(state: State) -> FusionMap | None:
    """What the recipe did, as soon as it is applied."""
    if state.variant is None or state.variant.recipe != state.recipe:
        return None
    return state.variant.fusions


def map_shown(found: FusionMap | None, did: FusionMap | None) -> FusionMap | None:
    """What the recipe did with the numbers that were found before, where it has none of its own;
    else what was found.
    """
    if found is None or did is None:
        return did or found
    before = {one.layers: one for one in found.fusions}
    return did.model_copy(
        update={"fusions": tuple(_with_numbers(one, before.get(one.layers)) for one in did.fusions)}
    )


def fused_now(state: State) -> dict[str, Any]:
    """Whether the recipe has the step, and which places run as one by it."""
    options, did = fuse_options(state.recipe), fused_by_recipe(state)
    if options is None:
        return {"has_step": False, "on": []}
    if did is not None:
        return {"has_step": True, "on": [one.place for one in did.fused]}
    return {
        "has_step": True,
        "on": list(chosen(options, state.fusions)) if state.fusions is not None else [],
    }


def fuse_options(recipe: Recipe) -> dict[str, Any] | None:
    """What the recipe's step says; None where it has none."""
    return next((step.options for step in recipe if step.kind == "fuse"), None)


def chosen(options: Mapping[str, Any], found: FusionMap) -> tuple[str, ...]:
    """The places that a step fuses: those that gain, and those that are wanted all the same."""

    def is_on(one: Fusion) -> bool:
        is_wanted = _is_named(options.get("on", ()), one) or (
            _is_named(options.get("layers", ("*",)), one) and not is_slower(one)
        )
        return one.can_switch and is_wanted and not _is_named(options.get("off", ()), one)

    return tuple(one.place for one in found.fusions if is_on(one))


def is_slower(one: Fusion) -> bool:
    """Whether a place stays apart because it would be slower as one."""
    return one.standing == "slower" or (
        one.standing == "off" and one.speedup is not None and one.speedup < 1
    )


def with_place(
    recipe: Recipe, found: FusionMap, now: Iterable[str], place: str, *, is_on: bool
) -> Recipe:
    """The recipe in which a place runs as one, or no longer does, and all others as now; the first
    one is fused alone.

    Where nothing is left to fuse, the step goes.
    """
    _check(found, place)
    wanted = (set(now) | {place}) if is_on else (set(now) - {place})
    options = fuse_options(recipe)
    said = options or {}
    on = [one.place for one in found.fusions if one.place in wanted]
    forced = [
        one.place
        for one in found.fusions
        if one.place in wanted and (is_slower(one) or _is_named(said.get("on", ()), one))
    ]
    off = [
        one.place
        for one in found.fusions
        if one.can_switch and not is_slower(one) and one.place not in wanted
    ]
    ours = (
        {"layers": on, "on": forced}
        if options is None or "layers" in options
        else {"off": off, "on": forced}
    )
    return with_options(
        recipe, "fuse", {name: value for name, value in ours.items() if value} if on else None
    )


def with_all(recipe: Recipe, *, is_on: bool) -> Recipe:
    """The recipe that fuses whatever gains, or nothing."""
    return with_options(recipe, "fuse", {} if is_on else None)


def _check(found: FusionMap, place: str) -> None:
    one = next((one for one in found.fusions if one.place == place), None)
    if one is None:
        raise RecipeError(
            f"'{place}' is no place where layers could run as one; find what can be fused again."
        )
    if not one.can_switch:
        raise RecipeError(f"'{place}' cannot run as one: {one.reason or 'nothing fuses it here'}.")


def _is_named(patterns: Iterable[str], one: Fusion) -> bool:
    return any(fnmatchcase(one.place, pattern) for pattern in patterns)


def _with_numbers(did: Fusion, before: Fusion | None) -> Fusion:
    known = {
        name: getattr(before, name)
        for name in NUMBERS
        if before is not None and getattr(did, name) is None
    }
    return did.model_copy(update=known)


def _fuse(bench: Bench, request: Request) -> None:
    """Have one site run as one operator, or no longer."""
    state = bench.session.state
    shown = map_shown(state.fusions, fused_by_recipe(state))
    if shown is None:
        raise PaifuserError("Nothing is known yet of what can be fused; find it first.")
    is_on = bool(request["is_on"])
    now = fused_now(state)["on"]
    bench.recipe = with_place(state.recipe, shown, now, request["place"], is_on=is_on)


def _fuse_all(bench: Bench, request: Request) -> None:
    bench.recipe = with_all(bench.recipe, is_on=bool(request["is_on"]))


def _pack(found: FusionMap | None, done: FusionMap | None = None) -> dict[str, Any] | None:
    shown = map_shown(found, done)
    return packed_fusions(shown) if shown is not None else None


SECTION = Section(
    "fusion",
    record=FusionMap,
    record_name="fusions",
    pack=_pack,
    title="Fusion",
    is_wide=True,
    is_always_shown=True,
    sources=lambda state: (state.fusions, fused_by_recipe(state)),
    state=lambda state, context: {"fused": fused_now(state)},
    requests={
        "fusion": lambda bench, request: bench.session.query("fusion"),
        "fuse": _fuse,
        "fuse_all": _fuse_all,
    },
    queries=(FUSION,),
    layers=lambda record: (layer for one in record.fusions for layer in one.layers),
)
