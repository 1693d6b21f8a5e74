"""Front-end modules are joined to one, and what the linker does not understand is refused by
name.
"""

from __future__ import annotations

import re

import pytest

from paifuser_lab.errors import FileError
from paifuser_lab.widgets import VIEWS
from paifuser_lab.widgets.linker import front_end, linked
from paifuser_lab.widgets.panel import Panel


@pytest.fixture
def write(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.js").write_text(text)
        return files["index"], tmp_path

    return write


def test_what_is_imported_stands_once_and_before_whoever_needs_it(write):
    entry = write(
        index='import { b } from "./b.js";\nimport {\n  a,\n} from "./a.js";\nexport default { b, a };\n',
        b='import { a } from "./a.js";\nexport function b() { return a; }\n',
        a='/** @param {import("./b.js").B} x */\nexport const a = 1;\n',
    )
    whole = linked(*entry)
    assert whole.count("const a = 1;") == 1 and whole.index("const a") < whole.index(
        "function b"
    ) < whole.index("export default")
    assert "\nimport" not in whole and "export function" not in whole


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"index": 'import { a } from "./none.js";\n'}, "The panel needs none.js"),
        (
            {"index": 'import { a as b } from "./a.js";\n', "a": ""},
            "renames what it imports from a.js",
        ),
        ({"index": 'import a from "./a.js";\n', "a": ""}, "cannot be linked"),
        (
            {
                "index": 'import { a } from "./a.js";\n',
                "a": 'import { b } from "./b.js";\n',
                "b": 'import { a } from "./a.js";\n',
            },
            "itself",
        ),
        (
            {
                "index": 'import { a } from "./a.js";\n',
                "a": 'import { b } from "./b.js";\nconst one = 2;\n',
                "b": "const one = 1;\n",
            },
            "one is defined in b.js and in a.js",
        ),
        ({"index": 'import { a } from "./a.js";\n', "a": "export { a };\n"}, "cannot be linked"),
    ],
)
def test_what_cannot_be_linked_is_told_in_a_sentence(write, files, sentence):
    with pytest.raises(FileError, match=sentence):
        linked(*write(**files))


@pytest.mark.parametrize("view", ["workbench", *VIEWS.values(), "recipe"])
def test_the_front_end_of_a_view_is_one_module_that_asks_for_nothing(view):
    module, style = front_end(view)
    assert module.count("export default") == 1 and not re.search(r"^import\b", module, re.M)
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
    assert len(module) < 280_000, "it is sent for every panel"


def test_a_style_reaches_and_replaces_only_panels_of_its_own_version():
    module, style = front_end("workbench")
    name = Panel("hardware")._anywidget_id
    assert f'rendering(workbench, "{name}")' in module
    rules = re.sub(r"@(?:media|container)[^{]*", "", style)
    selectors = re.findall(r"(?:^|[{}])\s*([^{}@\s][^{}@]*?)\s*(?=\{)", rules)
    assert (
        len(selectors) > 300 and [one for one in selectors if f".pf-panel.{name}" not in one] == []
    )
