"""A function that a file names is code: it is called only if the user trusts the file, or if no new
code is run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.cli import notebook as batch
from paifuser_lab.errors import FileError, UnknownModelError, WorkloadError
from paifuser_lab.records import Comparison, Measurement, Origin
from paifuser_lab.variant import trust

EVIL = """
from pathlib import Path
Path("imported").touch()
import torch
from os import getcwd as borrowed
def make():
    Path("called").touch()
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2), torch.ones(1, 3)
layer = torch.nn.Linear(3, 2)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module that writes one file when it is imported and another when
    it is called.
    """
    (tmp_path / "evil_net.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] in {"evil_net", "failing_net", "plug_in_net"}
    ]:
        del sys.modules[name]


def saved_from(name: str, folder: Path, **options: Any) -> Path:
    """A valid folder whose file says that this name created its model."""
    torch.manual_seed(0)
    work = lab.Workload(nn.Linear(3, 2), torch.ones(1, 3), name="line")
    work.origin = Origin(name=name, batch=1, seed=0, options=options)
    lab.apply(work, lab.Recipe([])).save(folder)
    return folder


@pytest.mark.parametrize("how", ["lab.load", "Variant.load"])
def test_a_function_that_a_folder_names_is_called_only_with_trust(how: str, here: Path) -> None:
    load: Any = {"lab.load": lab.load, "Variant.load": lab.Variant.load}[how]
    folder = saved_from("evil_net:make", here / "mine")
    with pytest.raises(FileError, match=r"names 'evil_net:make'.* trust=True.* --trust"):
        load(folder)
    assert not (here / "imported").exists() and "evil_net" not in sys.modules
    load(folder, trust=True)
    assert (here / "called").exists()


def test_the_original_itself_needs_no_trust(here: Path) -> None:
    folder = saved_from("evil_net:make", here / "mine")
    torch.manual_seed(0)
    assert lab.load(
        folder, work=lab.Workload(nn.Linear(3, 2), torch.ones(1, 3))
    ).output().shape == (1, 2)
    assert not (here / "imported").exists()


def test_the_name_in_a_folders_recipe_needs_trust_too(here: Path) -> None:
    torch.manual_seed(0)
    work = lab.Workload(nn.Linear(3, 2), torch.ones(1, 3))
    lab.apply(work, lab.Recipe([], workload="evil_net:make")).save("mine")
    with pytest.raises(FileError, match="names 'evil_net:make'"):
        lab.load(Path("mine"))
    assert not (here / "imported").exists()


def test_a_typed_name_needs_no_trust(here: Path) -> None:
    assert lab.load("evil_net:make").output().shape == (1, 2)


def test_an_imported_module_of_the_users_is_followed(here: Path) -> None:
    folder = saved_from("evil_net:make", here / "mine")
    lab.load("evil_net:make")
    (here / "called").unlink()
    seen: list[list[str]] = []
    real = sys.modules["evil_net"].make
    sys.modules["evil_net"].make = lambda: seen.append(list(sys.path)) or real()  # type: ignore[attr-defined]
    sys.modules["evil_net"].make.__module__ = "evil_net"
    assert lab.load(folder).output().shape == (1, 2)
    assert (here / "called").exists() and str(here) not in seen[0]


def test_a_file_of_code_is_followed_where_it_is_imported_already(here: Path) -> None:
    folder = saved_from("evil_net.py:make", here / "mine")
    with pytest.raises(FileError, match=r"names 'evil_net\.py:make'.* trust=True"):
        lab.load(folder)
    assert not (here / "imported").exists()
    lab.load("evil_net.py:make")
    assert lab.load(folder).output().shape == (1, 2)
    other = saved_from("elsewhere/evil_net.py:make", here / "other")
    with pytest.raises(FileError, match="names 'elsewhere/evil_net"):
        lab.load(other)


def test_a_function_of_the_notebook_itself_is_followed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    exec(
        "import torch\ndef make():\n    torch.manual_seed(0)\n    return torch.nn.Linear(3, 2), "
        "torch.ones(1, 3)",
        vars(notebook),
    )
    assert lab.load(saved_from("__main__:make", here / "mine")).output().shape == (1, 2)


@pytest.mark.parametrize(
    "name",
    [
        "os:abort",  # Python's own, imported already
        "os:system",
        "posix:abort",
        "pytest:main",  # installed, imported already
        "torch:seed",
        "no_such_module:__class__",
        "evil_net:borrowed",  # the user's own module, and a function from elsewhere
        "paifuser_lab.cli.program:main",  # our own, and no maker of a workload
        "paifuser_lab.cli.program:models",
    ],
)
def test_imported_functions_that_create_no_model_are_not_called(name: str, here: Path) -> None:
    __import__("paifuser_lab.cli.program")
    sys.path.insert(0, str(here))
    __import__("evil_net")
    with pytest.raises(FileError, match=f"names '{name}'"):
        lab.load(saved_from(name, here / "mine"))


def test_a_standard_library_function_is_not_called_even_with_trust(
    here: Path,
) -> None:
    with pytest.raises(FileError, match="'os:abort' is Python's own"):
        lab.load(saved_from("os:abort", here / "mine"), trust=True)


@pytest.mark.parametrize("name", ["os:system", "os:abort", "posix:abort", "builtins:dict"])
def test_a_standard_library_function_is_refused(name: str) -> None:
    with pytest.raises(UnknownModelError, match=f"'{name}' is Python's own and makes no model"):
        lab.load(name)


def test_a_failing_function_is_reported(here: Path) -> None:
    (here / "failing_net.py").write_text(
        "def make(width):\n    raise RuntimeError('no such width')\n"
    )
    with pytest.raises(
        WorkloadError, match=r"'failing_net:make' fails .*RuntimeError: no such width"
    ):
        lab.load("failing_net:make", width=3)
    with pytest.raises(WorkloadError, match=r"'failing_net:make' fails .*TypeError: .*width"):
        lab.load("failing_net:make")


class _Entry:
    """An entry point of another package."""

    module = "plug_in_net.steps"


PLUG_IN = """
import torch
from paifuser_lab import Workload
def make() -> Workload:
    torch.manual_seed(0)
    return Workload(torch.nn.Linear(3, 2), torch.ones(1, 3))
