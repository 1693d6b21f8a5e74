"""The README's code does what it says, every block of it in order, and its commands are ones that
there are.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn

import paifuser_lab as lab
from paifuser_lab.cli import program
from paifuser_lab.model.weights import weights_hash

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")

# Small models in place of full ones, and seconds, rounds and epochs that suit them; nothing is left
# out.
SMALL = {
    'lab.load("resnet18")': 'lab.load("resnet18-tiny")',
    'lab.load("resnet18-digits")': 'few_data(lab.load("resnet18-digits-tiny", trained=False))',
    '"segvit-maps"': '"segvit-tiny"',
    "lab.compare(work, variant)": "lab.compare(work, variant, rounds=2)",
    "lab.compare(work, recipe)": "lab.compare(work, recipe, rounds=2)",
    "lab.plan(work)": "lab.plan(work, seconds=0)",
    "lab.Workbench(work)": "lab.Workbench(work, rounds=2, seconds=0.2)",
    "lab.profile(work)": "lab.profile(work, runs=3, seconds=0.5)",
    "predicted=best)": "predicted=best, runs=3, seconds=0.5)",
    'batch_size(work, "4 GB")': 'batch_size(work, "4 GB", most=4, seconds=0.5)',
    "size_bytes=400_000)": "size_bytes=400_000, seconds=2.0)",
    "achieved(work, allocation)": "achieved(work, allocation, points=[0], uniform=False, seconds=0.5)",
    'staircase(work, "layer3.0.conv1")': 'staircase(work, "layer3.0.conv1", seconds=0.5)',
    '{"to": {"parameters": 0.1}}': '{"to": {"parameters": 0.6}}',
    '"epochs": 3': '"epochs": 1',
    '"epochs": 12': '"epochs": 1',
    "rounds=3)": "rounds=1)",
    'kind="topk")': 'kind="topk", seconds=1.0)',
}


class Own(nn.Module):
    """A model as a reader may have one."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.wide(rows).relu())


def few_data(work: lab.Workload) -> lab.Workload:
    """With two batches to learn from and one to be judged by."""
    assert work.train is not None and work.test is not None
    work.train, work.test = work.train[:2], work.test[:1]
    return work


def own_names() -> dict[str, Any]:
    """What the README takes to be the reader's own: a model, its data, and a training loop."""
    model = Own()
    loader = [(torch.randn(4, 8), torch.randint(3, (4,))) for _ in range(3)]

    def train_one_epoch() -> None:
        for rows, target in loader:
            nn.functional.cross_entropy(model(rows), target).backward()

    return {
        "model": model,
        "loader": loader,
        "train_one_epoch": train_one_epoch,
        "few_data": few_data,
    }


def blocks() -> Iterator[tuple[int, str]]:
    """Each block of Python with the line that it begins on."""
    for found in re.finditer(r"```python\n(.*?)```", README, re.DOTALL):
        yield README.count("\n", 0, found.start(1)), found[1]


def made_small(code: str) -> str:
    for full, small in SMALL.items():
        code = code.replace(full, small)
    return code


def test_every_replacement_stands_for_something_in_the_readme() -> None:
    code = "".join(block for _, block in blocks())
    assert [full for full in SMALL if full not in code] == []


def test_every_block_of_the_readme_runs_after_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    names = own_names()
    told: list[dict[str, Any]] = []
    try:
        for line, code in blocks():
            tree = ast.parse("\n" * line + made_small(code), "README.md")
            exec(compile(tree, "README.md", "exec"), names)
            if "bench" in names:
                names["bench"].wait()
            told.append(dict(names))
    finally:
        if "bench" in names:
            names["bench"].close()
    assert len(told) == README.count("```python") >= 6
    ten_lines, workbench, looked, fewer, taught, fused = told
    assert {row.name for row in ten_lines["comparison"].rows} > {ten_lines["recipe"].label}
    assert lab.Recipe.load("recipe.yaml").workload == "resnet18-tiny"
    assert (
        workbench["bench"].recipe.label == "fold batch-norm"
        and workbench["bench"].comparison is not None
    )
    assert looked["variant"].recipe.steps and Path("trace.json.gz").is_file()
    assert fewer["allocation"].points and fewer["seen"].rows
    assert weights_hash(lab.load("mine").model) == taught["variant"].weights_hash
    off = [
        one.place
        for one in lab.apply(fused["work"], fused["fast"]).fusions.fusions
        if one.standing == "off"
    ]  # type: ignore[union-attr]
    assert off and all(place.startswith("layer4.") for place in off)
    assert fused["panel"].step == {"attention": {"kind": "topk", "keep": 0.1}}


def command_lines() -> list[str]:
    """Every command of ours: in blocks of shell, in comments of code, and within a sentence."""
    found = re.findall(r"^(?:.*# )?(paifuser-lab [^\n`]+)$", README, re.MULTILINE) + re.findall(
        r"`(paifuser-lab [^`]+)`", README
    )
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("line", command_lines())
def test_every_command_of_the_readme_is_one_that_there_is(line: str) -> None:
    command: Any = typer.main.get_command(program.app)
    name, *words = shlex.split(line, comments=True)
    context = command.make_context(name, list(words))
    while hasattr(command, "commands"):
        assert words, f"{line} names no subcommand"
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, list(words), parent=context)


def test_a_command_that_there_is_not_would_be_seen() -> None:
    assert len(command_lines()) >= 20
    for line in (
        "paifuser-lab profil resnet18",
        "paifuser-lab profile resnet18 --htm x",
        "paifuser-lab bench nothing",
    ):
        with pytest.raises(Exception, match=r"No such|no such"):
            test_every_command_of_the_readme_is_one_that_there_is(line)
