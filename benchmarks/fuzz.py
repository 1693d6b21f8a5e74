"""Every reader of files is given damaged ones: `tests/test_damaged_files.py` for longer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, ClassVar
from xml.etree import ElementTree

import typer

from paifuser_lab.bench.runner import BenchRecord, Columns
from paifuser_lab.bench.text import number
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Record

ROOT = Path(__file__).parent.parent
TESTS = "tests/test_damaged_files.py"
OPTIONS = ("-n", "auto", "--timeout", "0", "-o", "junit_family=xunit1", "-k", "or_refused")
TEST = "test_a_"  # begins the name of each


class FuzzRow(Record):
    """One reader, and the damaged inputs that it was given."""

    reader: str
    tried: int
    seconds: float
    failure: str = ""  # what it did with one of them, otherwise than read it or refuse it


class FuzzBench(BenchRecord):
    """The result of `python -m benchmarks fuzz`."""

    rows: tuple[FuzzRow, ...]
    caption = "damaged files, each read or refused in a sentence, on {0.machine}"
    columns: ClassVar[Columns] = {
        "reader of": "reader",
        "damaged files": lambda row: f"{row.tried:,}",
        "s": lambda row: number(row.seconds),
        "crash, hang or gigabyte": lambda row: row.failure or "none",
    }

    @property
    def summary(self) -> str:
        """How many in all, and with how many readers something else happened."""
        failed = sum(bool(row.failure) for row in self.rows)
        return f"{sum(row.tried for row in self.rows):,} damaged files, {failed} readers failed"

    @property
    def is_good(self) -> bool:
        """Whether every file was read or refused."""
        return not any(row.failure for row in self.rows)


def bench(
    *,
    seconds: Annotated[float, typer.Option(help="How long each reader is tried.", min=0)] = 60,
) -> FuzzBench:
    """Give every reader of files damaged ones, at random."""
    with tempfile.TemporaryDirectory(prefix="paifuser-fuzz-") as folder:
        report = Path(folder) / "report.xml"
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", TESTS, *OPTIONS, "--junit-xml", str(report)],
            env={**os.environ, "FUZZ_SECONDS": str(seconds), "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            raise MeasureError(f"the tests did not run: {ended.stderr or ended.stdout}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    return FuzzBench(rows=tuple(_row(case) for case in cases if case.find("skipped") is None))


def _row(case: ElementTree.Element) -> FuzzRow:
    """A test's row; its parameter is what is read."""
    test, _, parameter = case.get("name", "").removesuffix("]").partition("[")
    failure = next((part for part in case if part.tag in ("failure", "error")), None)
    tried = case.find("properties/property")  # missing where a file failed
    place = "saved folder: " if "folder" in test else ""
    return FuzzRow(
        reader=place + (parameter or test.removeprefix(TEST).replace("_", " ")),
        tried=0 if tried is None else int(tried.get("value", 0)),
        seconds=float(case.get("time", 0)),
        failure="" if failure is None else failure.get("message", "failed").splitlines()[0],
    )
