"""Draw the map of CONTRIBUTING.md from the imports of the package: `make map`.

Rooms stand on the floors of tests/test_house.py. An arrow goes from a room to one that it imports,
where no longer way of arrows leads there (a transitive reduction), and none goes to the lowest
floors, which every room may use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "paifuser_lab"
FILES = {"light": ROOT / "docs" / "house-light.svg", "dark": ROOT / "docs" / "house-dark.svg"}

ABOUT = {
    "cli": "the command line",
    "bench": "benchmarks of this machine",
    "__init__": "the public names of lab",
    "widgets": "panels in a notebook",
    "session": "undo, results, a worker",
    "jobs": "what a workbench computes",
    "planner": "recipes and formats, chosen",
    "comparison": "variants timed in turn",
    "deployment": "deploy folders",
    "pipeline": "papermill and sweeps",
    "variant": "apply, save, load",
    "recipe": "steps as data, YAML",
    "steps": "one file a kind of change",
    "streaming": "frames in order, on workers",
    "accelerate": "enable() and its switches",
    "parallel": "several processes, one model",
    "attention": "sparse, windowed",
    "engines": "what runs a model",
    "saliency": "sensitivity, importance",
    "converter": "models as files",
    "fusion": "fused operators",
    "profiler": "time, bytes, advice",
    "pruning": "groups, cuts, refit",
    "quantization": "integer layers, compensation, QAT",
    "importer": "files of other tools",
    "kernels": "CUDA: compile, launch, tune",
    "measure": "paired timing, error",
    "memory": "pools, plans, snapshots",
    "training": "the loop, distillation",
    "figures": "matplotlib, no torch",
    "machine": "hardware, ceilings",
    "workload": "model, data, metric",
    "model": "any torch model, read and edited",
    "records": "frozen results, no torch",
    "_files": "safe writing, assets",
    "stopping": "stop, keep results",
    "arguments": "checked arguments",
    "zoo": "models, data, training",
    "loading": "workloads by name",
    "errors": "messages with a remedy",
    "formats": "names of formats",
    "progress": "progress bars",
}
COMMON = 2  # this many of the lowest floors have no arrows: every room may use them
WIDTH, MARGIN, GAP, BOX, PITCH, WIDEST, LANE = 880, 74, 14, 38, 60, 300, 12
NAMES = ("ink", "dim", "line", "box", "edge")
COLOURS = {
    "light": dict(zip(NAMES, ("#1f2328", "#59636e", "#8c959f", "#f6f8fa", "#d1d9e0"), strict=True)),
    "dark": dict(zip(NAMES, ("#f0f6fc", "#9198a1", "#6e7681", "#151b23", "#3d444d"), strict=True)),
}
Point = tuple[float, float]


@cache
def floors() -> tuple[frozenset[str], ...]:
    """The floors as the house test declares them, from the top."""
    tree = ast.parse((ROOT / "tests" / "test_house.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FLOORS":
            return tuple(frozenset(rooms) for rooms in ast.literal_eval(node.value))
    raise LookupError("tests/test_house.py has no FLOORS")


@cache
def imports() -> dict[str, set[str]]:
    """Room → the rooms that its files import."""
    rooms = {room for floor in floors() for room in floor}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).parts
        room = inside[0].removesuffix(".py")
        for name in _names(path, ("paifuser_lab", *inside[:-1])):
            target = name.split(".")[1] if name.startswith("paifuser_lab.") else room
            if target != room and target in rooms:
                found[room].add(target)
    return found


def _names(path: Path, package: tuple[str, ...]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [module] if node.module else [f"{module}.{a.name}" for a in node.names]
            yield from names


@cache
def arrows() -> list[tuple[str, str]]:
    """The imports that are drawn, from the top down."""
    direct = imports()
    common = set().union(*floors()[-COMMON:])

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset(direct[room]).union(*(reached(target) for target in direct[room]))

    return [
        (room, target)
        for floor in floors()
        for room in sorted(floor)
        for target in sorted(direct[room] - common)
        if not any(target in reached(other) for other in direct[room] - {target})
    ]


def _ordered(drawn: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The rooms of each floor from left to right, so that arrows are short: two sweeps."""
    rows = [sorted(floor) for floor in floors()]
    level = {room: index for index, row in enumerate(rows) for room in row}
    for _ in range(2):
        for index, row in enumerate(rows):
            if len(row) > 1:
                others = {room: x for one in rows if one is not row for room, x in _xs(one).items()}
                rows[index] = min(
                    (list(order) for order in permutations(sorted(row))),
                    key=lambda order: _cost(_xs(order), others, level, drawn),
                )
    return rows


def _cost(
    own: dict[str, float],
    others: dict[str, float],
    level: dict[str, int],
    drawn: Sequence[tuple[str, str]],
) -> float:
    total = 0.0
    for room, target in drawn:
        if room not in own and target not in own:
            continue
        x, other = (own.get(name, others.get(name, 0.0)) for name in (room, target))
        if level[target] - level[room] == 1:
            total += abs(x - other)
        elif target in own:  # it comes from a side, and should not pass the floor's other rooms
            total += WIDTH * (min(own.values()) < other < max(own.values()))
    return total


def _xs(row: Sequence[str]) -> dict[str, float]:
    """The middle of each room of a floor."""
    width = _box_width(len(row))
    start = (WIDTH - len(row) * width - (len(row) - 1) * GAP) / 2 + width / 2
    return {room: start + index * (width + GAP) for index, room in enumerate(row)}


