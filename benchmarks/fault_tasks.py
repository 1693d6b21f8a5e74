"""What `python -m benchmarks faults` disturbs: writes of every kind, and what must be there after.

`write` may be killed at any moment. `check` then raises unless what was whole is whole: the state
before or after the write, and nothing between.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from unittest.mock import patch

import nbformat
import torch
from nbformat.v4 import new_code_cell, new_notebook
from torch import nn

import paifuser_lab as lab
from paifuser_lab.cli.notebook import run_notebook
from paifuser_lab.cli.sweep import sweep
from paifuser_lab.errors import FileError
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.streaming import Items, Stream

from .stream_faults import Lines

FRAMES = 200
STEPS = 40  # of a training


class Task(ABC):
    """Something that is written into a folder."""

    name: ClassVar[str]
    is_again: ClassVar[bool] = True  # what is disturbed is a second write, over a first
    share: ClassVar[float] = 1.0  # of the faults that other tasks get: less where a write is slow

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.work = lab.Workload(small(), torch.rand(2, 3, 8, 8), name="small")

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write for the first time, or again."""

    def check(self, folder: Path) -> None:
        """Raise AssertionError or PaifuserError if anything is lost or half; a task that goes on
        from what is there tells by its next write.
        """
        self.write(folder)


def small() -> nn.Sequential:
    """A convolution with its norm, and a linear layer."""
    norm = nn.BatchNorm2d(8)
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))


