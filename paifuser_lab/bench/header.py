"""Where a record was measured: processor, date, versions and commit. Every bench writes it beside
the record's data; a record from before has none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..machine.host import host_facts
from ..records import Record

ROOT = Path(__file__).parent.parent.parent  # a checkout, or a folder of installed packages
CODE = ("paifuser_lab", "benchmarks", "kernels", "runners")
DIRTY = "+"  # behind a commit whose code was changed
KEY = "measured"
# The modules of what benches compare with; a distribution has hyphens in its name instead.
COMPARED = (
    "accelerate", "ai_edge_litert", "coremltools", "executorch", "hls4ml", "lightning", "nncf",
    "onnxruntime", "openvino", "pyhessian", "ray", "torch_pruning", "torchao", "transformers",
)  # fmt: skip


class Header(Record):
    """The processor, the day, the versions and the commit of a measurement.

    `processor` is the short name on the pages; a wheel has no commit.
    """

    processor: str
    model: str
    isa: tuple[str, ...]
    cores: int
    date: str
    commit: str | None = None
    versions: dict[str, str] = {}


def save(measured: Record, path: Path) -> None:
    """Write a bench's record with its header."""
    measured.save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content = {KEY: header().model_dump(mode="json"), **content}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def header_of(path: Path) -> Header | None:
    """The header of a record's file; None for a record from before headers."""
    written = json.loads(path.read_text(encoding="utf-8")).get(KEY)
    return None if written is None else Header.model_validate(written)


def header() -> Header:
    """The header of what this process measures."""
    facts = host_facts()
    return Header(
        processor=facts.label,
        model=facts.name,
        isa=facts.isa,
        cores=facts.physical_cores,
        date=datetime.now(UTC).date().isoformat(),
        commit=commit(),
        versions={"torch": facts.torch_version, **_compared()},
    )


@cache
def commit() -> str | None:
    """The commit of the code that this process runs, as it is when first asked; None for a wheel.

    Only changed code marks it: the record of the bench before this one does not.
    """
    if git(ROOT, "rev-parse", "--show-prefix") != "":
        return None
    known = git(ROOT, "rev-parse", "--short", "HEAD")
    changed = git(ROOT, "status", "--porcelain", "--", *CODE)
    return f"{known}{DIRTY if changed else ''}" if known else None


def git(root: Path, *words: str) -> str | None:
    """What git answers in a folder; None where it cannot: no git, no checkout, no such commit."""
    with suppress(OSError):
        answer = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
        return None if answer.returncode else answer.stdout.strip()
    return None


def _compared() -> dict[str, str]:
    """The versions of those libraries that were used: the ones this process has imported."""
    versions = {}
    for module in COMPARED:
        if module in sys.modules:
            name = module.replace("_", "-")
            with suppress(PackageNotFoundError):
                versions[name] = version(name)
    return versions
