"""A profile as a text table for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from .layer_profile import LayerProfile, OperatorProfile
from .profile_tree import ProfileTree
from .text import readable_bytes, readable_count, text_table

# operators between layers with a smaller share are only in `profile.operators`
SHOWN_SHARE = 0.002
COLUMNS = (
    "runs as",
    "self ms",
    "total ms",
    "share",
    "FLOPs",
    "weights",
    "moved",
    "peak",
    "output",
    "reached",
    "bound by",
)
MAX_LINES = 25
WORDS = ("layer", "kind", "runs as", "bound by")


def profile_table(profile: ProfileTree, depth: int | None = None) -> list[dict[str, str]]:
    """One line per layer and per operator that ran between layers, indented by depth."""
    lines: list[dict[str, str]] = []
    for level, row in profile.walk():
        if depth is not None and level > depth:
            continue
        lines.append(
            {"layer": "  " * level + name_of(row, profile), "kind": row.kind, **cells(row, profile)}
        )
        if depth is None or level < depth:
            lines += [
                {"layer": "  " * (level + 1) + f"+ {operator.name}", **texts}
                for operator, texts in container_operators(row, profile)
            ]
    return lines


def profile_text(profile: ProfileTree, depth: int | None = None) -> str:
    """The table in a terminal; long ones are cut, with a note."""
    lines = profile_table(profile, depth)
    shown = lines[:MAX_LINES] if depth is None else lines
    keys = [key for key in ("layer", "kind", *COLUMNS) if any(line.get(key) for line in shown)]
    text = text_table([{key: row.get(key, "") for key in keys} for row in shown], WORDS)
    left = len(lines) - len(shown)
    more = (
        [f"… and {left} lines more: profile.frame has them all, profile.table(depth=2) fewer"]
        if left
        else []
    )
    return "\n".join([profile.title, *failure(profile), *text, *more, profile.accuracy])


def name_of(row: LayerProfile, profile: ProfileTree) -> str:
    """A layer's name relative to its parent in the tree."""
    if not row.layer:
        return profile.workload
    above = profile.parent(row.layer)
    return row.layer.removeprefix(f"{above}.") if above else row.layer


def cells(row: LayerProfile, profile: ProfileTree) -> dict[str, str]:
    """The texts of a layer's columns."""
    return {
        "calls": "" if row.calls in (0, 1) else f"{row.calls} ×",
        "runs as": f"in {row.joined_into}" if row.joined_into else row.runs_as,
        **_times(row, profile),
        "FLOPs": readable_count(row.total_flops) if row.total_flops else "",
        "weights": readable_count(row.total_parameters) if row.total_parameters else "",
        "moved": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "peak": _peak(row),
        "output": ", ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes[:1]),
        "reached": _reached(row),
        "bound by": _bound(row, profile),
    }


def _times(row: LayerProfile, profile: ProfileTree) -> dict[str, str]:
    """The columns of time; a layer without a time of its own has the word for why."""
    if "self_ms" in row.unknown_why:
        return {"self ms": "joined" if row.joined_into else "–", "total ms": "", "share": ""}
    return {
        "self ms": _ms(row.self_ms, profile),
        "total ms": _ms(row.total_ms, profile),
        "share": f"{row.share:.1%}",
    }


def container_operators(
    row: LayerProfile, profile: ProfileTree
) -> Iterator[tuple[OperatorProfile, dict[str, str]]]:
    """Operators that a container ran itself between its layers, with their columns' texts."""
    if not profile.children(row.layer):
        return
    for operator in row.operators:
        if operator.ms > SHOWN_SHARE * profile.total_ms:
            yield (
                operator,
                {
                    "kind": "operator" if operator.calls == 1 else f"operator, {operator.calls} ×",
                    "self ms": _ms(operator.ms, profile),
                    "total ms": _ms(operator.ms, profile),
                    "share": f"{operator.ms / (profile.total_ms or 1.0):.1%}",
                    "FLOPs": readable_count(operator.flops) if operator.flops else "",
                    "moved": readable_bytes(operator.read_bytes + operator.written_bytes),
                },
            )


def _peak(row: LayerProfile) -> str:
    if row.peak_bytes:
        return readable_bytes(row.peak_bytes)
    return "–" if "peak_bytes" in row.unknown_why and row.self_ms else ""


def failure(profile: ProfileTree) -> list[str]:
    """A line that says why the profile stopped early, if it did."""
    return [f"stopped: {profile.failure}"] if profile.failure else []


def _ms(value: float, profile: ProfileTree) -> str:
    """Milliseconds with the same number of decimals in every row."""
    decimals = next(
        (count for limit, count in ((1, 4), (100, 3), (1000, 2)) if profile.total_ms < limit), 1
    )
    return f"{value:.{decimals}f}"


def _reached(row: LayerProfile) -> str:
    """The rate that the layer reached, in the unit of its roof."""
    if row.verdict == "memory" and row.gbs:
        return f"{row.gbs:.3g} GB/s"
    return f"{row.gflops:.3g} GFLOP/s" if row.gflops else ""


def _bound(row: LayerProfile, profile: ProfileTree) -> str:
    if row.verdict is None or row.self_ms < SHOWN_SHARE * profile.total_ms:
        return ""
    share = row.roof_share
    far = f" ({share:.0%} of the roof)" if row.verdict != "overhead" and share is not None else ""
    return f"{row.verdict}{far}"
