"""Run a notebook with every combination of parameter values, each in its own process, a few at a
time; complete runs are not repeated. `python -m paifuser_lab.cli.sweep` is such a process: it
reads its run as JSON from standard input, and reports its error on standard error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path

import nbformat

from .._files import make_folder, read_text, write_text
from ..errors import FileError, PaifuserError, first_line
from ..machine.host import usable_cores
from ..planner.store import Runs
from ..progress import progress
from ..records import Comparison, Measurement, Record, Sweep, SweepRun, Value
from .grid import Run, runs_of
from .notebook import REPORT, run_notebook

WORKER = [sys.executable, "-m", "paifuser_lab.cli.sweep"]
POLL_S = 0.5
STOP_TIMEOUT_S = 20.0  # from the interrupt of a process until it is killed
FAILED, STOPPED = 2, 130
LOWER_IS_BETTER = (
    "latency_ms",
    "parameters",
    "size_bytes",
    "flops",
    "peak_bytes",
    "relative_error",
)
FIGURES = ("speedup", *LOWER_IS_BETTER)


def sweep(
    notebook: str | Path,
    values: Mapping[str, Sequence[Value]],
    out: str | Path,
    *,
    jobs: int = 1,
    sort: str | None = None,
    replace: bool = False,
    study: str | None = None,
    on_run: Callable[[SweepRun], None] | None = None,
) -> Sweep:
    """Run a notebook with every combination of the values; `out` receives a folder per run,
    sweep.json, sweep.md and sweep.html, a page that needs nothing else.

    Runs that an earlier sweep completed are not repeated, unless `replace`. A run that fails is
    reported in its row, its notebook is kept until there as `<run>.failed.ipynb`, and the others
    continue. On an interrupt, running notebooks leave no
    folder, and complete runs stay. `study` is a database, such as "sqlite:///runs.db": what any
    sweep of this notebook that names it has completed is not repeated either, and what another
    process runs at the moment is left to it.
    """
    notebook, out = Path(notebook), Path(out).resolve()
    runs = runs_of(notebook, values)
    due = [run for run in runs if replace or not _is_done(notebook, out / run.name)]
    make_folder(out)
    shared = Runs.open(study, _study_name(notebook)) if study is not None else None
    pool = _Pool(notebook, out, jobs, replace=replace, shared=shared)
    if shared is not None:
        names = {run.name for run in due}
        for run in (run for run in runs if run.name not in names):
            pool.share(run)
    failures, is_interrupted = pool.run(due, on_run)
    rows = [
        pool.row(run, failures)
        for run in runs
        if run.name in failures
        or run.name in pool.elsewhere
        or _is_complete(notebook, out / run.name)
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
    from ..views.page import offline_page  # matplotlib takes a second, and each run imports this

    write_text(out / "sweep.html", offline_page(swept.notebook, swept._repr_html_()))
    if sort and sort != order:
        raise PaifuserError(
            f"No run has a figure '{sort}' to sort by; there are {', '.join(known)}. All else is "
            "done."
        )
    return swept


class _Pool:
    """The running processes of a sweep."""

    def __init__(
        self, notebook: Path, out: Path, jobs: int, *, replace: bool, shared: Runs | None
    ) -> None:
        self.notebook, self.out, self.jobs, self.replace = notebook, out, jobs, replace
        self.shared = shared
        self.elsewhere: dict[str, SweepRun] = {}  # by name, what is left to other sweeps
        self.alive: set[subprocess.Popen[str]] = set()
        self.lock = threading.Lock()
        self.is_stopped = False
        self.seconds: dict[str, float] = {}

    def run(
        self, due: Sequence[Run], on_run: Callable[[SweepRun], None] | None
    ) -> tuple[dict[str, str], bool]:
        """The errors of the runs that failed, by name, and whether Ctrl-C interrupted the sweep."""
        failures: dict[str, str] = {}
        # a line a run, if the caller prints one, stands in place of the bar
        what = f"sweep of {self.notebook.name}"
        bar = progress(what, len(due)) if on_run is None else nullcontext()
        with ThreadPoolExecutor(self.jobs) as threads, bar as shown:
            waiting: dict[Future[str | None], Run] = {
                threads.submit(self._run, run): run for run in due
            }
            try:
                for future in as_completed(waiting):
                    run, failure = waiting[future], future.result()
                    if failure:
                        failures[run.name] = failure
                    if on_run is not None:
                        row = self.row(run, failures)
                        on_run(row.model_copy(update={"seconds": self.seconds.get(run.name)}))
                    if shown is not None:
                        shown.advance(doing=run.name)
            except KeyboardInterrupt:
                self._stop()
                return failures, True
        return failures, False

    def row(self, run: Run, failures: Mapping[str, str]) -> SweepRun:
        """What a run gave, here or in another sweep."""
        if run.name in failures:
            return SweepRun(name=run.name, parameters=run.parameters, failure=failures[run.name])
        return self.elsewhere.get(run.name) or reported(run, self.out / run.name)

    def share(self, run: Run) -> None:
        """Keep a complete run of this folder for other sweeps."""
        assert self.shared is not None
        if isinstance(number := self.shared.begin(_key(run)), int):
            self.shared.end(number, _key(run), self._shown(run))

    def _shown(self, run: Run) -> SweepRun:
        """A complete run as other sweeps show it."""
        row = self.row(run, {})
        place = f"run in {self.out / run.name} on {platform.node()}"
        return row.model_copy(update={"note": "; ".join(filter(None, (row.note, place)))})

    def _run(self, run: Run) -> str | None:
        """Run one notebook, unless another sweep has it; return its error message if it failed."""
        if self.shared is None or self.is_stopped:
            return self._run_process(run)
        begun = self.shared.begin(_key(run), again=self.replace)
        if isinstance(begun, SweepRun):
            own = {"name": run.name, "parameters": run.parameters}
            self.elsewhere[run.name] = begun.model_copy(update=own)
            return None
        failure = self._run_process(run)
        is_done = failure is None and not self.is_stopped
        self.shared.end(begun, _key(run), self._shown(run) if is_done else None)
        return failure

    def _run_process(self, run: Run) -> str | None:
        """Run one process to its end; return its error message, or None if it succeeded."""
        job = {
            "notebook": str(self.notebook.resolve()),
            "out": str(self.out / run.name),
            "parameters": run.parameters,
            "replace": self.replace,
            "sweep": os.getpid(),
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
        began = time.perf_counter()
        _, stderr = process.communicate(json.dumps(job))
        with self.lock:
            self.alive.discard(process)
            self.seconds[run.name] = time.perf_counter() - began
        if process.returncode == 0 or self.is_stopped:
            return None
        lines = stderr.strip().splitlines()
        return (
            lines[-1] if lines else f"the process ended with {process.returncode} and said nothing"
        )

    def _stop(self) -> None:
        """Interrupt every process, as Ctrl-C would, and kill those that do not stop in time."""
        with self.lock:
            self.is_stopped = True
            alive = list(self.alive)
        for process in alive:
            process.send_signal(signal.SIGINT)
        for process in alive:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _environment(jobs: int) -> dict[str, str]:
    """This process's environment, with the cores divided among the jobs."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, usable_cores()[0] // jobs)),
        "PAIFUSER_PROGRESS": "none",
    }


