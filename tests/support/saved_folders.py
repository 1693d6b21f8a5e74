"""Saved folders that tests damage."""

from __future__ import annotations

import json
from pathlib import Path

from paifuser_lab._files import sha256


def rewrite_manifest(path: Path) -> None:
    """Update the hashes, as after an edit by hand."""
    files = {
        file_path.name: sha256(file_path)
        for file_path in path.iterdir()
        if file_path.name != "manifest.json"
    }
    data = json.loads((path / "manifest.json").read_text())
    data["data"]["files"] = files
    (path / "manifest.json").write_text(json.dumps(data))
