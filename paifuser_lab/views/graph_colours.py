"""What the nodes of a graph can be coloured by: numbers of layers as heat, words as groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..records import Coupling, FusionMap, ModelGraph, Profile, Sensitivity
from ..records.model_graph import GraphNode
from ..records.text import readable_bytes, readable_ms
from .graph import Colours, Shade
from .heat_scale import cell_text, scale_of
from .style import GROUPS

BOUNDS = ("compute", "memory", "overhead")


@dataclass(frozen=True)
class Known:
    """The records of a model as far as they are known."""

    profile: Profile | None = None
    sensitivity: Sensitivity | None = None
    fusions: FusionMap | None = None
    coupling: Coupling | None = None
    formats: Mapping[str, str] = field(default_factory=dict)  # layer → the format chosen for it


Numbers = Mapping[str, float]
Words = Mapping[str, str]


def _ms(known: Known) -> Numbers:
    return {row.layer: row.self_ms for row in known.profile or ()}


def _moved(known: Known) -> Numbers:
    return {row.layer: float(row.moved_bytes) for row in known.profile or ()}


def _losses(known: Known) -> Numbers:
    """The worst predicted loss of each layer in any format."""
    found = known.sensitivity
    scores = {row.layer: row.scores.values() for row in (found.rows if found else ())}
    values = {
        layer: [each[found.method].value for each in of if found and found.method in each]
        for layer, of in scores.items()
    }
    return {layer: max(of) for layer, of in values.items() if of}


def _bounds(known: Known) -> Words:
    return {row.layer: row.verdict for row in known.profile or () if row.verdict}


def _formats(known: Known) -> Words:
    used = {row.layer: row.dtype for row in known.profile or () if row.dtype}
    return {**used, **known.formats}


def _fused(known: Known) -> Words:
    sites = known.fusions.fused if known.fusions else ()
    return {layer: site.pattern for site in sites for layer in site.layers}


def _cut_together(known: Known) -> Words:
    groups = known.coupling.groups if known.coupling else ()
    return {layer: group.name for group in groups for layer in group.layers}


LEAST_MS = 1e-3  # what takes less, such as a folded batch-norm, is shown as nothing
NUMBERS: dict[
    str,
    tuple[Callable[[Known], Numbers], Callable[[Iterable[float]], float], Callable[[float], str]],
] = {
    "time": (_ms, sum, lambda ms: f"{readable_ms(ms) if ms >= LEAST_MS else 0} ms"),
    "memory traffic": (_moved, sum, lambda size: readable_bytes(round(size))),
    "sensitivity": (_losses, max, cell_text),
}
WORDS: dict[str, Callable[[Known], Words]] = {
    "limited by": _bounds,
    "format": _formats,
    "fused": _fused,
    "channels cut together": _cut_together,
}


def names_of(known: Known) -> list[str]:
    """What there is to colour by, as far as it is known."""
    numbers = [name for name, (values, _, _) in NUMBERS.items() if values(known)]
    return numbers + [name for name, words in WORDS.items() if words(known)]


def colours_by(name: str, graph: ModelGraph, nodes: Iterable[GraphNode], known: Known) -> Colours:
    """The nodes' shades; a block's number is of all layers inside, its word that of the most."""
    layers = {
        node.key: list(dict.fromkeys(graph.operators[number].layer for number in node.operators))
        for node in nodes
        if node.kind != "operator"
    }
    if name in NUMBERS:
        return _heat(name, layers, known)
    return _groups(WORDS[name](known), layers) if name in WORDS else Colours()


def _heat(name: str, layers: Mapping[str, list[str]], known: Known) -> Colours:
    of, together, text = NUMBERS[name]
    values = of(known)
    found = {
        key: together(inside)
        for key, own in layers.items()
        if (inside := [values[layer] for layer in own if layer in values])
    }
    scale = scale_of(found.values())
    steps = {key: scale.step(value) if scale else -1 for key, value in found.items()}
    shades = {key: Shade(f"heat-{max(0, steps[key])}", text(value)) for key, value in found.items()}
    ends = (scale.floor, scale.top) if scale else ()
    legend = tuple(
        zip(("heat-0", "heat-8"), [f"{name}: {text(value)}" for value in ends], strict=False)
    )
    return Colours(shades, legend)


def _groups(words: Words, layers: Mapping[str, list[str]]) -> Colours:
    known = list(dict.fromkeys(words.values()))
    tones = {
        word: word if word in BOUNDS else f"group-{index % len(GROUPS)}"
        for index, word in enumerate(known)
    }
    shades = {}
    for key, own in layers.items():
        counted = Counter(words[layer] for layer in own if layer in words)
        if counted:
            word = counted.most_common(1)[0][0]
            shades[key] = Shade(tones[word], word if len(counted) == 1 else f"mostly {word}")
    return Colours(shades, tuple((tones[word], word) for word in known[: len(GROUPS)]))
