"""`paifuser-lab open`: JupyterLab on the user's own copies of the notebooks."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from urllib.parse import quote

from .._files import asset, write_text
from ..errors import FileError

COPIED = ".paifuser-lab.json"  # the hash of each notebook as it was copied
CONFIG = Path(__file__).with_name("jupyter_config")  # no question about news at the first start


def copy_notebooks(folder: Path) -> list[str]:
    """Copy the package's notebooks into a folder and bring copies that the user did not change up
    to date. Returns the names of the changed ones of which the package has a newer version.
    """
    record = folder / COPIED
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copied: dict[str, str] = json.loads(record.read_text("utf-8")) if record.is_file() else {}
        outdated = []
        for source in sorted(asset("notebooks").glob("*.ipynb")):
            text, target = _without_outputs(source.read_text("utf-8")), folder / source.name
            if not target.exists() or _hash(target.read_bytes()) == copied.get(source.name):
                target.write_bytes(text)
                copied[source.name] = _hash(text)
            elif copied.get(source.name) != _hash(text):
                outdated.append(source.name)
        write_text(record, json.dumps(copied, indent=1) + "\n")
    except (OSError, ValueError) as error:
        raise FileError(
            f"Cannot copy the notebooks into {folder} ({error}); give another folder with --folder."
        ) from error
    return outdated


def _without_outputs(text: str) -> bytes:
    """A notebook as it is before its first run: the stored figures are of another machine."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
            cell["metadata"].pop("execution", None)
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def environment() -> dict[str, str]:
    """This process's environment with JupyterLab's defaults; the user's settings override them."""
    paths = [str(CONFIG), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def command(notebook: Path, *, port: int | None, browser: bool) -> list[str]:
    """The command that serves a notebook's folder and opens the notebook."""
    # The default address leads to the notebook, so that the printed one does, too; a panel whose
    # Jupyter kernel is gone runs its cells again through the application in the page.
    options = [
        f"--ServerApp.root_dir={notebook.resolve().parent}",
        f"--LabApp.default_url=/lab/tree/{quote(notebook.name)}",
        "--LabApp.expose_app_in_browser=True",
    ]
    options += [] if browser else ["--no-browser"]
    options += [f"--port={port}"] if port else []
    options += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", *options]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