def _is_done(notebook: Path, folder: Path) -> bool:
    """Whether a run is complete; raises if its folder holds a run of a notebook with other code."""
    if (folder / notebook.name).is_file() and not _is_complete(notebook, folder):
        raise PaifuserError(
            f"{folder} was run with another text of {notebook.name}; give --force to run all of "
            "them again, or another folder."
        )
    return _is_complete(notebook, folder)


def _is_complete(notebook: Path, folder: Path) -> bool:
    """Whether the folder holds a run of this notebook; it appears only when the run is complete."""
    executed = folder / notebook.name
    return executed.is_file() and _cells(executed) == _cells(notebook)


def _cells(path: Path) -> list[str]:
    """The code of a notebook, without the cell that papermill injected."""
    cells = nbformat.read(path, as_version=4).cells
    return [
        cell.source
        for cell in cells
        if cell.cell_type == "code" and "injected-parameters" not in cell.metadata.get("tags", [])
    ]


def _key(run: Run) -> str:
    """A run's parameters, in whichever order they were given."""
    return json.dumps(run.parameters, sort_keys=True)


def _study_name(notebook: Path) -> str:
    """A study holds the runs of one notebook, with one text."""
    digest = hashlib.sha256("\n".join(_cells(notebook)).encode()).hexdigest()
    return f"sweep · {notebook.name} · {digest[:12]}"


