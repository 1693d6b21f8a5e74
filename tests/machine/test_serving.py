"""The processes that serve or show this one: its ancestors, and browsers beside a notebook."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from paifuser_lab.machine import host
from paifuser_lab.machine.host import serving_seconds


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """A process with a browser's name, in the eyes of psutil, which computes nothing."""
    monkeypatch.setattr(host, "_known", {})
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = psutil.Process.name
    monkeypatch.setattr(
        psutil.Process, "name", lambda self: "chromium" if self.pid == process.pid else name(self)
    )
    yield process.pid
    process.communicate(b"\n")


def test_a_browser_shows_a_notebook_and_is_another_process_to_a_script(browser, monkeypatch):
    monkeypatch.setattr(host, "notebook_shell", lambda: None)
    assert browser not in serving_seconds()
    host._known.clear()
    monkeypatch.setattr(host, "notebook_shell", object)
    assert serving_seconds()[browser] >= 0


def test_what_started_this_process_serves_it_and_what_it_starts_does_not(browser):
    spent = serving_seconds()
    assert psutil.Process().ppid() in spent
    assert psutil.Process().pid not in spent and browser not in spent


def test_a_process_that_has_ended_is_forgotten(browser, monkeypatch):
    monkeypatch.setattr(host, "notebook_shell", object)
    assert browser in serving_seconds()
    monkeypatch.setattr(psutil, "pids", lambda: [psutil.Process().ppid()])
    assert list(serving_seconds()) == list(host._known) == [psutil.Process().ppid()]