def careless():
    raise SystemExit("called")
"""


def test_an_installed_plug_in_is_followed_where_it_declares_a_workload(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "elsewhere" / "plug_in_net").mkdir(parents=True)
    (here / "elsewhere" / "plug_in_net" / "__init__.py").touch()
    (here / "elsewhere" / "plug_in_net" / "models.py").write_text(PLUG_IN)
    sys.path.append(str(here / "elsewhere"))
    folder = saved_from("plug_in_net.models:make", here / "mine")
    with pytest.raises(FileError, match="names 'plug_in_net"):
        lab.load(folder)
    monkeypatch.setattr(
        trust, "entry_points", lambda group: [_Entry] if group == "paifuser_lab.steps" else []
    )
    assert lab.load(folder).output().shape == (1, 2)
    monkeypatch.delitem(sys.modules, "plug_in_net.models")
    with pytest.raises(FileError, match=r"names 'plug_in_net\.models:careless'"):
        lab.load(saved_from("plug_in_net.models:careless", here / "other"))


def test_an_option_in_a_file_that_names_a_hub_kernel_is_refused(here: Path) -> None:
    pytest.importorskip("transformers")
    folder = saved_from("hf:bert", here / "mine", attn_implementation="somebody/kernel")
    with pytest.raises(FileError, match=r"attn_implementation='somebody/kernel'.* trust=True"):
        lab.load(folder)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The parameters of each notebook that would be run."""
    parameter_sets: list[dict[str, Any]] = []

    def run_notebook(
        notebook: Path, out: Path, parameters: dict[str, Any], *, replace: bool, on_stage: Any
    ) -> Path:
        parameter_sets.append(parameters)
        batch.check_parameters(notebook, parameters)
        row = Measurement(name="baseline", threads=1)
        report = Comparison(workload="w", machine="m", baseline=row.name, rounds=1, rows=(row,))
        out.mkdir(exist_ok=True)
        report.save(out / "report.json")
        return out

    monkeypatch.setattr(batch, "run_notebook", run_notebook)
    return parameter_sets


