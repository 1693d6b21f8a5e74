"""Notebooks run by papermill: whole results or none."""

from __future__ import annotations

import errno
import os
import re

import nbformat
import pytest

import paifuser_lab as lab
from paifuser_lab._files import asset, replace_folder, staged
from paifuser_lab.cli import notebook as batch
from paifuser_lab.cli.notebook import run_notebook, stage_of
from paifuser_lab.errors import FileError, PaifuserError
from paifuser_lab.model.weights import load_weights, weights_hash
from tests.support.quick_notebooks import small_notebook

COMPRESS = asset("notebooks/50_compress.ipynb")
RECIPE = lab.Recipe(["fold", {"precision": {"layers": {"fc": "bf16"}}}])


def notebook_in(folder, *cells):
    return small_notebook(folder / "small.ipynb", 'out = ""\nword = "a"', *cells)


@pytest.fixture
def pretend_papermill(monkeypatch):
    """Replace papermill by a function that writes the output."""

    def install(action):
        monkeypatch.setattr(
            batch,
            "_execute",
            lambda notebook, output, parameters, on_stage: action(output, parameters),
        )

    return install


def test_the_compression_notebook_gives_the_same_weights_as_applying_the_recipe(tmp_path):
    parameters = {"model": "resnet18-tiny", "recipe": RECIPE.to_text(), "rounds": 2, "seconds": 1.0}
    out = run_notebook(COMPRESS, tmp_path / "out", parameters)
    saved = {"recipe.yaml", "structure.json", "weights.safetensors", "report.json", "manifest.json"}
    assert {path.name for path in out.iterdir()} == {"50_compress.ipynb", "model.onnx", *saved}
    assert lab.Recipe.load(out / "recipe.yaml") == RECIPE
    variant = lab.apply(lab.load("resnet18-tiny"), RECIPE)
    assert lab.Comparison.load(out / "report.json").rows[-1].weights_hash == variant.weights_hash
    assert weights_hash(lab.load(out).model) == variant.weights_hash
    other = lab.apply(lab.load("resnet18-tiny", seed=1), RECIPE).module
    load_weights(other, out / "weights.safetensors")
    assert weights_hash(other) == variant.weights_hash


def test_a_compressed_model_that_onnx_does_not_take_is_kept_without_that_file(tmp_path):
    recipe = lab.Recipe([{"precision": {"default": "amp-bf16"}}])
    parameters = {"model": "resnet18-tiny", "recipe": recipe.to_text(), "rounds": 2, "seconds": 1.0}
    out = run_notebook(COMPRESS, tmp_path / "out", parameters)
    names = {path.name for path in out.iterdir()}
    assert {"report.json", "weights.safetensors"} <= names and "model.onnx" not in names
    assert "no model.onnx: ONNX export failed" in (out / COMPRESS.name).read_text()


def test_an_error_in_a_cell_is_reported_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PAIFUSER_STATIC", raising=False)
    notebook = notebook_in(
        tmp_path,
        "open(f'{out}/report.json', 'w').write('half')",
        "raise ValueError('the loss is NaN')",
    )
    with pytest.raises(
        PaifuserError, match=r"small.ipynb failed in cell 4: ValueError: the loss is NaN"
    ):
        run_notebook(notebook, tmp_path / "out", {"word": "b"})
    assert [path.name for path in tmp_path.iterdir()] == ["small.ipynb"]
    assert "PAIFUSER_STATIC" not in os.environ, "pictures are for the notebook's kernel alone"


def test_a_kernel_that_is_killed_is_reported_and_its_notebook_kept(tmp_path):
    notebook = notebook_in(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    kept = tmp_path / "kept.ipynb"
    with pytest.raises(PaifuserError, match=r"^small\.ipynb: its process was ended .* memory ran"):
        run_notebook(notebook, tmp_path / "out", {"word": "b"}, keep_failed=kept)
    assert "SIGKILL" in kept.read_text() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["wrod", "import os; x"])
def test_a_parameter_that_the_notebook_does_not_declare_is_refused(
    tmp_path, name, pretend_papermill
):
    pretend_papermill(lambda *_: pytest.fail("it ran"))
    with pytest.raises(PaifuserError, match="has no parameter"):
        run_notebook(notebook_in(tmp_path), tmp_path / "out", {name: 1})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("print(1)", "does not appear to be JSON"),
        ("[]", "'list' object"),
        (None, "No kernel name found"),
    ],
)
def test_a_file_that_is_no_notebook_is_refused_in_a_sentence(
    tmp_path, content, reason, pretend_papermill
):
    pretend_papermill(lambda *_: pytest.fail("it ran"))
    path = notebook_in(tmp_path)
    if content is None:
        content = path.read_text().replace("kernelspec", "other")
    path.write_text(content)
    with pytest.raises(FileError, match=rf"small\.ipynb is no notebook .*{reason}.*; save it"):
        run_notebook(path, tmp_path / "out", {})


