"""The linker bundles front-end modules into one, and leaves no syntax that it does not support."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest

from paifuser_lab.widgets.linker import front_end, linked, nested, slim_style
from paifuser_lab.widgets.panel import Panel
from paifuser_lab.widgets.section import sections
from tests.support.node import printed_by_node

# A server elsewhere may be reached at 10 Mbit/s, and a notebook's connection is not compressed:
# this long a page waits for the code and style of a panel before it can draw anything.
BYTES_PER_S = 10e6 / 8
MAX_WORKBENCH_S, MAX_PANEL_S = 0.43, 0.2


@pytest.fixture
def write(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.js").write_text(text)
        return files["index"], tmp_path

    return write


def test_an_imported_module_is_included_once_before_its_importers(write):
    entry = write(
        index='import { b } from "./b.js";\nimport {\n  a,\n} from "./a.js";\n'
        "export default { b, a };\n",
        b='import { a } from "./a.js";\nexport function b() { return a; }\n',
        a='/** @param {import("./b.js").B} x */\nexport const a = 1;\n',
    )
    module = linked(*entry)
    assert module.count("const a = 1;") == 1 and module.index("const a") < module.index(
        "function b"
    ) < module.index("export default")
    assert "\nimport" not in module and "export function" not in module


def test_modules_can_share_private_names_and_rename_imports(tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "index.js").write_text(
            f'const name = "{folder}";\n'
            "function full() {\n  return `the ${name}`;\n}\n"
            "export function view() {\n  return full();\n}\n"
        )
    entry = (
        'import { view } from "./one/index.js";\n'
        'import { view as second } from "./other/index.js";\n'
        "export default [view(), second()];\n"
    )
    program = f"{linked(entry, tmp_path)}\nconsole.log(JSON.stringify(panel));\n"
    assert printed_by_node(program, tmp_path) == ["the one", "the other"]


@pytest.mark.parametrize("view", ["workbench", *(section.name for section in sections()), "recipe"])
def test_the_front_end_of_a_view_is_one_module_without_imports_or_urls(view):
    module, style = front_end(view)
    left_over = re.search(r"^(?:import\b(?!\s*[(:,.])|export\b(?! default|\s*[:,.]))", module, re.M)
    assert module.count("export default") == 1 and left_over is None, "write import { name } from"
    for forbidden in (
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "http://",
        "https://",
        "@import",
        "url(",
    ):
        allowed = "http://www.w3.org/2000/svg" if forbidden == "http://" else ""
        assert forbidden not in (module + style).replace(allowed, ""), forbidden
    seconds = len((module + style).encode()) / BYTES_PER_S
    assert seconds < (MAX_WORKBENCH_S if view == "workbench" else MAX_PANEL_S), (
        "it is sent for every panel"
    )


def test_a_style_applies_only_to_panels_of_its_own_version():
    module, style = front_end("workbench")
    name = Panel("hardware")._anywidget_id
    assert f'"{name}") }}' in module
    depths = list(accumulate((letter == "{") - (letter == "}") for letter in style.strip()))
    assert style.startswith(f".pf-panel.{name}{{") and depths.index(0, len(name) + 12) + 1 == len(
        depths
    ), "one rule holds all others"


@pytest.mark.parametrize(
    ("selector", "within"),
    [
        (".pf-panel .a, .pf-panel > .b", ".a, > .b"),
        (".pf-panel", "&"),
        (".dark .pf-panel .a", ".dark & .a"),
        ("@container (width > 1px){.pf-panel .a", "@container (width > 1px){.a"),
    ],
)
def test_a_selector_is_written_once_for_all_rules(selector, within):
    assert nested(selector + "{top:0}", ".p") == f".p{{{within}{{top:0}}}}\n"


def test_a_style_loses_its_comments_and_spaces_and_keeps_what_values_need():
    text = """
/* A comment
   of two lines. */
.pf-panel .a, .pf-panel .b:hover > i::before {
  margin: calc(1px + 2px) 3px; content: "";
}
@container (max-width: 679px) { .pf-panel .a { color: var(--x, #fff); } }
"""
    assert slim_style(text) == (
        '.pf-panel .a, .pf-panel .b:hover > i::before{margin:calc(1px + 2px) 3px;content:""}'
        "@container (max-width:679px){.pf-panel .a{color:var(--x, #fff)}}\n"
    )