def _box_width(count: int) -> float:
    return min(WIDEST, (WIDTH - 2 * MARGIN - (count - 1) * GAP) / count)


class _Drawing:
    """Boxes and arrows of one map; the same in light and dark but for the colours."""

    def __init__(self) -> None:
        self.drawn = arrows()
        self.rows = _ordered(self.drawn)
        self.x = {room: x for row in self.rows for room, x in _xs(row).items()}
        self.level = {room: index for index, row in enumerate(self.rows) for room in row}
        self.height = PITCH * len(self.rows) + 12
        self.lanes: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}

    def top(self, room: str) -> float:
        return 8 + PITCH * self.level[room]

    def half(self, room: str) -> float:
        return _box_width(len(self.rows[self.level[room]])) / 2

    def path_of(self, room: str, target: str) -> list[Point]:
        """The corners of an arrow: straight to the next floor, or by a lane past other floors."""
        start, end = (self.x[room], self.top(room) + BOX), (self.x[target], self.top(target))
        if self.level[target] - self.level[room] == 1:
            return [start, end]
        is_right = self.x[target] > WIDTH / 2
        lane = self._lane(is_right, self.level[room], self.level[target])
        sign, rim = (1, WIDTH - MARGIN) if is_right else (-1, MARGIN)
        x = rim + sign * LANE * (lane + 1)
        row = self.rows[self.level[target]]
        first = self._leave(room, sign, x)
        if target == (row[-1] if is_right else row[0]):
            y = end[1] + BOX / 2
            return [*first, (x, y), (end[0] + sign * self.half(target), y)]
        return [*first, (x, end[1] - 8), (end[0], end[1] - 8), end]

    def _leave(self, room: str, sign: int, x: float) -> list[Point]:
        row = self.rows[self.level[room]]
        if room == (row[-1] if sign > 0 else row[0]):
            y = self.top(room) + BOX / 2
            return [(self.x[room] + sign * self.half(room), y), (x, y)]
        y = self.top(room) + BOX
        return [(self.x[room], y), (self.x[room], y + 6), (x, y + 6)]

    def _lane(self, is_right: bool, high: int, low: int) -> int:
        """The innermost lane that no arrow of these floors has."""
        taken = {lane for lane, top, end in self.lanes[is_right] if top <= low and high <= end}
        lane = next(index for index in range(99) if index not in taken)
        self.lanes[is_right].append((lane, high, low))
        return lane

    def paths(self) -> list[list[Point]]:
        """The arrows, short ones first, so that long ones have the outer lanes."""
        self.lanes = {False: [], True: []}
        by_length = sorted(self.drawn, key=lambda pair: self.level[pair[1]] - self.level[pair[0]])
        return [self.path_of(*pair) for pair in by_length]


def svg(theme: str) -> str:
    """The map as SVG text."""
    drawing, colour = _Drawing(), COLOURS[theme]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {drawing.height}" '
        f'width="{WIDTH}" height="{drawing.height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour["line"]}"/>'
        "</marker></defs>",
        f'<g fill="none" stroke="{colour["line"]}" stroke-width="1.3" marker-end="url(#tip)">',
    ]
    lines += [f'<path d="{_d(path)}" marker-end="url(#tip)"/>' for path in drawing.paths()]
    lines.append("</g>")
    for index, row in enumerate(drawing.rows):
        lines.append(f'<g data-floor="{index}">')
        lines += [_box(drawing, room, colour) for room in row]
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _box(drawing: _Drawing, room: str, colour: dict[str, str]) -> str:
    x, y, half = drawing.x[room], drawing.top(room), drawing.half(room)
    return (
        f'<g data-room="{room}"><rect x="{x - half:.0f}" y="{y:.0f}" width="{2 * half:.0f}" '
        f'height="{BOX}" rx="6" fill="{colour["box"]}" stroke="{colour["edge"]}"/>'
        f'<text x="{x:.0f}" y="{y + 16:.0f}" text-anchor="middle" font-size="13" '
        f'font-weight="600" fill="{colour["ink"]}">{escape(room)}</text>'
        f'<text x="{x:.0f}" y="{y + 31:.0f}" text-anchor="middle" font-size="11" '
        f'fill="{colour["dim"]}">{escape(ABOUT[room])}</text></g>'
    )


def _d(points: Sequence[Point]) -> str:
    """A path through points, its corners rounded."""
    (x, y), *rest = points
    if len(rest) == 1:
        (ex, ey) = rest[0]
        middle = (y + ey) / 2
        return f"M{x:.0f} {y:.0f}C{x:.0f} {middle:.0f} {ex:.0f} {middle:.0f} {ex:.0f} {ey:.0f}"
    text = f"M{x:.0f} {y:.0f}"
    for (ax, ay), (bx, by), (cx, cy) in zip(points, points[1:], points[2:], strict=False):
        near, far = _towards((bx, by), (ax, ay)), _towards((bx, by), (cx, cy))
        text += f"L{near[0]:.0f} {near[1]:.0f}Q{bx:.0f} {by:.0f} {far[0]:.0f} {far[1]:.0f}"
    return text + f"L{points[-1][0]:.0f} {points[-1][1]:.0f}"


def _towards(corner: Point, other: Point) -> Point:
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = max(1.0, (dx * dx + dy * dy) ** 0.5)
    step = min(6.0, length / 2)
    return corner[0] + dx / length * step, corner[1] + dy / length * step


def main() -> None:
    """Write both files."""
    for theme, path in FILES.items():
        path.write_text(svg(theme), encoding="utf-8")


if __name__ == "__main__":
    main()
