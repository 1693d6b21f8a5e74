"""The copies of notebooks that are executed differ from them by fewer seconds and rounds alone."""

from __future__ import annotations

import ast
import fnmatch
from types import SimpleNamespace

import nbformat
import pytest

import paifuser_lab as lab
from paifuser_lab.records import GenerationRow, Measurement
from tests.support.quick_notebooks import AT_MOST, NAMED, NOTEBOOKS, main


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    (folder / "removed.ipynb").write_text("of a notebook that is no longer there")
    main(folder)
    return folder


def test_every_notebook_has_a_copy_and_nothing_else_has(copies):
    names = {path.name for path in NOTEBOOKS.glob("*.ipynb")}
    assert {path.name for path in copies.iterdir()} == names
    assert NAMED.keys() <= {name.removesuffix(".ipynb") for name in names}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_copy_has_the_same_cells_and_lower_parameters(path, copies):
    before, after = (nbformat.read(one, as_version=4) for one in (path, copies / path.name))
    changed = [
        (old.source.splitlines(), new.source.splitlines())
        for old, new in zip(before.cells, after.cells, strict=True)
        if old != new
    ]
    bounds = AT_MOST | NAMED.get(path.stem, {})
    for old_lines, new_lines in changed:
        for old, new in zip(old_lines, new_lines, strict=True):
            name, value = new.split(" = ")
            assert old == new or (old.split(" = ")[0] == name and float(value) == bounds[name])
            assert name not in bounds or float(value) <= float(old.split(" = ")[1])
    (given,) = (one.source for one in before.cells if "parameters" in one.metadata.get("tags", ()))
    has_budget = any(line.split(" = ")[0] in bounds for line in given.splitlines())
    assert len(changed) == has_budget


def test_a_notebook_shows_no_mark_of_a_test_and_its_facts_are_checked_by_tag():
    checked = 0
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert not any("NBVAL" in cell.source for cell in cells), path.name
        checked += sum("nbval-check-output" in cell.metadata.get("tags", ()) for cell in cells)
    assert checked > 20


def test_the_language_notebook_saves_what_it_measured_before_it_tries_what_may_be_refused():
    cells = nbformat.read(NOTEBOOKS / "90_language.ipynb", as_version=4).cells
    place = lambda word: next(at for at, cell in enumerate(cells) if word in cell.source)
    may_refuse = [place("lab.speculate("), place("lab.export(")]
    assert place("done = ") + 1 == place("done.save") < min(may_refuse)
    assert all("except lab.PaifuserError" in cells[at].source for at in may_refuse)


def test_the_language_notebook_says_why_an_engine_wrote_no_text(capsys):
    cells = nbformat.read(NOTEBOOKS / "90_language.ipynb", as_version=4).cells
    (cell,) = (cell.source for cell in cells if "row.same_tokens" in cell.source)
    row = GenerationRow(name="net", engine="llama.cpp", threads=1, failure="it has no file")
    exec(cell, {"done": SimpleNamespace(rows=[row]), "new_tokens": 4})
    assert capsys.readouterr().out == "net · llama.cpp: it has no file\n"


def test_the_attention_notebook_asks_the_workload_what_a_layer_loses_of_the_metric():
    cells = nbformat.read(NOTEBOOKS / "60_attention.ipynb", as_version=4).cells
    (cell,) = (cell.source for cell in cells if "unharmed = " in cell.source)
    metrics = {"baseline": 1.0, "better": 0.9, "worse": 1.1, "failed": None}
    known = {"workload": "net", "machine": "m", "baseline": "baseline", "rounds": 1}
    rows = tuple(Measurement(name=name, threads=1, metric=value) for name, value in metrics.items())
    given = {"measured": lab.Comparison(rows=rows, **known), "least": 0.1, "metric_drop": 0.02,
             "alone": ["better", "worse", "failed"],
             "work": SimpleNamespace(metric_lost=lambda before, now: now - before)}  # fmt: skip
    exec(cell, given)
    assert given["unharmed"] == ["better"]


def test_the_pruning_notebook_goes_on_where_a_network_has_no_block_to_leave_out(capsys):
    cells = nbformat.read(NOTEBOOKS / "30_prune.ipynb", as_version=4).cells
    (cell,) = (cell.source for cell in cells if "shorten" in cell.source and "lab." in cell.source)
    exec(cell, {"lab": lab, "work": lab.load("unet-tiny")})
    assert "no block of it can be left out" in capsys.readouterr().out


def test_a_notebook_about_any_model_names_no_layer_of_its_example():
    layers = [name for name, _ in lab.load("resnet18-tiny").model.named_modules() if name]
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        if not any('model = "resnet18' in source for source in code):
            continue
        constants = [node for source in code for node in ast.walk(ast.parse(source))]
        words = [node.value for node in constants if isinstance(node, ast.Constant)]
        named = [word for word in words if isinstance(word, str) and fnmatch.filter(layers, word)]
        assert not named, path.name