def test_an_interrupted_run_leaves_no_folder(tmp_path, pretend_papermill):
    def interrupted(output, parameters):
        output.write_text("half")
        raise KeyboardInterrupt

    pretend_papermill(interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_notebook(notebook_in(tmp_path), tmp_path / "out", {})
    assert [path.name for path in tmp_path.iterdir()] == ["small.ipynb"]


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (errno.ENOSPC, FileError, "No space left on device; free some space there"),
        (errno.ECONNREFUSED, ConnectionRefusedError, "Connection refused"),
    ],
)
def test_a_full_disk_is_said_and_another_error_is_not_taken_for_one(
    number, error, message, tmp_path, pretend_papermill
):
    def failing(output, parameters):
        raise OSError(number, os.strerror(number))

    pretend_papermill(failing)
    with pytest.raises(error, match=message):
        run_notebook(notebook_in(tmp_path), tmp_path / "out", {})


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path, pretend_papermill):
    pretend_papermill(lambda output, parameters: output.write_text("whole"))
    with staged(tmp_path / "out") as stage:
        leftover = stage.with_name(f"{stage.name}x")  # without a lock: its process is gone
        leftover.mkdir()
        run_notebook(notebook_in(tmp_path), tmp_path / "out", {})
        assert stage.exists() and not leftover.exists(), "a run that goes on keeps its own"


def test_a_run_leaves_the_stage_of_another_whose_long_name_begins_alike(tmp_path):
    with staged(tmp_path / f"{'a' * 45}0") as stage:
        saved = tmp_path / "saved"
        saved.mkdir()
        replace_folder(saved, stage)  # as a variant that the notebook saves: without a lock
        with staged(tmp_path / f"{'a' * 45}1"):
            assert stage.exists()


def test_an_earlier_run_is_replaced_completely_and_other_folders_are_not(
    tmp_path, pretend_papermill
):
    notebook, out = notebook_in(tmp_path), tmp_path / "out"
    pretend_papermill(lambda output, parameters: (output.parent / "report.json").write_text("{}"))
    run_notebook(notebook, out, {})
    (out / "left over").write_text("")
    with pytest.raises(FileError, match="not empty; give --force"):
        run_notebook(notebook, out, {})
    run_notebook(notebook, out, {}, replace=True)
    assert [path.name for path in out.iterdir()] == ["report.json"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(FileError, match="does not look like an earlier run"):
        run_notebook(notebook, tmp_path / "mine", {}, replace=True)


def test_a_run_that_wrote_no_report_is_replaced_too(tmp_path, pretend_papermill):
    notebook, out = notebook_in(tmp_path), tmp_path / "out"
    pretend_papermill(lambda output, parameters: output.write_text("{}"))
    run_notebook(notebook, out, {})
    (out / "left over").write_text("")
    run_notebook(notebook, out, {}, replace=True)
    assert [path.name for path in out.iterdir()] == ["small.ipynb"]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path, pretend_papermill
):
    pretend_papermill(lambda *_: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="choose a folder you can write to"):
        run_notebook(notebook_in(tmp_path), tmp_path / "file" / "out", {})
    with pytest.raises(FileError, match="is a file; give a folder"):
        run_notebook(notebook_in(tmp_path), tmp_path / "file", {})


def test_every_cell_that_did_something_is_reported_with_its_heading_and_seconds(tmp_path):
    path = notebook_in(
        tmp_path,
        "open(f'{out}/report.json', 'w').write('{}'); None",
        "print('fold: exact')",
        "for step in ('one', 'two'):\n    print(step)",
        "import sys; print('internals', file=sys.stderr)\n'chosen: ' + word",
        "object()",
    )
    written = nbformat.read(path, as_version=4)
    heading = "# A title\n\ntext\n\n## 2. The steps\n\nmore"
    written.cells.insert(2, nbformat.v4.new_markdown_cell(heading))
    nbformat.write(written, path)
    stages = []
    run_notebook(path, tmp_path / "out", {"word": "b"}, on_stage=stages.append)
    assert [(stage.title, stage.lines) for stage in stages] == [
        ("2. The steps", ("fold: exact",)),
        ("2. The steps", ("one", "two")),
        ("2. The steps", ("'chosen: b'",)),
    ]
    assert re.fullmatch(r"2\. The steps · fold: exact · \d+\.\d s", str(stages[0]))
    assert re.fullmatch(r"2\. The steps · \d+\.\d s\n  one\n  two", str(stages[1]))


def test_a_cell_that_prints_nothing_is_reported_where_it_took_long() -> None:
    cell = nbformat.v4.new_code_cell("train()")
    for seconds, line in ((0.2, None), (70.0, "Training · 70.0 s")):
        cell.metadata.papermill = {"duration": seconds}
        stage = stage_of([nbformat.v4.new_markdown_cell("## Training"), cell], cell)
        assert (stage and str(stage)) == line
