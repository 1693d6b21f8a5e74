"""The structure of the project: bands, weight, public names, packaging."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

import paifuser_lab
from tests.support.durations import SECONDS
from tests.support.house import BAND_OF, BELOW

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "paifuser_lab"
TESTS = ROOT / "tests"

# A change that needs more raises the number, and its commit says why.
MOST_LINES = {"paifuser_lab": 100_096, "benchmarks": 9_712, "tests": 72_386, "widgets": 15_043}
MOST_FILES, MOST_ROOMS, MOST_FLOORS = 643, 36, 15
MOST_ROOMS_KNOWN = {"session": 5, "cli": 16}
NEVER = {"views": {"torch", "cupy"}, "widgets": {"torch", "cupy"}, "records": {"torch", "cupy"}}
OPTIONAL = {
    "ai_edge_litert", "av", "coremltools", "cupy", "executorch", "hls4ml", "litert_torch",
    "openvino", "pyarrow", "ray", "tensorboard", "torch_tb_profiler", "transformers",
}  # fmt: skip


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports_of(path: Path) -> list[tuple[str, bool]]:
    """Every module that a file imports, as a dotted name, and whether at the top level."""
    package = ["paifuser_lab", *path.relative_to(PACKAGE).parts[:-1]]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(ast.iter_child_nodes(tree))
    imports: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, node in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [module] if node.module else [f"{module}.{alias.name}" for alias in node.names]
            imports += [(name, node in top) for name in names]
    return imports


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down_only(path):
    room = room_of(path)
    assert room in BAND_OF, f"{room} has no band; give it one in BANDS"
    for name, _ in imports_of(path):
        parts = name.split(".")
        if parts[0] != "paifuser_lab" or len(parts) < 2 or parts[1] == room:
            continue
        assert BAND_OF[parts[1]] in BELOW[BAND_OF[room]], (
            f"{path.relative_to(ROOT)} imports {name}, which is in a higher band"
        )


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_optional_packages_are_imported_inside_functions_and_figures_do_not_import_torch(path):
    for name, is_top in imports_of(path):
        root = name.split(".")[0]
        assert root not in NEVER.get(room_of(path), set()), f"{path.name} imports {root}"
        assert not (is_top and root in OPTIONAL), (
            f"{path.name} imports the optional {root} at its top level"
        )


@cache
def known() -> dict[str, set[str]]:
    """Room → the rooms that its files import."""
    rooms: dict[str, set[str]] = {room: set() for room in BAND_OF}
    for path in sources():
        parts = [name.split(".") for name, _ in imports_of(path)]
        inside = {name[1] for name in parts if len(name) > 1 and name[0] == PACKAGE.name}
        rooms[room_of(path)] |= (inside & BAND_OF.keys()) - {room_of(path)}
    return rooms


def test_rooms_import_in_no_circle_and_stand_on_few_floors():
    floors: dict[str, int] = {}
    for room in TopologicalSorter(known()).static_order():
        floors[room] = 1 + max((floors[other] for other in known()[room]), default=0)
    assert max(floors.values()) <= MOST_FLOORS and len(floors) <= MOST_ROOMS


@pytest.mark.parametrize("room", MOST_ROOMS_KNOWN)
def test_a_room_knows_few_others(room):
    assert len(known()[room]) <= MOST_ROOMS_KNOWN[room], sorted(known()[room])


def tracked(folder: str) -> list[Path]:
    endings = {".py", ".js", ".css"}
    return [path for path in (ROOT / folder).rglob("*") if path.suffix in endings]


@pytest.mark.parametrize("folder", MOST_LINES)
def test_the_house_keeps_its_weight(folder):
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tracked(folder))
    assert lines <= MOST_LINES[folder]


def test_the_package_has_few_files():
    assert len(sources()) <= MOST_FILES


def test_the_package_docstring_of_steps_names_every_module_of_the_room():
    listed = re.findall(
        r"^(\w+)  +\S",
        (PACKAGE / "steps" / "__init__.py").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    modules = {path.stem for path in (PACKAGE / "steps").glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(modules)


def test_steps_never_import_each_other():
    for path in (PACKAGE / "steps").glob("*.py"):
        names = {
            name.removeprefix("paifuser_lab.steps.")
            for name, _ in imports_of(path)
            if name.startswith("paifuser_lab.steps.")
        }
        assert names <= {"step", "training_step"}, f"{path.name} imports {names}"


def test_all_lists_exactly_the_visible_names():
    modules = {path.stem for path in PACKAGE.iterdir()} | {
        "annotations",
        "os",
        "Any",
        "TYPE_CHECKING",
    }
    visible = {name for name in dir(paifuser_lab) if not name.startswith("_")} - modules
    assert visible == set(paifuser_lab.__all__)
    assert all(getattr(paifuser_lab, name) is not None for name in paifuser_lab.__all__)


def test_no_public_function_has_the_name_of_a_module():
    modules = {path.stem for path in PACKAGE.iterdir() if not path.stem.startswith("_")}
    assert not modules & set(paifuser_lab.__all__)


CONDA_NAMES = {
    "pytorch": "torch",
    "matplotlib-base": "matplotlib",
    "ray-default": "ray",
    "ray-serve": "ray[serve]",
    "python-build": "build",
    "playwright-python": "playwright",
    "pyyaml": "pyyaml",
}
MANUAL = {
    "gpu",
    "gpu12",
    "peers",
}  # extras that need a driver, or are only used in manual comparisons
PLAIN = re.compile(r"^([A-Za-z0-9_.\[\]-]+)\s*(.*)$")


def requirement(text: str) -> tuple[str, str]:
    match = PLAIN.match(text)
    assert match is not None
    name = match[1].lower()
    return CONDA_NAMES.get(name, name), match[2].strip()


def test_pyproject_and_environment_name_the_same_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    expected = {
        *project["dependencies"],
        *(text for extra, texts in extras.items() if extra not in MANUAL for text in texts),
    }
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    plain = [text for text in environment if isinstance(text, str)]
    from_pip = [text for entry in environment if isinstance(entry, dict) for text in entry["pip"]]
    listed = {requirement(text) for text in (*plain, *from_pip)} - {("pip", "")}
    assert listed == {requirement(text) for text in expected} | {
        ("python", project["requires-python"])
    }


def test_every_dependency_is_pinned_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    # torch's CUDA wheel pins NVRTC itself, to another version than a CPU machine may have
    free = MANUAL | {"kernels"}
    expected = {
        *project["dependencies"],
        *(text for extra, texts in extras.items() if extra not in free for text in texts),
    }
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert "torch==2.13.0" in lines
    names = {requirement(text)[0].partition("[")[0].replace("_", "-") for text in expected}
    assert names <= pinned


def test_no_files_of_a_room_import_each_other_in_a_circle():
    """Not even for types, so that each file can be read without the other."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources()
    }
    for room in BAND_OF:
        inside = {name: path for name, path in names.items() if name.split(".")[1:2] == [room]}
        known = {
            name: {module for module, _ in imports_of(path) if module in inside} - {name}
            for name, path in inside.items()
        }
        try:
            TopologicalSorter(known).prepare()
        except CycleError as circle:
            pytest.fail(" → ".join(circle.args[1]))


