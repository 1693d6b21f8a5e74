"""The section of fusion: the sites, and recipe edits that switch one on or off."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ...errors import PaifuserError, RecipeError
from ...records import Fusion, FusionMap, readable_bytes
from ...records.fusion_map import WORDS
from ...records.text import or_dash, readable_ms
from ...session.state import State
from ...variant.recipe import Recipe
from ...views.fusion_map import SLOWER
from ...views.heat_scale import cell_text
from ..recipe_edits import with_options
from ..section import Bench, Request, Section

SPEED_HINT = "as one against apart, timed in turn without the rest of the model: sort by it"
SAVED_HINT = "what no longer goes through memory at each call: sort by it"
ERROR_HINT = "relative distance of its answer from that of the layers apart: sort by it"
NUMBERS = ("saved_bytes", "apart_ms", "fused_ms", "error")


def packed_fusions(fusions: FusionMap) -> dict[str, Any]:
    """The sites in their order, and the columns of their figures."""
    sites = fusions.fusions
    longest = max(
        (ms for site in sites for ms in (site.apart_ms, site.fused_ms) if ms), default=1.0
    )
    speeds = [site.speedup for site in sites]
    saved = [site.saved_bytes for site in sites]
    errors = [site.error for site in sites]
    column = ("name", "label", "width", "rank", "hint", "values", "texts", "tones")
    columns: list[tuple[Any, ...]] = [
        ("speed", "times as fast", 108, 5, SPEED_HINT, speeds, map(_speed, sites), _tones(sites)),
        ("saved", "saves", 74, 2, SAVED_HINT, saved, map(readable_bytes, saved), []),
        ("error", "error", 66, 1, ERROR_HINT, errors, map(_error, sites), []),
    ]
    named = [dict(zip(column, values, strict=True)) for values in columns]
    return {
        "title": f"{fusions.workload}: what runs as one",
        "summary": summary(fusions, {site.place for site in fusions.fused}),
        "places": [_packed_site(site, longest) for site in sites],
        "columns": [one | {"texts": list(one["texts"])} for one in named],
    }


def _packed_site(site: Fusion, longest: float) -> dict[str, Any]:
    paths = [layer.split(".") for layer in site.layers]
    deep = 0  # of the path that all its layers share
    while all(deep < len(path) - 1 and path[deep] == paths[0][deep] for path in paths):
        deep += 1
    slower = (site.speedup or 1) < SLOWER
    times = ((site.apart_ms, "apart"), (site.fused_ms, "slower" if slower else "one"))
    return {
        "layers": list(site.layers),
        "where": "".join(f"{part}." for part in paths[0][:deep]),
        "names": [".".join(path[deep:]) for path in paths],
        "pattern": site.pattern,
        "runs": site.runs,
        "reason": site.reason,
        "is_fused": site.standing == "fused",
        "can_switch": site.can_switch,
        "can_gain": site.can_switch and not is_slower(site),
        "has_facts": site.can_switch or site.speedup is not None,
        "look": "slower" if is_slower(site) else "off" if site.can_switch else "apart",
        "bars": [[ms / longest, tone] for ms, tone in times if ms],
        "ms": site.apart_ms,
        "off": _words(site, is_on=False),
        "on": _words(site, is_on=True),
    }


def _words(site: Fusion, *, is_on: bool) -> dict[str, str]:
    """What is said of a site that is on, or off: a sentence, why it is not fused, its switch."""
    speed = site.speedup or 0.0
    if is_on:
        standing = "runs as one, and is slower so" if 0 < speed < 1 else "runs as one"
    elif is_slower(site) or not site.can_switch:
        standing = WORDS["slower" if site.can_switch else "apart"]
    else:
        standing = "apart; would gain as one" if speed > 1 else "apart; could be one"
    reason = "" if is_on or site.standing == "off" else site.reason
    saved = site.saved_bytes
    facts = (
        "" if site.speedup is None else _speed(site),
        "" if saved is None else f"{readable_bytes(saved)} less through memory at each call",
        "" if site.error is None else f"error {_error(site)}",
    )
    hint = "runs as one; a click takes it apart" if is_on else f"{standing}; a click fuses it"
    barred = f"cannot be switched on: {site.reason or 'nothing fuses it here'}"
    parts = (standing, reason, site.pattern, site.runs, *facts)
    return {
        "sentence": " · ".join(filter(None, parts)),
        "reason": reason,
        "hint": hint if site.can_switch else barred,
    }


def _speed(site: Fusion) -> str:
    slower = ", slower" if (site.speedup or 1) < SLOWER else ""
    return or_dash(site.speedup, "{:.2f} ×") + slower


def _error(site: Fusion) -> str:
    return "–" if site.error is None else cell_text(site.error)


def _tones(sites: Iterable[Fusion]) -> list[str]:
    speeds = [site.speedup or 1.0 for site in sites]
    return ["bad" if speed < SLOWER else "good" if speed > 2 - SLOWER else "" for speed in speeds]


def summary(fusions: FusionMap, on: Collection[str]) -> str:
    """How many sites are fused, could be and cannot, and the time that the fused ones save."""
    sites = fusions.fusions
    if not sites:
        none = "No layers of this model follow each other in a way that could run as one."
        return " · ".join((none, *fusions.notes))
    fused = [site for site in sites if site.place in on]
    off = [site for site in sites if site.place not in on]
    left = [site for site in off if site.can_switch and not is_slower(site)]
    timed = [(site.apart_ms, site.fused_ms) for site in fused or left if site.speedup]
    saved = sum((apart or 0) - (one or 0) for apart, one in timed)
    effect = f"{readable_ms(abs(saved))} ms, each timed by itself"
    if fused:
        first = f"{len(fused)} of {len(sites)} places run as one"
        first += f", which {'saves' if saved > 0 else 'costs'} {effect}" if saved else ""
    else:
        first = f"Nothing runs as one: {len(left)} of {len(sites)} places could"
        first += f", which would save {effect}" if saved > 0 else ""
    slower, apart = sum(map(is_slower, off)), sum(not site.can_switch for site in off)
    is_as_timed = {site.place for site in fusions.fused} == set(on)
    rest = (
        f"the whole model {fusions.whole}" if is_as_timed and fusions.whole else "",
        f"{len(left)} more could" if fused and left else "",
        f"{slower} would be slower" if slower else "",
        f"{apart} cannot be one" if apart else "",
    )
    return " · ".join(filter(None, (first, *rest)))


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
    sites = tuple(_with_numbers(site, before.get(site.layers)) for site in applied.fusions)
    return applied.model_copy(update={"fusions": sites})


def fused_now(state: State) -> dict[str, Any]:
    """Whether the recipe has the step fuse, which sites it fuses, and how many of how many."""
    options, applied = fuse_options(state.recipe), fused_by_recipe(state)
    on: Iterable[str] = ()
    if options is not None and applied is not None:
        on = [site.place for site in applied.fused]
    elif options is not None and state.fusions is not None:
        on = chosen(options, state.fusions)
    shown = map_shown(state.fusions, applied)
    said = summary(shown, set(on)) if shown is not None else ""
    other = " · found with other steps than the recipe's"
    is_other = bool(said and options is None and len(state.recipe))
    return {
        "has_step": options is not None,
        "on": list(on),
        "summary": said + (other if is_other else ""),
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
    """The recipe with only this site switched; the step fuse goes with its last site."""
    _check(fusions, place)
    chosen_places = (set(now) | {place}) if is_on else (set(now) - {place})
    options = fuse_options(recipe)
    earlier = (options or {}).get("on", ())
    on = [site for site in fusions.fusions if site.place in chosen_places]
    off = [site for site in fusions.fusions if site.place not in chosen_places]
    forced = [site for site in on if is_slower(site) or _is_named(earlier, site)]
    changes = {"layers": on, "on": forced}
    if options is not None and "layers" not in options:
        could = [site for site in off if site.can_switch and not is_slower(site)]
        changes = {"off": could, "on": forced}
    places = {name: [site.place for site in of] for name, of in changes.items() if of}
    return with_options(recipe, "fuse", places if on else None)


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


def _keep_shown(bench: Bench) -> FusionMap | None:
    """The sites that are shown, kept: a recipe has none until it is applied."""
    state = bench.session.state
    shown = map_shown(state.fusions, fused_by_recipe(state))
    if state.fusions is None:
        bench.session.show("fusions", shown)
    return shown


def _fuse(bench: Bench, request: Request) -> None:
    """Switch the fusion of one site on or off."""
    shown = _keep_shown(bench)
    if shown is None:
        raise PaifuserError("What can be fused is not known yet; find it first.")
    is_on = bool(request["is_on"])
    now = fused_now(bench.session.state)["on"]
    bench.recipe = with_place(bench.recipe, shown, now, request["place"], is_on=is_on)


def _fuse_all(bench: Bench, request: Request) -> None:
    _keep_shown(bench)
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