def _usual_order(rows: Sequence[SweepRun]) -> str | None:
    """The figure to sort by: the metric if there is one, else the latency."""
    known = dict.fromkeys(name for row in rows for name in row.figures)
    return next(
        (name for name in known if name not in FIGURES),
        "latency_ms" if "latency_ms" in known else None,
    )


def _sorted(rows: Sequence[SweepRun], order: str | None) -> list[SweepRun]:
    """Rows with the best first; those without the figure come last, in their original order."""
    if order is None:
        return list(rows)

    def sort_key(row: SweepRun) -> tuple[int, float, str]:
        if (figure := row.figures.get(order)) is not None:
            is_lower = order in LOWER_IS_BETTER or (row.smaller_is_better and order not in FIGURES)
            return 0, figure if is_lower else -figure, ""
        value = row.parameters.get(order)
        if isinstance(value, str):
            return 1, 0.0, value
        return (0, value, "") if isinstance(value, int | float) else (2, 0.0, "")

    return sorted(rows, key=sort_key)


def reported(run: Run, folder: Path) -> SweepRun:
    """The run with its figures: the last row of a comparison, a whole measurement, or the top-level
    numbers of other JSON.
    """
    path = folder / REPORT
    row = SweepRun(name=run.name, parameters=run.parameters)
    if not path.is_file():
        return row.model_copy(update={"note": f"it left no {REPORT}"})
    try:
        return row.model_copy(update=_figures(path))
    except FileError as error:
        return row.model_copy(update={"note": str(error)})


def _figures(path: Path) -> dict[str, object]:
    try:
        content = json.loads(read_text(path))
    except ValueError as error:
        raise FileError(f"its {path.name} is not JSON") from error
    if not isinstance(content, dict):
        raise FileError(f"its {path.name} holds no figures by name")
    if "record" not in content:
        return {
            "figures": {name: float(value) for name, value in content.items() if _is_number(value)}
        }
    record = Record.load(path)
    if isinstance(record, Comparison) and record.rows:
        row = _row_figures(record.rows[-1], record.metric_name or "metric")
        return row | {"smaller_is_better": record.smaller_is_better}
    if isinstance(record, Measurement):
        return _row_figures(record, "metric")
    return {"note": f"its {path.name} is a {type(record).__name__}, which is no model's figures"}


def _row_figures(row: Measurement, metric_name: str) -> dict[str, object]:
    figures = {metric_name: row.metric} | {name: getattr(row, name) for name in FIGURES}
    note = row.failure or (f"refused: {row.refused}" if row.refused else "")
    return {
        "figures": {name: float(value) for name, value in figures.items() if _is_number(value)},
        "note": note,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _end_with(sweep: int) -> None:
    """Interrupt this process once the sweep that started it was killed: the next one runs the
    notebook again, in the same folder.
    """
    while os.getppid() == sweep:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGINT)


def main() -> int:
    """Run the notebook and return the exit code."""
    # a sweep in the background of a shell ignores SIGINT, and so would its processes
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job = json.load(sys.stdin)
    threading.Thread(target=_end_with, args=[job["sweep"]], daemon=True).start()
    failed = Path(f"{job['out']}.failed.ipynb")
    failed.unlink(missing_ok=True)
    try:
        run_notebook(
            Path(job["notebook"]),
            job["out"],
            job["parameters"],
            replace=job["replace"],
            keep_failed=failed,
        )
    except PaifuserError as error:
        sys.stderr.write(f"{first_line(error)}\n")
        return FAILED
    except KeyboardInterrupt:
        return STOPPED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
