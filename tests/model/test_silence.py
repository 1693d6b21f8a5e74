"""Compilers and exporters do not write into the output of this package's functions."""

from __future__ import annotations

import logging
import sys
import threading
import warnings

import pytest

from paifuser_lab.model.silence import compilers_silenced
from tests.support.processes import python

# The reshape depends on the data, which neither torch.export nor Inductor can trace.
APPLIED = """
import logging
import torch
from torch import nn
import paifuser_lab as lab

class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        y = torch.relu(self.line(x))
        rows = 1 + int((y.sum() > 0).item())
        return self.head(y.reshape(rows, -1)[:, :8])

logging.basicConfig(level=logging.INFO)
work = lab.Workload(Sparse(), torch.ones(2, 4), name="sparse")
for engine in ("onnxruntime", "inductor"):
    try:
        lab.apply(work, lab.Recipe([{"backend": engine}]))
    except lab.PaifuserError as error:
        print(f"{engine}: {error}")
"""


def test_a_model_that_cannot_be_traced_gives_one_sentence_and_no_graphs() -> None:
    done = python("-c", APPLIED)
    assert done.stderr == ""
    assert done.stdout.startswith("onnxruntime: Step 'onnxruntime' cannot be applied to sparse")
    assert done.stdout.count("\n") == 1


def test_this_thread_is_silent_and_others_are_heard(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def speak(who: str) -> None:
        sys.stderr.write(f"{who} writes\n")
        logging.getLogger("torch.export").error("%s logs", who)
        logging.getLogger("mine").warning("%s reports", who)

    other = threading.Thread(target=speak, args=("another",))
    with compilers_silenced():
        with compilers_silenced():
            warnings.warn("internals", stacklevel=1)
        speak("silenced")
        other.start()
        other.join()
    speak("this")
    assert capsys.readouterr().err.splitlines()[0] == "another writes"
    heard = [record.getMessage() for record in caplog.records]
    assert heard == [
        "silenced reports",
        "another logs",
        "another reports",
        "this logs",
        "this reports",
    ]


def test_filters_of_warnings_are_as_before_when_another_block_overlaps() -> None:
    before = list(warnings.filters)
    for first_left in ("silence", "other"):
        silence, other = compilers_silenced(), warnings.catch_warnings()
        entered = (silence, other) if first_left == "silence" else (other, silence)
        for block in entered:
            block.__enter__()
        warnings.warn("internals", stacklevel=1)
        for block in entered:  # the first that was entered is left first
            block.__exit__(None, None, None)
        assert list(warnings.filters) == before
    with pytest.raises(UserWarning):
        warnings.warn("heard", stacklevel=1)


def test_stderr_is_the_same_stream_afterwards_even_after_an_error() -> None:
    before = sys.stderr
    with pytest.raises(ValueError, match="broken"), compilers_silenced():
        raise ValueError("broken" if sys.stderr.isatty() == before.isatty() else "changed")
    assert sys.stderr is before
