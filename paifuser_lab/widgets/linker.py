"""Join an ES module and what it imports to one: a module that is sent as text has no address, and
cannot import its neighbours.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2s
from pathlib import Path

from .._assets import asset
from ..errors import FileError

IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([\w-]+\.js)";?[ \t]*\n', re.M)
EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function|const|let|class)\b)", re.M)
TOP_LEVEL = re.compile(
    r"^(?:export\s+)?(?:async\s+)?(?:function\*?|const|let|class)\s+([A-Za-z_$][\w$]*)", re.M
)
LEFT_OVER = re.compile(r"^\s*(?:import\b(?!\()|export\b(?!\s+default))", re.M)
COMMENT = re.compile(
    r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*\n", re.M | re.S
)  # types and their prose are for readers, not for the wire
CAST = re.compile(r"/\*\* @\w+ .*?\*/ ?")  # a type in the middle of a line
STYLES = (
    "theme.css",
    "views.css",
    "memory.css",
    "importance.css",
    "allocation.css",
    "prediction.css",
    "groups.css",
    "fusion.css",
    "attention.css",
)


@cache
def front_end(view: str) -> tuple[str, str]:
    """The module that the panel of a view sends, with nothing that only other views need; and the
    style of all panels.
    """
    folder = asset("widgets/index.js").parent
    first, *others = view.split("_")
    function = first + "".join(word.capitalize() for word in others)
    entry = (
        'import { rendering } from "./index.js";\n'
        f'import {{ {function} }} from "./{view}.js";\n'
        f'export default {{ render: rendering({function}, "{style_name()}") }};\n'
    )
    return linked(entry, folder), _style().replace(".pf-panel", f".pf-panel.{style_name()}")


@cache
def style_name() -> str:
    """The class that the style is for. A saved notebook brings the style of its day, which must
    neither replace nor reach this one.
    """
    return f"pf-{blake2s(_style().encode(), digest_size=3).hexdigest()}"


@cache
def _style() -> str:
    folder = asset("widgets/index.js").parent
    return slim(
        "\n".join(COMMENT.sub("", (folder / name).read_text(encoding="utf-8")) for name in STYLES)
    )


def linked(entry: str, folder: Path) -> str:
    """One module out of a module's text and all that it imports, each once and before whoever needs
    it.
    """
    texts: dict[Path, str] = {}
    for name in _imported(entry, "the entry"):
        _collect(folder / name, texts, ())
    _check_names(texts)
    parts = [*(EXPORT.sub("", text) for text in texts.values()), entry]
    whole = "\n".join(slim(CAST.sub("", COMMENT.sub("", IMPORT.sub("", part)))) for part in parts)
    if found := LEFT_OVER.search(whole):
        line = whole[found.start() :].strip().splitlines()[0]
        raise FileError(
            f'`{line}` cannot be linked; write import {{ name }} from "./file.js" or export function.'
        )
    return whole


def slim(text: str) -> str:
    """Without indentation, empty lines and lines that are a comment; what stands between backticks
    is left as it is.
    """
    kept, is_quoted = [], False
    for line in text.splitlines():
        stripped = line if is_quoted else line.strip()
        if is_quoted or (stripped and not stripped.startswith("//")):
            kept.append(stripped)
        is_quoted ^= line.count("`") % 2 == 1
    return "\n".join(kept) + "\n"


def _collect(path: Path, texts: dict[Path, str], above: tuple[Path, ...]) -> None:
    if path in above:
        raise FileError(
            f"{path.name} imports itself through {', '.join(one.name for one in above)}."
        )
    if path in texts:
        return
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(
            f"{above[-1].name if above else 'The panel'} needs {path.name}, which cannot be read: "
            f"{error}."
        ) from error
    for name in _imported(text, path.name):
        _collect(path.parent / name, texts, (*above, path))
    texts[path] = text


def _imported(text: str, whose: str) -> list[str]:
    """The files that a module imports from."""
    for names, name in IMPORT.findall(text):
        if " as " in names:
            raise FileError(
                f"{whose} renames what it imports from {name}; give the thing the name that it is "
                "to have."
            )
    return [name for _, name in IMPORT.findall(text)]


def _check_names(texts: dict[Path, str]) -> None:
    """All modules share one scope in the end."""
    owner: dict[str, Path] = {}
    for path, text in texts.items():
        for name in TOP_LEVEL.findall(text):
            if name in owner:
                raise FileError(
                    f"{name} is defined in {owner[name].name} and in {path.name}; one name stands "
                    "for one thing."
                )
            owner[name] = path