def untrained() -> lab.Workload:
    """The same untrained model and data each time."""
    torch.manual_seed(0)
    batches = [(torch.rand(4, 3, 8, 8), torch.randint(5, (4,))) for _ in range(STEPS // 4)]
    loss = nn.functional.cross_entropy
    return lab.Workload(small(), batches[0][0], name="small", loss=loss, train=batches)


class Save(Task):
    """A variant saved over another in the same folder."""

    name = "variant.save"

    def __init__(self) -> None:
        super().__init__()
        self.variants = [
            lab.apply(self.work, lab.Recipe(steps)) for steps in (["fold"], ["layout"])
        ]

    def write(self, folder: Path) -> None:
        target = folder / "model"
        was = lab.Recipe.load(target / "recipe.yaml").label if target.exists() else ""
        new = next(each for each in self.variants if each.recipe.label != was)
        new.save(target)

    def check(self, folder: Path) -> None:
        loaded = lab.load(folder / "model", work=self.work)
        hashes = [variant.weights_hash for variant in self.variants]
        assert weights_hash(loaded.model) in hashes, "the weights are neither's"
        assert (folder / "model" / "of my own").read_text() == "kept"


class Export(Task):
    """An ONNX file written over another."""

    name = "export"

    def __init__(self) -> None:
        super().__init__()
        with TemporaryDirectory() as folder:  # forks find built what takes an exporter seconds
            self.write(Path(folder))

    def write(self, folder: Path) -> None:
        lab.export(self.work, "onnx", folder / "model.onnx", seconds=0)

    def check(self, folder: Path) -> None:
        lab.load(folder / "model.onnx").output()


class Train(Task):
    """A training that stores itself, and goes on from its checkpoint."""

    name = "train"
    is_again = False

    def __init__(self) -> None:
        super().__init__()
        self.losses = lab.train(untrained(), epochs=4, learning_rate=0.01).losses

    def write(self, folder: Path) -> None:
        run = lab.train(untrained(), epochs=4, learning_rate=0.01, save_every_s=0.01,
                        checkpoint=folder / "run.pt")  # fmt: skip
        assert run.losses == self.losses, "other losses than those of an undisturbed training"


class Applied(Task):
    """A recipe that trains, and goes on from what the cache has of it."""

    name = "apply"
    is_again = False

    def __init__(self) -> None:
        super().__init__()
        with TemporaryDirectory() as folder:
            self.hash = self.applied(Path(folder)).weights_hash

    def applied(self, folder: Path) -> lab.Variant:
        """The variant, with its checkpoints in the folder."""
        with (
            patch.dict(os.environ, PAIFUSER_CACHE=str(folder)),
            patch("paifuser_lab.training.run.SAVE_EVERY_S", 0.01),
        ):
            return lab.apply(untrained(), lab.Recipe([{"distill": {"epochs": 4}}]))

    def write(self, folder: Path) -> None:
        assert self.applied(folder).weights_hash == self.hash, "other weights than undisturbed"


class Searched(Task):
    """A search that goes on from its study."""

    name = "search"

    def __init__(self) -> None:
        super().__init__()
        with TemporaryDirectory() as folder:  # forks find imported what a search imports
            self.write(Path(folder))

    def write(self, folder: Path) -> None:
        before = self._known(folder)
        found = lab.search(self.work, seconds=0.5, engines=("eager",), metric_drop=1.0,
                           study=f"sqlite:///{folder / 'searches.db'}")  # fmt: skip
        labels = {row.label for row in found.rows}
        assert len(labels) == len(found.rows), "a trial counts twice"
        assert before <= labels, f"{sorted(before - labels)} had been measured, and are lost"
        new = [row for row in found.rows if row.label not in before]
        if new and "only this result has its last trial" in found.note:
            labels.discard(max(new, key=lambda row: row.at_s or 0).label)
        with (folder / "known").open("a") as file:  # one write; a killed process leaves a line less
            file.write("".join(f"{label}\n" for label in sorted(labels - before)))

    @staticmethod
    def _known(folder: Path) -> set[str]:
        known = folder / "known"
        return set(known.read_text().splitlines()) if known.exists() else set()


class Ran(Task):
    """A notebook run over an earlier run of it, in the same folder."""

    name = "run"
    share = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.notebook = notebook_in(Path(self.folder.name))

    def write(self, folder: Path) -> None:
        run_notebook(self.notebook, folder / "run", {}, replace=True)

    def check(self, folder: Path) -> None:
        check_run(folder / "run")


class Swept(Ran):
    """A sweep, which does not repeat what an earlier one completed."""

    name = "sweep"
    is_again = False
    share = 0.2

    def write(self, folder: Path) -> None:
        out = folder / "out"
        before = {path.parent: path.read_text() for path in out.glob("value*/token")}
        swept = sweep(self.notebook, {"value": [1, 2]}, out, on_run=lambda row: None)
        if failed := [row.failure for row in swept.runs if row.failure]:
            raise FileError(failed[0])
        assert len(swept.runs) == 2, "a run is missing"
        for run, token in before.items():
            assert (run / "token").read_text() == token, f"{run.name} was repeated"

    def check(self, folder: Path) -> None:
        for run in (folder / "out").glob("value*"):
            if run.is_dir():
                check_run(run)


def notebook_in(folder: Path) -> Path:
    """A notebook that writes two files with the same random token."""
    cells = [
        new_code_cell('value = 1\nout = "out"', metadata={"tags": ["parameters"]}),
        new_code_cell(
            "import json, pathlib, secrets\n"
            "token = secrets.token_hex(4000)\n"
            'pathlib.Path(out, "token").write_text(token)\n'
            "report = json.dumps({'token': token, 'value': value})\n"
            'pathlib.Path(out, "report.json").write_text(report)'
        ),
    ]
    path = folder / "tokens.ipynb"
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def check_run(folder: Path) -> None:
    """Raise AssertionError unless all files of the run are there, and of one run."""
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.json",
        "token",
        "tokens.ipynb",
    ]
    token = (folder / "token").read_text()
    assert json.loads((folder / "report.json").read_text())["token"] == token, "of two runs"
    nbformat.validate(nbformat.read(folder / "tokens.ipynb", as_version=4))


class Streamed(Task):
    """A stream with a journal: each frame is in the output once."""

    name = "stream"
    is_again = False

    def write(self, folder: Path) -> None:
        stream = Stream(Items(range(FRAMES), group=4), _square, sink=Lines(folder / "lines"),
                        journal=folder / "journal")  # fmt: skip
        stream.run()

    def check(self, folder: Path) -> None:
        self.write(folder)
        lines = (folder / "lines").read_text().splitlines()
        expected = [[str(index), str(index**2)] for index in range(FRAMES)]
        assert [line.split()[:2] for line in lines] == expected


def _square(frame: int) -> int:
    return frame**2


TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Save, Export, Train, Applied, Searched, Ran, Swept, Streamed)
}
