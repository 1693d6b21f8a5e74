"""Run a notebook with many parameters, a few processes at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

import nbformat

from ..._files import write_text
from ...errors import FileError, PaifuserError
from ...machine.host import usable_cores
from ...progress import progress
from ...records import Sweep, SweepRun, Value
from .grid import Run, runs_of
from .report import FIGURES, reported

WORKER = [sys.executable, "-m", "paifuser_lab.pipeline.sweep.worker"]
PATIENCE_S = 20.0  # for a process that was asked to stop, until it is ended
FEW_IS_GOOD = ("latency_ms", "parameters", "size_bytes", "flops", "peak_bytes", "relative_error")


def sweep(
    notebook: str | Path,
    values: Mapping[str, Sequence[Value]],
    out: str | Path,
    *,
    jobs: int = 1,
    sort: str | None = None,
    replace: bool = False,
    on_run: Callable[[SweepRun], None] | None = None,
) -> Sweep:
    """Run a notebook with every combination of the values; each run's folder lies in `out`, with
    sweep.json and sweep.md beside.

    What an earlier sweep completed is not run again, unless `replace`. A run that fails is reported
    in its row, and the others go on. When interrupted, the runs that are under way leave nothing,
    and what is complete stays.
    """
    notebook, out = Path(notebook), Path(out).resolve()
    if jobs < 1:
        raise PaifuserError(f"{jobs} jobs run nothing; ask for 1 or more.")
    if not notebook.is_file():
        raise PaifuserError(f"There is no notebook {notebook}.")
    runs = runs_of(notebook, values)
    due = [run for run in runs if replace or not _is_there(notebook, out / run.name)]
    _make(out)
    failures, is_interrupted = _Pool(notebook, out, jobs, replace=replace).run(due, on_run)
    rows = [
        _row(run, out, failures)
        for run in runs
        if run.name in failures or _is_complete(notebook, out / run.name)
    ]
    known = dict.fromkeys(name for row in rows for name in (*row.figures, *row.parameters))
    order = sort if sort in known else _usual_order(rows)
    swept = Sweep(
        notebook=notebook.name,
        jobs=jobs,
        runs=tuple(_sorted(rows, order)),
        sorted_by=order,
        is_interrupted=is_interrupted,
    )
    swept.save(out / "sweep.json")
    write_text(out / "sweep.md", swept.to_markdown())
    if sort and sort != order:
        raise PaifuserError(
            f"No run has a figure '{sort}' to sort by; there are {', '.join(known)}. All else is "
            "done."
        )
    return swept


class _Pool:
    """The processes that are under way."""

    def __init__(self, notebook: Path, out: Path, jobs: int, *, replace: bool) -> None:
        self.notebook, self.out, self.jobs, self.replace = notebook, out, jobs, replace
        self.alive: set[subprocess.Popen[str]] = set()
        self.lock = threading.Lock()
        self.is_stopped = False

    def run(
        self, due: Sequence[Run], on_run: Callable[[SweepRun], None] | None
    ) -> tuple[dict[str, str], bool]:
        """Why each run that failed did, and whether somebody interrupted."""
        failures: dict[str, str] = {}
        with (
            ThreadPoolExecutor(self.jobs) as threads,
            progress(f"sweep of {self.notebook.name}", len(due)) as shown,
        ):
            waiting: dict[Future[str | None], Run] = {
                threads.submit(self._run_one, run): run for run in due
            }
            try:
                for future in as_completed(waiting):
                    run, failure = waiting[future], future.result()
                    if failure:
                        failures[run.name] = failure
                    if on_run is not None:
                        on_run(_row(run, self.out, failures))
                    shown.advance(doing=run.name)
            except KeyboardInterrupt:
                self._stop()
                return failures, True
        return failures, False

    def _run_one(self, run: Run) -> str | None:
        """One process from its start to its end; what it said where it failed."""
        asked = {
            "notebook": str(self.notebook.resolve()),
            "out": str(self.out / run.name),
            "parameters": run.parameters,
            "replace": self.replace,
        }
        with self.lock:
            if self.is_stopped:
                return None
            process = subprocess.Popen(
                WORKER,
                env=_environment(self.jobs),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self.alive.add(process)
        _, said = process.communicate(json.dumps(asked))
        with self.lock:
            self.alive.discard(process)
        if process.returncode == 0 or self.is_stopped:
            return None
        lines = said.strip().splitlines()
        return (
            lines[-1] if lines else f"the process ended with {process.returncode} and said nothing"
        )

    def _stop(self) -> None:
        """Ask every process to stop, as Ctrl-C would, and end those that do not."""
        with self.lock:
            self.is_stopped = True
            alive = list(self.alive)
        for process in alive:
            process.send_signal(signal.SIGINT)
        for process in alive:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _environment(jobs: int) -> dict[str, str]:
    """That of this process, with the cores divided."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, usable_cores()[0] // jobs)),
        "PAIFUSER_PROGRESS": "none",
    }


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"Cannot make the folder {out}: {error.strerror}; choose another."
        ) from error


def _is_there(notebook: Path, folder: Path) -> bool:
    """Whether a run need not be done again; one of another text of the notebook is not taken for
    one of this.
    """
    if (folder / notebook.name).is_file() and not _is_complete(notebook, folder):
        raise PaifuserError(
            f"{folder} was run with another text of {notebook.name}; give --force to run all of "
            "them again, or another folder."
        )
    return _is_complete(notebook, folder)


def _is_complete(notebook: Path, folder: Path) -> bool:
    """Whether a run of this notebook is there; a folder appears only when its run is whole."""
    ran = folder / notebook.name
    return ran.is_file() and _cells(ran) == _cells(notebook)


def _cells(path: Path) -> list[str]:
    """The code of a notebook, without what papermill put in."""
    cells = nbformat.read(path, as_version=4).cells
    return [
        cell.source
        for cell in cells
        if cell.cell_type == "code" and "injected-parameters" not in cell.metadata.get("tags", [])
    ]


def _row(run: Run, out: Path, failures: Mapping[str, str]) -> SweepRun:
    if run.name in failures:
        return SweepRun(name=run.name, parameters=run.parameters, failure=failures[run.name])
    return reported(run, out / run.name)


def _usual_order(rows: Sequence[SweepRun]) -> str | None:
    """The metric where there is one, else the latency."""
    known = dict.fromkeys(name for row in rows for name in row.figures)
    return next(
        (name for name in known if name not in FIGURES),
        "latency_ms" if "latency_ms" in known else None,
    )


def _sorted(rows: Sequence[SweepRun], order: str | None) -> list[SweepRun]:
    """The best first; what does not have the figure last, as it came."""
    if order is None:
        return list(rows)

    def place(row: SweepRun) -> tuple[bool, float]:
        if (found := row.figures.get(order)) is not None:
            return False, found if order in FEW_IS_GOOD else -found
        given = row.parameters.get(order)
        return (False, given) if isinstance(given, int | float) else (True, 0.0)

    return sorted(rows, key=place)
