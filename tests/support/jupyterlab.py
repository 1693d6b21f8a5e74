"""A JupyterLab server on loopback, and a page in Chromium that shows one of its notebooks.

Built on Playwright. Nothing is shared with the user's own Jupyter: settings, kernels and workspaces
are in a separate folder.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from paifuser_lab.errors import MeasureError, MissingExtraError, first_line

# Chromium otherwise sends requests at every start; as root it does not start without --no-sandbox.
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

# Running before the Jupyter kernel is connected would open a dialog that selects one.
IS_READY = """async () => {
  const panel = window.jupyterapp?.shell.currentWidget;
  const session = panel?.context?.sessionContext;
  if (!session) return false;
  await panel.context.ready;
  await session.ready;
  const connection = session.session?.kernel;
  if (connection?.connectionStatus !== 'connected') return false;
  return connection.status === 'idle';
}"""

# From the notebook's own outputs, since the markup of an error differs between versions of
# JupyterLab; where the page does not expose its application, from the tracebacks that it shows.
ERRORS = """() => {
  const cells = window.jupyterapp?.shell.currentWidget.content.model.cells;
  if (!cells) return [...document.querySelectorAll('.jp-OutputArea-output pre')]
    .map((shown) => shown.textContent)
    .filter((text) => text.includes('Traceback (most recent call last)'));
  return [...cells].flatMap((cell) => cell.toJSON().outputs ?? [])
    .filter((output) => output.output_type === 'error')
    .map((output) => [`${output.ename}: ${output.evalue}`, ...(output.traceback ?? []).slice(-6)]
      .join('\\n').replace(/\\x1b\\[[0-9;]*m/g, ''));
}"""
HAS_RUN = (
    "() => ![...document.querySelectorAll('.jp-InputPrompt')].some((prompt) => "
    "prompt.textContent.includes('*'))"
)


@dataclass
class Lab:
    """The URL, token and folder of a running server."""

    url: str
    token: str
    folder: Path


@dataclass
class Page:
    """A notebook in the browser, the errors in its console, and its requests to other servers."""

    page: Any
    console_errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def run_all(self, timeout_s: float) -> None:
        """Run every cell and wait for the last one."""
        self.wait_until_ready()
        self.page.set_default_timeout(timeout_s * 1000)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.wait_until_run(timeout_s)

    def wait_until_ready(self) -> None:
        """Wait until the notebook's Jupyter kernel is connected and idle."""
        self.page.wait_for_function(IS_READY, timeout=60_000)

    def wait_until_run(self, timeout_s: float) -> None:
        """Wait until no cell has a star; the Jupyter kernel may be idle in between, and a widget's
        messages make it look idle.
        """
        self.page.wait_for_function(HAS_RUN, timeout=timeout_s * 1000)
        self.page.wait_for_function(IS_READY, timeout=timeout_s * 1000)

    def run_cell(self, cell: int, timeout_s: float) -> None:
        """Run one cell and wait for it."""
        self.page.evaluate(
            "(cell) => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = cell;"
            " return window.jupyterapp.commands.execute('notebook:run-cell'); }",
            cell,
        )
        self.wait_until_run(timeout_s)

    def errors(self) -> list[str]:
        """The errors that cells raised."""
        errors: list[str] = self.page.evaluate(ERRORS)
        return errors


def chromium() -> str | None:
    """The path of a Chromium or Chrome on this machine."""
    return (
        os.environ.get("CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("google-chrome")
        or shutil.which("chrome")
    )


@contextmanager
def serving(folder: Path, home: Path) -> Iterator[Lab]:
    """A server for the notebooks in `folder`, stopped with its kernels at the end."""
    home.mkdir(exist_ok=True)
    _write_settings(home / "settings" / "@jupyterlab")
    token, port = secrets.token_hex(16), _free_port()
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            _command(folder, token, port),
            env=_environment(home),
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            lab = Lab(f"http://127.0.0.1:{port}", token, folder)
            _wait_for(lab, server, home / "server.log")
            yield lab
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


@contextmanager
def browsing() -> Iterator[Any]:
    """A Chromium for any number of pages."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise MissingExtraError(
            "playwright", extra="dev", needed_for="driving a browser"
        ) from error
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=chromium(), args=QUIET, headless=True
            )
        except Error as error:
            raise MeasureError(
                f"No Chromium could be started ({first_line(error)}); install one, or name it in "
                "the variable CHROMIUM."
            ) from error
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def showing(lab: Lab, notebook: str, browser: Any = None, *, scale: float = 1.0) -> Iterator[Page]:
    """A page that shows one notebook, in the given browser or in one of its own; `scale` is the
    number of device pixels per CSS pixel.
    """
    with browsing() if browser is None else nullcontext(browser) as chosen:
        page = chosen.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=scale)
        shown = Page(page)
        page.on(
            "console",
            lambda message: (
                shown.console_errors.append(message.text) if message.type == "error" else None
            ),
        )
        page.on("pageerror", lambda error: shown.console_errors.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((lab.url, "blob:", "data:"))
                else shown.strangers.append(request.url)
            ),
        )
        page.goto(f"{lab.url}/doc/tree/{notebook}?token={lab.token}")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=60_000)
        yield shown
        page.close()


def write_notebook(path: Path, cells: list[str]) -> None:
    """Write a notebook of these cells, not yet run."""
    spec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": spec}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_settings(folder: Path) -> None:
    settings = {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "apputils-extension/themes": {"theme": "JupyterLab Light"},
        "notebook-extension/tracker": {"windowingMode": "none", "autoStartDefaultKernel": True},
    }
    for name, values in settings.items():
        path = folder / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def _environment(home: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "MPLCONFIGDIR": "matplotlib",
    }
    inherited = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    return {
        **inherited,
        **{name: str(home / folder) for name, folder in own.items()},
        "JUPYTER_NO_CONFIG": "1",
    }


def _command(folder: Path, token: str, port: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        "--allow-root",
        "--LabApp.extension_manager=readonly",
        "--LanguageServerManager.autodetect=False",
        "--LabApp.expose_app_in_browser=True",
        "--ServerApp.terminals_enabled=False",
    ]


def _wait_for(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{lab.url}/api/status?token={lab.token}", timeout=2).read()
            return
        except OSError:
            time.sleep(0.1)
    raise MeasureError(f"JupyterLab did not start; its log ends:\n{log.read_text()[-3000:]}")
