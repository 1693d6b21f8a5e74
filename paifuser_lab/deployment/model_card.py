"""The model card of a deploy folder, in Markdown: where the model comes from, what was measured,
how each file was checked, and what is not known.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from .. import zoo
from ..converter import Exportable
from ..records import Comparison, Deployment
from ..workload import Workload
from .preprocessing import InputSpec, Preprocessing

UNKNOWN = "unknown: state it with licence=… before you hand the model on"
OURS = (
    "MIT, as PAIFuser Lab, whose zoo it is of, with its weights, which are random or were trained "
    "there; others that were loaded into it have their own"
)


def model_card(
    exportable: Exportable,
    deployment: Deployment,
    preprocessing: Preprocessing,
    recipe: str,
    *,
    licence: str,
    notes: Sequence[str],
    comparison: Comparison | None,
) -> str:
    """The card's text; what a model's names hold is shown as text."""
    parts = [
        f"# {_text(exportable.name)}",
        f"{_text(deployment.title)}.",
        f"* Licence of the original: {_text(licence or _known_licence(exportable.work))}",
        f"* SHA-256 of the weights: `{exportable.weights_hash}`"
        + (f", of the original's `{exportable.original_hash}`" if exportable.original_hash else ""),
        "* Use and limits: it answers as the original does, within the errors below; what the "
        "original may be used for is not known here.",
        "## Run",
        _how_to_run(preprocessing.inputs),
        "## Inputs and outputs",
        _table([_input_row(spec) for spec in preprocessing.inputs]),
        f"Outputs: {', '.join(f'`{_code(name)}`' for name in preprocessing.outputs)}"
        + (
            f"; {len(preprocessing.labels)} labels in `labels.json`."
            if preprocessing.labels
            else "; no labels were given."
        ),
        "## Recipe",
        _fenced(recipe, "yaml"),
        *(["\n".join(f"* {_text(note)}" for note in notes)] if notes else []),
        "## Files and how they were checked",
        _table(deployment.table()),
        "`manifest.json` has the SHA-256 of every file.",
        "## Measured",
    ]
    if comparison is None:
        parts.append("No comparison with the original was given.")
    else:
        parts += [_text(caption) for caption in comparison.captions]
        parts.append(_table(comparison.table()))
    return "\n\n".join(parts) + "\n"


def _known_licence(work: Workload) -> str:
    """The licence of a model of the zoo; of every other one it is not known."""
    return OURS if work.origin is not None and work.origin.name in zoo.names() else UNKNOWN


def _how_to_run(inputs: Sequence[InputSpec]) -> str:
    """The scripts; an image is promised only where it is the one input, and may come alone."""
    is_image = len(inputs) == 1 and inputs[0].kind == "image"
    takes_one = is_image and inputs[0].shape[0] in (None, 1)
    file = "image.png` (or `.npy`, `.npz`)" if takes_one else "example.npz`"
    if takes_one:
        pictures = (
            " Pictures are stretched to the input's sides, as `--how stretch` of `paifuser-lab "
            "serve` and `stream` does."
        )
    elif is_image:
        pictures = (
            f" No image file can be run, since the model takes {inputs[0].shape[0]} at a time: "
            "give `.npy` or `.npz`, or deploy with `dynamic=True` (`--dynamic`)."
        )
    else:
        pictures = ""
    return (
        f"`python run.py {file}, `python check.py`, `python serve.py`, `python batch.py IN OUT`: "
        f"with `requirements.txt` alone.{pictures} `Dockerfile` and `kubernetes/` run the same "
        "scripts; the manifests are valid for their schema, and no cluster has run them."
    )


def _input_row(spec: InputSpec) -> dict[str, str]:
    shape = "×".join("any" if size is None else str(size) for size in spec.shape)
    numbers = {
        "mean": spec.mean,
        "std": spec.std,
        "tokens below": spec.vocabulary,
    }
    facts = [f"{name} {value}" for name, value in numbers.items() if value is not None]
    if spec.kind == "image" and spec.mean is None:
        facts.append("mean and std: nobody stated them")
    kind = " ".join(filter(None, (spec.kind, spec.mode, spec.layout)))
    return {
        "input": spec.name,
        "kind": kind,
        "shape": shape,
        "type": spec.dtype,
        "preprocessing": "; ".join(facts) or "–",
    }


def _table(rows: Sequence[dict[str, str]]) -> str:
    """Rows of text as a Markdown table."""
    if not rows:
        return ""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[_text(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fenced(text: str, language: str) -> str:
    """A text between fences that are longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _text(text: str) -> str:
    """A text on one line that Markdown shows as it is: no HTML, no table cell, no link, no code."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(line, quote=False))


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())
