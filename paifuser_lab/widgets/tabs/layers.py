"""The section of the layer table: what each layer costs, and the format chosen for it."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any

from ...model.formats import AUTOCAST, NAMES
from ...profiler import side_by_side
from ...quantization import obstacle
from ...quantization.float_formats import autocast_obstacle
from ...records import ENGINE_ROW, LayerProfile, Profile
from ...session.state import State
from ...steps.step import parts
from ...variant.recipe import Recipe
from ...workload import Workload
from ..recipe_edits import without_layers
from ..section import Bench, Context, Request, Section
from ..wire import floats, integers, numbered

CHOICES = ("", *NAMES, *AUTOCAST)
NUMBERS = (
    "self_ms", "total_ms", "share", "total_flops", "total_parameters", "total_bytes", "peak_bytes",
    "intensity", "gflops", "gbs", "roof_share",
)  # fmt: skip
UNKNOWN = ("self_ms", "peak_bytes", "bound")  # figures that an engine may not give


def packed_profile(profile: Profile) -> dict[str, Any]:
    """The layer tree: repeated names as codes, numbers as float32, NaN if unknown."""
    rows = [row for _, row in profile.walk()]
    index = {row.layer: number for number, row in enumerate(rows)}
    parents = [index[profile.parent(row.layer)] if row.layer else -1 for row in rows]
    return {
        "title": profile.title,
        "note": profile.accuracy,
        "workload": profile.workload,
        "layer": [row.layer for row in rows],
        "parent": integers(parents),
        "kind": numbered(row.kind for row in rows),
        "output": numbered(_shape(row) for row in rows),
        "bound": numbered(row.verdict or "" for row in rows),
        "engine": profile.engine,
        "runs_as": numbered(row.runs_as for row in rows),
        "joined_into": integers(
            -1 if row.joined_into is None else index[row.joined_into] for row in rows
        ),
        "unknown_why": {
            name: numbered(row.unknown_why.get(name, "") for row in rows) for name in UNKNOWN
        },
        "numbers": {name: floats(getattr(row, name) for row in rows) for name in NUMBERS},
        "ceiling": profile.ceiling.model_dump(),
        "is_uncertain": profile.quality is not None and not profile.quality.is_quiet,
    }


def times_before(profile: Profile, before: Profile | None) -> dict[str, Any]:
    """The times of a profile's layers in the unchanged model; {} for the unchanged model itself."""
    if before is None or before is profile:
        return {}
    earlier = [before.get(row.layer) for _, row in profile.walk()]
    qualities = [one.quality for one in (profile, before) if one.quality]
    return {
        "is_uncertain": not all(quality.is_quiet for quality in qualities),
        "before": {
            name: floats(getattr(row, name) if row else None for row in earlier)
            for name in ("self_ms", "total_ms")
        },
    }


def _shape(row: LayerProfile) -> str:
    return "×".join(map(str, row.output_shapes[0])) if row.output_shapes else ""


def with_precision(recipe: Recipe, layer: str, name: str) -> Recipe:
    """The recipe with a format for one layer; '' withdraws the choice."""
    if name:
        return recipe.with_step({"precision": {"layers": {layer: name}}})
    left = without_layers(recipe, "precision", {layer}, alone=("default",))
    around = list(accumulate(layer.split("."), "{}.{}".format))  # the layer comes last
    if formats_in(left, around).get(layer, "fp32") != "fp32":  # a pattern gives it a format
        return recipe.with_step({"precision": {"layers": {layer: "fp32"}}})
    return left


def obstacles(module: Any) -> str | dict[str, str]:
    """Why a layer cannot be in any format, or not in some; {} for a container."""
    if not any(weight.is_floating_point() for weight in module.parameters()):
        return "it has no weights; it computes in the format of its input"
    if next(module.children(), None) is not None:
        return {}
    barred = {name: obstacle(module, name) for name in NAMES} | dict.fromkeys(
        AUTOCAST, autocast_obstacle(module)
    )
    return {name: why for name, why in barred.items() if why}


def formats_in(recipe: Recipe, layers: Collection[str]) -> dict[str, str]:
    """The format that a recipe chooses for each of these layers, by its name or a pattern."""
    chosen: dict[str, str] = {}
    for step in recipe:
        if step.kind == "precision":
            for pattern, name in step.options.get("layers", {}).items():
                matched = {layer for layer in layers if fnmatchcase(layer, pattern)}
                chosen |= dict.fromkeys(parts(layers, matched), name)
    return chosen


def channels(state: State) -> dict[str, list[int]]:
    """The output channels of each layer, now and in the baseline."""
    if state.baseline is None:
        return {}
    now = state.profile or state.baseline
    had = {row.layer: width for _, row in state.baseline.walk() if (width := output_width(row))}
    return {
        layer: [(output_width(now[layer]) if layer in now else None) or width, width]
        for layer, width in had.items()
    }


def output_width(row: LayerProfile) -> int | None:
    """The number of a layer's output channels, from its weight's shape; None if it has none."""
    if not row.weight_shape or not row.kind.startswith(("Conv", "Linear", "Embedding")):
        return None
    if row.kind == "Conv1D":  # of GPT-2
        return row.weight_shape[-1]
    return row.weight_shape[1 if row.kind.startswith(("ConvTranspose", "Embedding")) else 0]


def changes(state: State) -> dict[str, str]:
    """What the recipe changed in each layer."""
    layers = [row.layer for _, row in state.baseline.walk()] if state.baseline else []
    chosen = {layer: f"in {name}" for layer, name in formats_in(state.recipe, layers).items()}
    if state.profile is None or state.baseline is None or state.profile is state.baseline:
        return chosen
    return chosen | {
        row.layer: row.note
        for row in side_by_side(state.baseline, state.profile).rows
        if row.note and row.layer
    }


def _cannot(work: Workload) -> dict[str, dict[str, Any]]:
    """The layers that can take no format, and those that cannot take some, with reasons."""
    cannot: dict[str, Any] = {ENGINE_ROW: "it is no layer of the model"}
    cannot_in: dict[str, Any] = {}
    for name, module in work.model.named_modules():
        if name and (why := obstacles(module)):
            (cannot if isinstance(why, str) else cannot_in)[name] = why
    return {"cannot": cannot, "cannot_in": cannot_in}


def _state(state: State, context: Context) -> dict[str, Any]:
    profiles = (state.profile, state.baseline)
    return {
        "choices": list(CHOICES),
        **context.once("cannot", lambda: _cannot(context.work), context.work),
        "precisions": formats_in(
            state.recipe, [name for name, _ in context.work.model.named_modules() if name]
        ),
        "channels": context.once("channels", lambda: channels(state), *profiles),
        "changes": context.once("changes", lambda: changes(state), *profiles, state.recipe),
    }


def _choose(bench: Bench, request: Request) -> None:
    bench.recipe = with_precision(bench.recipe, request["layer"], request["name"])


SECTION = Section(
    "layers",
    record=Profile,
    pack=packed_profile,
    state=_state,
    requests={"precision": _choose},
)  # the workbench's own table; it has no tab
