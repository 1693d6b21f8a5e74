"""`lab.train(…, processes=2)` against `lab.train`, and the command line."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from paifuser_lab.cli import train as command
from paifuser_lab.cli.program import app
from tests.support.parallel_loops import lab_training


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same training in one process and in two."""
    return [
        lab_training(str(tmp_path_factory.mktemp("training")), processes) for processes in (1, 2)
    ]


def test_two_processes_train_as_one(both):
    alone, together = both
    assert together["record"].losses == pytest.approx(alone["record"].losses, abs=1e-5)
    for name, weight in alone["weights"].items():
        torch.testing.assert_close(together["weights"][name], weight, atol=1e-5, rtol=1e-5)
    assert together["record"].metric == alone["record"].metric
    assert together["record"].examples == alone["record"].examples == 70


def test_the_record_has_a_row_for_each_rank_also_while_it_runs(both):
    record = both[1]["record"]
    size = sum(weight.nbytes for weight in both[1]["weights"].values())
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert record.ranks[0].sent_bytes == (size + 8,) * 10  # the gradients, and the loss
    assert sum("sent" in remark for remark in record.remarks) == 2
    running = both[1]["records"][:-1]
    assert any(len(record.ranks) == 2 and record.is_running for record in running)


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