def test_the_package_s_top_holds_the_rooms_and_at_most_eight_files():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert len(files) <= 8, sorted(files)
    assert rooms | {name.removesuffix(".py") for name in files} - {"py.typed"} == set(BAND_OF)


TABLES_OF_CONTENTS = (
    "accelerate",
    "accelerate/switches",
    "records",
    "profiler",
    "profiler/checks",
    "views",
    "kernels",
    "importer",
    "importer/onnx",
    "importer/onnx/operators",
    "machine",
    "variant",
    "jobs",
    "session",
    "memory",
    "memory/snapshots",
    "memory/pools",
    "bench",
    "bench/kernels",
    "memory/predict",
    "planner/training",
    "training",
    "parallel",
)


@pytest.mark.parametrize("room", TABLES_OF_CONTENTS)
def test_a_package_s_docstring_names_each_of_its_modules(room):
    folder = PACKAGE / room
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"^(\w+) {2,}\S", docstring, re.MULTILINE))
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert named == modules | packages


def test_the_source_folders_are_no_packages():
    assert not [
        path
        for name in ("widgets", "kernels", "notebooks")
        for path in (ROOT / name).rglob("__init__.py")
    ]


def test_no_file_has_grown_into_two_ideas():
    long = {
        str(path.relative_to(ROOT)): count
        for path in sources()
        if (count := len(path.read_text().splitlines())) > 500
    }
    assert not long


def test_no_notebook_brings_a_widget_s_state():
    """A style of an earlier version in it would reach the panels of this one."""
    assert not [
        path.name
        for path in (ROOT / "notebooks").glob("*.ipynb")
        if "widgets" in json.loads(path.read_text())["metadata"]
    ]


def test_each_folder_of_tests_is_a_room_or_holds_what_crosses_rooms():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    folders = {path.name for path in TESTS.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders - rooms == {"benchmarks", "browser", "notebooks", "support"}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.stem)
def test_no_test_imports_a_test_and_none_edits_the_import_path(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    ]
    assert not [name for name in imported if re.search(r"(^|\.)test_", name)]
    # A test about `sys.path` may read and patch it in its own function.
    at_import = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    checked = tree.body if path.is_relative_to(TESTS / "support") else at_import
    assert not [
        node.lineno
        for statement in checked
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path"
    ]


def test_the_files_that_are_started_first_exist():
    assert not [name for name in SECONDS if not (ROOT / name).is_file()]