def test_a_recipes_workload_needs_trust_and_a_typed_model_does_not(
    here: Path, command: Any, runs: list[dict[str, Any]]
) -> None:
    lab.Recipe(["fold"], workload="evil_net:make").save("recipe.yaml")
    code, _, error = command("run", "recipe.yaml", "--out", "out")
    assert code == 2
    assert "recipe.yaml names 'evil_net:make'" in error
    assert "--trust" in error
    assert not runs
    assert command("run", "recipe.yaml", "--out", "out", "--trust")[0] == 0
    assert command("run", "recipe.yaml", "--out", "out", "--model", "evil_net:make")[0] == 0
    assert [(run["model"], run["trust"]) for run in runs] == [
        ("evil_net:make", True),
        ("evil_net:make", False),
    ]
    assert not (here / "imported").exists()


def test_a_planned_recipe_is_run_by_the_name_that_its_workload_was_loaded_by(
    here: Path, command: Any, runs: list[dict[str, Any]]
) -> None:
    for name, more in {"evil_net.py:make": (), "evil_net:layer": ("--input", "1x3")}.items():
        planned = command("plan", name, *more, "--seconds", 0, "--save", "rec.yaml")
        assert planned[0] == 0, planned[2]
        code, _, error = command("run", "rec.yaml", "--out", "out", "--trust")
        assert code == 0, error
    assert [run["model"] for run in runs] == ["evil_net.py:make", "evil_net:layer@1x3"]
    lab.Recipe(["fold"], workload="pair").save("rec.yaml")
    code, _, error = command("run", "rec.yaml", "--out", "out")
    assert code == 2 and "rec.yaml is for 'pair', which is no name to load a model by" in error
    alone = ("plan", "evil_net.py", "--input", "1x3", "--seconds", 0)
    assert "name what in it makes the model, such as evil_net.py:make" in command(*alone)[2]
    assert command(*alone, "--trust")[0] == 0
    code, _, error = command("plan", "resnet18-tiny", "--input", "1x3")
    assert code == 2 and "resnet18-tiny has inputs of its own" in error


def test_a_command_says_which_inputs_it_inferred(here: Path, command: Any) -> None:
    code, _, error = command("plan", "evil_net:layer", "--seconds", 0)
    assert code == 0 and "layer: no inputs were given: 1×3 was inferred from Linear" in error


def test_commands_that_take_a_folder_need_trust(here: Path, command: Any) -> None:
    folder = saved_from("evil_net:make", here / "mine")
    for arguments in (["plan", folder, "--seconds", "0"], ["profile", folder, "--seconds", "1"]):
        code, _, error = command(*arguments)
        assert code == 2 and "--trust" in error and not (here / "imported").exists()
    assert command("plan", folder, "--seconds", "0", "--trust")[0] == 0


def test_the_current_folder_is_on_a_commands_path_only_for_a_trusted_name(
    here: Path, command: Any
) -> None:
    command("models")
    assert str(here) not in sys.path
    command("plan", "evil_net:make", "--seconds", "0")
    assert str(here) in sys.path


def test_a_sweep_passes_trust_to_its_notebooks(
    here: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paifuser_lab.cli import sweep as sweeping

    sweeps: list[dict[str, Any]] = []
    monkeypatch.setattr(
        sweeping,
        "sweep",
        lambda path, values, *rest, **options: sweeps.append(values) or sys.exit(0),
    )
    command("sweep", "50_compress.ipynb", "-p", "model=mine", "--out", "out", "--trust")
    command("sweep", "50_compress.ipynb", "-p", "model=mine", "--out", "out")
    assert sweeps == [{"model": ["mine"], "trust": [True]}, {"model": ["mine"]}]
