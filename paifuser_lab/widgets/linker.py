"""Bundle an ES module and its imports into one text: a module without a URL imports no files."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2s
from pathlib import Path

from .._files import asset
from .section import Section, sections

IMPORT = re.compile(
    r'^import\s*\{([^}]*)\}\s*from\s*"(\.\.?/(?:[\w-]+/)*[\w-]+\.js)";?[ \t]*\n', re.M
)
EXPORT = re.compile(
    r"^export\s+((?:async\s+)?(?:function\*?|const|class)\s+)([A-Za-z_$][\w$]*)", re.M
)
# comments and JSDoc types are for readers, not sent
COMMENT = re.compile(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*\n", re.M | re.S)
SPACES = re.compile(r"\s*([{};])\s*")  # around what separates rules and declarations
CAST = re.compile(r"/\*\* @\w+ .*?\*/ ?")  # a JSDoc type within a line
FIRST_STYLES = ("shared/theme.css", "shared/grid.css", "workbench/workbench.css")


def front_end(view: str) -> tuple[str, str]:
    """The module of a view's panel, with only what it needs, and the style of all panels."""
    return _front_end(view, sections())


def style_name() -> str:
    """The CSS class of this style: a saved notebook brings an older one, which must not apply."""
    return _style_name(_style())


def linked(entry: str, root: Path) -> str:
    """Bundle an entry's text and all its imports into one module.

    Each module becomes a function scope that returns its exports, placed before the modules that
    import it, so private names may repeat.
    """
    modules = _Modules(Path(os.path.normpath(root)))
    entry, default = re.subn(r"^export default\b", "const panel =", entry, flags=re.M)
    body = modules.body(entry, root)
    return slim(
        "\n".join([*modules.scopes.values(), body, "export default panel;" if default else ""])
    )


def slim(text: str) -> str:
    """Remove indentation, empty lines and comment lines; text between backticks stays unchanged."""
    lines, is_quoted = [], False
    for line in text.splitlines():
        stripped = line if is_quoted else line.strip()
        if is_quoted or (stripped and not stripped.startswith("//")):
            lines.append(stripped)
        is_quoted ^= line.count("`") % 2 == 1
    return "\n".join(lines) + "\n"


def slim_style(text: str) -> str:
    """Remove comments and the spaces that a style sheet does not need; those in values stay."""
    text = SPACES.sub(r"\1", COMMENT.sub("", text).strip())
    return re.sub(r":\s+", ":", text).replace(";}", "}") + "\n"


def nested(style: str, panel: str) -> str:
    """All rules within one for the panel, instead of its selector before each of a thousand."""
    inner = re.sub(r"(^|[{},;]\s*)\.pf-panel (?=\S)", r"\1", style, flags=re.M)
    return f"{panel}{{{inner.replace('.pf-panel', '&').strip()}}}\n"


@dataclass
class _Modules:
    """The modules read so far, by their variable, each as one statement."""

    root: Path
    scopes: dict[str, str] = field(default_factory=dict)

    def body(self, text: str, folder: Path) -> str:
        """A module's statements with its imports as constants; adds the imported modules first."""
        imports = [
            f"const {{ {_destructured(names)} }} = {self._add(folder, target)};\n"
            for names, target in IMPORT.findall(text)
        ]
        statements = EXPORT.sub(r"\1\2", IMPORT.sub("", text))
        return "".join(imports) + CAST.sub("", COMMENT.sub("", statements))

    def _add(self, folder: Path, target: str) -> str:
        """The variable of a module; reads the module at its first import."""
        path = Path(os.path.normpath(folder / target))
        parts = path.relative_to(self.root).with_suffix("").parts
        variable = "$" + "$".join(re.sub(r"\W", "_", part) for part in parts)
        if variable not in self.scopes:
            text = path.read_text(encoding="utf-8")
            body = self.body(text, path.parent)
            exports = ", ".join(name for _, name in EXPORT.findall(text))
            ending = f"return {{ {exports} }};"
            self.scopes[variable] = f"const {variable} = (() => {{\n{body}{ending}\n}})();"
        return variable


@cache
def _front_end(view: str, known: tuple[Section, ...]) -> tuple[str, str]:
    style = _style()
    style_class = _style_name(style)
    in_workbench = [section for section in known if section.title] if view == "workbench" else []
    charts = {section.name: section for section in known if section.chart}
    imports = [
        f'import {{ {camel(name)} }} from "./{name}/index.js";'
        for name in (view, *(section.name for section in in_workbench))
        if name not in charts
    ]
    if view in charts or any(section.chart for section in in_workbench):
        imports.append('import { pictureView } from "./shared/picture_view.js";')
    panel = _made(charts[view]) if view in charts else camel(view)
    if view == "workbench":
        panel = f"{panel}([{', '.join(_entry(section) for section in in_workbench)}])"
    entry = [
        'import { rendering } from "./shared/rendering.js";',
        *imports,
        f'export default {{ render: rendering({panel}, "{style_class}") }};',
    ]
    module = linked("\n".join(entry) + "\n", asset("widgets"))
    return module, nested(style, f".pf-panel.{style_class}")


def camel(view: str) -> str:
    """The exported function of a view's module: `sideBySide` of `side_by_side`."""
    first, *others = view.split("_")
    return first + "".join(word.capitalize() for word in others)


def _entry(section: Section) -> str:
    """A section as a JavaScript object for the workbench's page: its declaration and its view."""
    facts = {
        "name": section.name,
        "title": section.title,
        "tab": section.tab or section.name,
        "place": section.place,
        "hint": section.hint,
        "isWide": not section.is_by_layer,
        "isAlwaysShown": section.is_always_shown,
    }
    return f"{{ ...{json.dumps(facts)}, make: {_made(section)} }}"


def _made(section: Section) -> str:
    """What makes a section's view: the function of its module, or that of a picture."""
    if section.chart is None:
        return camel(section.name)
    return f"pictureView({json.dumps(asdict(section.chart))})"


@cache
def _style() -> str:
    """The style sheets of all folders, those that others build on first."""
    root = asset("widgets")
    sheets = [root / name for name in FIRST_STYLES]
    shared = sorted((root / "shared").glob("*.css"))
    ordered = dict.fromkeys([*sheets, *shared, *sorted(root.glob("*/*.css"))])
    return slim_style("\n".join(sheet.read_text(encoding="utf-8") for sheet in ordered))


def _style_name(style: str) -> str:
    return f"pf-{blake2s(style.encode(), digest_size=3).hexdigest()}"


def _destructured(names: str) -> str:
    """An import list as an object pattern: `a, b as c` → `a, b: c`."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return ", ".join(re.sub(r"\s+as\s+", ": ", name) for name in listed)
