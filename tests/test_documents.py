"""The code in README.md and docs/*.md runs page by page, and its commands and paths exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn

import paifuser_lab as lab
from benchmarks.__main__ import NAMES, benches
from benchmarks.pages import BLOCK as MEASURED
from benchmarks.pages import pages_of
from paifuser_lab.cli import program
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.records import quality
from paifuser_lab.zoo.language import save_example_text, save_tiny_llama
from tests.support.clips import clip

ROOT = Path(__file__).parent.parent


def name_of(page: Path) -> str:
    """A page's path in docs/; the name of one that is not there."""
    return page.as_posix().partition("/docs/")[2] or page.name


OTHERS = ("README.zh.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*pages_of(ROOT), *(ROOT / name for name in OTHERS)]
TEXTS = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
WITH_CODE = [name for name, text in TEXTS.items() if "```python" in text and ".zh." not in name]

# Small models instead of full ones, with fewer seconds, rounds and epochs; no code is left out.
SMALL = {
    'lab.load("resnet18")': 'lab.load("resnet18-tiny")',
    'lab.load("mobilenetv2", batch=8)': 'lab.load("mobilenetv2-tiny", batch=8)',
    'lab.load("resnet18-digits")': 'few_data(lab.load("resnet18-digits-tiny", trained=False))',
    '"segvit-maps"': '"segvit-tiny"',
    "lab.compare(work, variant)": "lab.compare(work, variant, rounds=2)",
    "lab.compare(work, recipe)": "lab.compare(work, recipe, rounds=2)",
    "lab.plan(work)": "lab.plan(work, seconds=0)",
    "lab.exporters(work)": 'lab.exporters(work, ["onnx"])',
    "lab.Workbench(work)": "lab.Workbench(work, rounds=2, seconds=0.2)",
    "metric_drop=0.01, seconds=60)": "metric_drop=0.01, seconds=3)",
    "lab.profile(work)": "lab.profile(work, runs=3, seconds=0.5)",
    "predicted=best)": "predicted=best, runs=3, seconds=0.5)",
    'batch_size(work, "4 GB")': 'batch_size(work, "4 GB", most=4, seconds=0.5)',
    "size_bytes=400_000)": "size_bytes=400_000, seconds=2.0)",
    "achieved(work, allocation)": (
        "achieved(work, allocation, points=[0], uniform=False, seconds=0.5)"
    ),
    'staircase(work, "layer3.0.conv1")': 'staircase(work, "layer3.0.conv1", seconds=0.5)',
    '{"to": {"parameters": 0.1}}': '{"to": {"parameters": 0.6}}',
    '"epochs": 3': '"epochs": 1',
    '"epochs": 12': '"epochs": 1',
    "rounds=3)": "rounds=1)",
    "find_rate(work)": "find_rate(work, steps=8)",
    'formats=("bf16",))': 'formats=("bf16",), seconds=0.5)',
    'lab.load("hf:SmolLM2-135M", text="notes.txt")': "tiny_llama()",
    "prompt_tokens=128, new_tokens=64": "prompt_tokens=8, new_tokens=4",
    "engines=engines)": "engines=engines, prompt_tokens=8, new_tokens=2, rounds=1)",
    "size_bytes=100e6": "seconds=2.0, size_bytes=100e6",
    '"replay", "llama.cpp", "openvino", "onnxruntime"]': '"replay"]',
    "int4, mixed))": "int4, mixed, prompt_tokens=8, new_tokens=2, rounds=1))",
    'kind="topk")': 'kind="topk", seconds=1.0)',
    "--rounds 5": "--rounds 1",
    'methods=("ablation",), seconds=30)': 'methods=("ablation",), seconds=2)',
    "narrow=narrow)": "narrow=narrow, rounds=2)",
    'backend": "onnxruntime"}))': 'backend": "onnxruntime"}, rounds=2))',
    "lab.profile(made.decode)": "lab.profile(made.decode, runs=3, seconds=0.5)",
    "int4.recipe))": "int4.recipe), rounds=2)",
    "lengths=(2, 4, 8)": "lengths=(2, 4, 8), rounds=2",
    "lab.profile(variant)": "lab.profile(variant, runs=3, seconds=0.5)",
    '"proof.html", seconds=5)': '"proof.html", seconds=0.5)',
    "lab.explain(work, variant)": "lab.explain(work, variant, runs=3, seconds=0.5)",
    'lab.load("yolo-streets")': 'few_data(lab.load("yolo-streets"))',
    'lab.load("resnet18-digits-tiny")  # with train': (
        'few_data(lab.load("resnet18-digits-tiny"))  # with train'
    ),
    'lab.compare(work, lab.Recipe(["fold"]))': 'lab.compare(work, lab.Recipe(["fold"]), rounds=2)',
    "--nnodes 2": "--nnodes 1",
    "--rdzv-endpoint host0:29500": "--rdzv-endpoint 127.0.0.1:0",
}

COMMAND = "(?:paifuser-lab|python -m benchmarks)"
BENCH = "(?:paifuser-lab bench|python -m benchmarks)"


class ReadersModel(nn.Module):
    """A stand-in for the reader's own model."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.wide(rows).relu())


def few_data(work: lab.Workload) -> lab.Workload:
    """Keep two batches for training and one for evaluation."""
    assert work.train is not None and work.test is not None
    work.train, work.test = work.train[:2], work.test[:1]
    return work


def tiny_llama() -> lab.Workload:
    """A language model in a folder, and a text."""
    return lab.load(
        f"hf:{save_tiny_llama(Path('./llama'))}",
        text=str(save_example_text(Path("notes.txt"), 6_000)),
    )


def own_names() -> dict[str, Any]:
    """The names that pages assume the reader has: a model, its data, and a training loop."""
    model = ReadersModel()
    loader = [(torch.randn(4, 8), torch.randint(3, (4,))) for _ in range(3)]

    def train_one_epoch() -> None:
        for rows, target in loader:
            nn.functional.cross_entropy(model(rows), target).backward()

    return {
        "model": model,
        "inputs": torch.randn(2, 8),
        "loader": loader,
        "train_one_epoch": train_one_epoch,
        "few_data": few_data,
        "tiny_llama": tiny_llama,
    }


def blocks(page: str) -> Iterator[tuple[int, str, str]]:
    """Each block of Python, on a page of docs/howto also each of commands: its first line, its
    code, its language.
    """
    text = TEXTS[page]
    languages = "python|sh" if page.startswith("howto/") else "python"
    for match in re.finditer(rf"```({languages})\n(.*?)```", text, re.DOTALL):
        yield text.count("\n", 0, match.start(2)), match[2], match[1]


def run_commands(block: str) -> None:
    """Run a block of commands line by line, ours in this process."""
    for line in block.splitlines():
        name, *words = shlex.split(line, comments=True)
        if name == "paifuser-lab":
            typer.main.get_command(program.app).main(words, name, standalone_mode=False)
        else:
            subprocess.run([Path(sys.executable).with_name(name), *words], check=True)


def with_small_models(code: str) -> str:
    for full, small in SMALL.items():
        code = code.replace(full, small)
    return code


def check_readme(names: dict[str, Any]) -> None:
    assert {row.name for row in names["comparison"].rows} > {names["recipe"].label}
    assert lab.Recipe.load("recipe.yaml").workload == "resnet18-tiny"


def check_workbench(names: dict[str, Any]) -> None:
    bench = names["bench"]
    assert bench.recipe.label == "fold batch-norm" and bench.comparison is not None


def check_profile(names: dict[str, Any]) -> None:
    assert names["variant"].recipe.steps and Path("trace.json.gz").is_file()


def check_sensitivity(names: dict[str, Any]) -> None:
    assert names["record"].rows and names["matter"].rows


def check_planner(names: dict[str, Any]) -> None:
    assert names["allocation"].points and names["best"].explain()


def check_training(names: dict[str, Any]) -> None:
    assert weights_hash(lab.load("mine").model) == names["variant"].weights_hash


def check_fusion(names: dict[str, Any]) -> None:
    fusions = lab.apply(names["work"], names["fast"]).fusions
    assert fusions is not None
    off = [fusion.place for fusion in fusions.fusions if fusion.standing == "off"]
    assert off and all(place.startswith("layer4.") for place in off)


def check_attention(names: dict[str, Any]) -> None:
    assert names["panel"].step == {"attention": {"kind": "topk", "keep": 0.1}}


def check_engines(names: dict[str, Any]) -> None:
    assert Path("model.onnx").stat().st_size > 0


def check_memory(names: dict[str, Any]) -> None:
    assert names["pool"].statistics.trims == 1
    (row,) = (row for row in names["compared"].rows if "memory pool" in row.name)
    assert any("page faults a call without it" in note for note in row.notes)


def check_deploy(names: dict[str, Any]) -> None:
    card = Path("out/MODEL_CARD.md").read_text()
    assert names["deployment"].folder == "out" and "Apache-2.0" in card and "baseline" in card


def check_load(names: dict[str, Any]) -> None:
    variant = names["variant"]
    assert variant.work.origin.name == "model.pt2" and len(variant.work.origin.sha256) == 64
    assert weights_hash(lab.load("mine").model) == variant.weights_hash


def check_own_step(names: dict[str, Any]) -> None:
    names["variant"].save("mine")
    assert weights_hash(lab.load("mine").model) == names["variant"].weights_hash


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "README.md": check_readme,
    "workbench.md": check_workbench,
    "profile.md": check_profile,
    "sensitivity.md": check_sensitivity,
    "planner.md": check_planner,
    "training.md": check_training,
    "fusion.md": check_fusion,
    "attention.md": check_attention,
    "engines.md": check_engines,
    "deploy.md": check_deploy,
    "load.md": check_load,
    "memory.md": check_memory,
    "howto/own-step.md": check_own_step,
}


def test_the_limits_of_a_quiet_machine_are_those_that_records_go_by() -> None:
    (row,) = re.findall(r"^\| quiet \| others took .*$", TEXTS["workbench.md"], re.MULTILINE)
    limits = [quality.MAX_OTHERS, quality.MAX_WAITED, 0.9, quality.MAX_SPREAD]
    limits += [*quality.ROWS_RANGE, quality.MIN_CLOCK]
    assert [int(text) for text in re.findall(r"\d+", row)][:7] == [round(100 * x) for x in limits]


def test_every_replacement_is_for_code_of_a_page() -> None:
    code = "".join(block for page in WITH_CODE for _, block, _ in blocks(page))
    assert [full for full in SMALL if full not in code] == []
    assert CHECKS.keys() <= set(WITH_CODE) and len(WITH_CODE) >= 10


@pytest.mark.parametrize("page", WITH_CODE)
def test_every_block_of_a_page_runs_after_those_before_it(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    clip(tmp_path / "in.mp4")
    (tmp_path / "cnn.py").write_text(next(blocks("start.md"))[1], encoding="utf-8")
    names = own_names()
    try:
        for line, code, language in blocks(page):
            if language == "sh":
                run_commands(with_small_models(code))
                continue
            tree = ast.parse("\n" * line + with_small_models(code), page)
            exec(compile(tree, page, "exec"), names)
            if "bench" in names:
                names["bench"].wait()
        CHECKS.get(page, bool)(names)
    finally:
        if "bench" in names:
            names["bench"].close()


@pytest.mark.parametrize("page", ["README", "start"])
def test_a_chinese_page_has_the_code_commands_rows_and_links_of_the_english_one(page: str) -> None:
    """What is rendered from records is in English alone; the two link to each other."""
    english, chinese = MEASURED.sub("", TEXTS[f"{page}.md"]), TEXTS[f"{page}.zh.md"]
    assert f"({page}.zh.md)" in english and f"({page}.md)" in chinese
    for pattern in (r"```.*?```", r"(?<!`)`[^`\n]+`", r"\]\([\w./-]+\)", r"^#+ ", r"^[|*] "):
        of = [re.findall(pattern, text, re.MULTILINE | re.DOTALL) for text in (english, chinese)]
        places = [[match for match in matches if f"({page}." not in match] for matches in of]
        assert sorted(places[0]) == sorted(places[1]), pattern


def command_lines() -> list[str]:
    """Every command of ours: in shell blocks, in comments of code, and in sentences."""
    lines = []
    for text in TEXTS.values():
        lines += re.findall(rf"^(?:.*# )?({COMMAND} [^\n`]+)$", text, re.MULTILINE)
        lines += re.findall(rf"`({COMMAND} [^`]+)`", text)
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("line", command_lines())
def test_every_command_of_a_page_exists(line: str) -> None:
    is_ours = line.startswith("python -m benchmarks")
    command: Any = typer.main.get_command(benches if is_ours else program.app)
    name, *words = shlex.split(line.removeprefix("python -m "), comments=True)
    context = command.make_context(name, list(words))
    while hasattr(command, "resolve_command"):
        assert words, f"{line} names no subcommand"
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, list(words), parent=context)


def test_the_page_of_benches_lists_every_bench() -> None:
    listed = re.findall(rf"^{BENCH} ([a-z0-9-]+)", TEXTS["benches.md"], re.MULTILINE)
    assert set(listed) == {"kernels", "models", "trust", *NAMES}


def test_a_command_that_does_not_exist_is_seen() -> None:
    assert len(command_lines()) >= 20
    for line in (
        "paifuser-lab profil resnet18",
        "paifuser-lab profile resnet18 --htm x",
        "python -m benchmarks nothing",
    ):
        with pytest.raises(Exception, match=r"No such|no such"):
            test_every_command_of_a_page_exists(line)


def targets_of_make() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", TEXTS)
def test_every_make_target_of_a_page_exists(page: str) -> None:
    assert set(re.findall(r"`make ([a-z]+)", TEXTS[page])) <= targets_of_make()


def links_of(page: Path) -> list[Path]:
    """The files that a page links to or shows, from its own folder."""
    text = TEXTS[name_of(page)]
    links = re.findall(r"\]\(([^)#\s]+)\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    return [page.parent / link for link in links if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [str(link) for link in links_of(page) if not link.exists()] == []


PATH = re.compile(
    r"`((?:paifuser_lab|benchmarks|runners|tests|widgets|kernels|notebooks|docs)/[\w./*<>-]*"
    r"|[\w-]+\.(?:toml|txt|yml|cfg))(?:::\w+)?`"
)
WRITTEN = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("page", TEXTS)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    """A part in angle brackets is a placeholder; the rest of the path has to exist."""
    for path in PATH.findall(TEXTS[page]):
        pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
        assert list(ROOT.glob(pattern)), f"{page} names {path}"


def test_every_test_that_a_page_names_exists() -> None:
    named = [match for text in TEXTS.values() for match in WRITTEN.findall(text)]
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_every_registry_that_contributors_are_sent_to_exists() -> None:
    named = re.findall(r"`([A-Z_]+)` (?:of|in) `([\w/]+\.py)`", TEXTS["CONTRIBUTING.md"])
    for name, path in named:
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (
            f"{name} of {path}"
        )
    assert len(named) > 9


def test_the_readme_is_read_in_five_minutes() -> None:
    assert TEXTS["README.md"].count("\n") <= 150


def test_a_how_to_page_is_short() -> None:
    lines = {page: text.count("\n") for page, text in TEXTS.items() if page.startswith("howto/")}
    assert len(lines) >= 11 and max(lines.values()) <= 60, lines


def test_the_glossary_is_short() -> None:
    glossary = TEXTS["CONTRIBUTING.md"].split("## Glossary\n", 1)[1]
    assert 20 <= glossary.count("\n") <= 60


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pictures_of_the_readme_load_quickly(theme: str) -> None:
    assert (ROOT / "docs" / f"workbench-{theme}.png").stat().st_size < 300_000
