"""`lab.train(…, processes=2)` against `lab.train`, and the command line."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

import paifuser_lab as lab
from paifuser_lab.cli import train as command
from paifuser_lab.cli.program import app
from paifuser_lab.parallel import train as several
from paifuser_lab.parallel.group import Group
from tests.support import training_runs
from tests.support.parallel_loops import weights


def lab_training(folder: str, processes: int, **options: Any) -> dict[str, Any]:
    """`lab.train` of a small classifier, here or in several processes."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(5, 7, 6, generator=generator)  # 7 rows do not divide evenly
    batches = [(batch, batch[:, :3].argmax(1)) for batch in inputs]

    def accuracy(module: nn.Module, data: Any) -> float:
        hits = [(module(batch).argmax(1) == labels).float().mean() for batch, labels in data]
        return float(torch.stack(hits).mean())

    work = lab.Workload(
        module, batches[0][0], name="rows", loss=functional.cross_entropy, train=batches,
        test=batches, metric=accuracy,
    )  # fmt: skip
    records: list[Any] = []
    record = lab.train(
        work, processes=processes, checkpoint=f"{folder}/rows.safetensors", epochs=2,
        learning_rate=0.01, monitor=records.append, monitor_every_s=0.0, **options,
    )  # fmt: skip
    return {"record": record, "weights": weights(module), "records": records}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same training in one process and in two, and the progress that the second printed."""
    alone = lab_training(str(tmp_path_factory.mktemp("alone")), 1)
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(printed):
        patch.setenv("PAIFUSER_PROGRESS", "lines")
        patch.setattr("paifuser_lab.progress.LINE_EVERY_S", -1.0)
        together = lab_training(
            str(tmp_path_factory.mktemp("together")), 2, stop_on="metric", patience=2
        )
    return [alone, together | {"printed": printed.getvalue()}]


def test_two_processes_train_as_one(both):
    alone, together = both
    assert together["record"].losses == pytest.approx(alone["record"].losses, abs=1e-5)
    for name, weight in alone["weights"].items():
        torch.testing.assert_close(together["weights"][name], weight, atol=1e-5, rtol=1e-5)
    assert together["record"].metric == alone["record"].metric
    assert together["record"].examples == alone["record"].examples == 70


def test_the_record_has_a_row_for_each_rank_also_while_it_runs(both):
    record = both[1]["record"]
    weights = both[1]["weights"].values()
    size = sum(weight.nbytes for weight in weights)
    flags = 4 * len(weights)  # a float for each says whether it has a gradient
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert record.ranks[0].sent_bytes == (size + 8 + flags,) * 10  # and the loss
    (ranks,) = record.sections
    assert len(ranks.rows) == 2 and all("sent" in row for row in ranks.rows)
    running = both[1]["records"][:-1]
    assert any(len(record.ranks) == 2 and record.is_running for record in running)


def test_every_rank_evaluates_so_that_none_waits_in_vain_for_another(monkeypatch):
    metrics = []
    monkeypatch.setattr(several, "join", lambda: Group(rank=1, world=2))
    monkeypatch.setattr(several, "agree", lambda group, facts: None)
    monkeypatch.setattr(several, "train_alone", lambda work, **options: metrics.append(work.metric))
    metric = lambda predict, test: 0.0
    several._train_rank(training_runs.work(test=training_runs.pairs(1), metric=metric), {})
    assert metrics == [metric]


def test_the_monitor_sees_at_last_that_interrupted_processes_run_no_more(both, monkeypatch):
    record = both[1]["records"][0]
    seen = []

    def interrupted(*call: Any, on_told: Any, **options: Any) -> None:
        on_told(0, (record, both[1]["record"].ranks[0]))
        raise KeyboardInterrupt

    monkeypatch.setattr(several.launch, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.train(training_runs.work(), processes=2, monitor=seen.append)
    assert [row.is_running for row in seen] == [True, False]
    assert len(seen[-1].ranks) == 1


def test_progress_of_all_steps_is_shown(both):
    lines = both[1]["printed"].splitlines()
    assert lines[-1] == "training: 10 of 10" and len(lines) > 2


def test_the_command_line_becomes_torchrun(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.touch()
    started = []
    monkeypatch.setattr(command.os, "execve", lambda *call: started.append(call))
    monkeypatch.setattr(command, "_run_script", lambda *arguments: None)
    CliRunner().invoke(app, ["train", str(script), "--processes", "2", "--restarts", "3"])
    ((program, line, environment),) = started
    assert line[0] == program
    assert {"--nproc-per-node=2", "--max-restarts=3", str(script)} <= set(line)
    assert environment["PAIFUSER_STORE"]
