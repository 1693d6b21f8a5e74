"""Sweeps of a notebook: their runs, their reports, and failed or interrupted runs."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import optuna
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import paifuser_lab as lab
from paifuser_lab.cli import grid, program
from paifuser_lab.cli import sweep as running
from paifuser_lab.cli.grid import Run, runs_of, values_of
from paifuser_lab.cli.sweep import reported, sweep
from paifuser_lab.errors import FileError, PaifuserError
from paifuser_lab.planner import store
from paifuser_lab.records import Measurement, StepReport, Sweep, SweepRun
from tests.support.drawn import comparison_of
from tests.support.quick_notebooks import small_notebook

PARAMETERS = (
    'out = ""\nratio = 0.5\nseed = 0\nword = "a"\nis_quick = True\nlimit = None\nfolder = "a" + "b"'
)
REPORT = """import json
if seed == 1:
    raise ValueError("the loss is NaN")
with open(f"{out}/report.json", "w") as file:
    json.dump({"accuracy": ratio + seed, "word": word}, file)"""

# Replaces the worker process and does what the parameter `word` says.
FAKE_WORKER = """
import json, os, shutil, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # as the worker does
job = json.load(sys.stdin)
parameters, out = job["parameters"], job["out"]
if parameters.get("word") == "wait":
    try:
        open(out + ".started", "w").close()
        time.sleep(60)
    except KeyboardInterrupt:
        open(out + ".stopped", "w").close()
        sys.exit(130)
if parameters.get("word") == "fail":
    sys.exit("a warning\\nit failed")
if parameters.get("word") == "die":
    os._exit(9)
started = os.path.dirname(out) + "/word=wait.started"
while parameters.get("word") == "after" and not os.path.exists(started):
    time.sleep(0.05)
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
shutil.copy(job["notebook"], out)
figures = {"ratio_seen": parameters.get("ratio", 0), "threads": int(os.environ["OMP_NUM_THREADS"])}
json.dump(figures, open(out + "/report.json", "w"))
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return small_notebook(tmp_path / "small.ipynb", PARAMETERS, REPORT)


@pytest.fixture
def fake_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "running.py").write_text(textwrap.dedent(FAKE_WORKER))
    monkeypatch.setattr(running, "WORKER", [sys.executable, str(tmp_path / "running.py")])


@pytest.fixture
def swept(command: Callable[..., Any], notebook: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs the command for the notebook and the folder `out`: its exit code and what it printed."""
    return lambda *options: command("sweep", notebook, *options, "--out", tmp_path / "out")


def test_runs_of_a_real_notebook_are_reported_and_a_failed_one_does_not_stop_the_others(
    swept: Callable[..., Any], tmp_path: Path
) -> None:
    code, out, err = swept("-p", "ratio=0.25", "-p", "seed=0..1", "--jobs", "2")
    assert code == 1
    assert "ratio=0.25,seed=1: small.ipynb failed in cell 3: ValueError: the loss is NaN" in err
    assert re.search(r"^ratio=0\.25,seed=0 · accuracy 0\.25 · \d+\.\d s$", out, re.MULTILINE)
    record = lab.Record.load(tmp_path / "out" / "sweep.json")
    assert isinstance(record, Sweep)
    assert [(run.parameters, run.figures) for run in record.runs] == [
        ({"ratio": 0.25, "seed": 0}, {"accuracy": 0.25}),
        ({"ratio": 0.25, "seed": 1}, {}),
    ]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    failed = "ratio=0.25,seed=1.failed.ipynb"
    assert names == {"ratio=0.25,seed=0", failed, "sweep.json", "sweep.md", "sweep.html"}
    assert "the loss is NaN" in (tmp_path / "out" / failed).read_text()
    page = (tmp_path / "out" / "sweep.html").read_text()
    assert "the loss is NaN" in page and "<script" not in page and "://" not in page
    assert "| 0.25 | 0 | 0.25 |  |" in (tmp_path / "out" / "sweep.md").read_text()


@pytest.mark.usefixtures("fake_worker")
def test_complete_runs_are_not_repeated(notebook: Path, tmp_path: Path) -> None:
    done: list[str] = []
    first = sweep(
        notebook,
        {"ratio": [0.3, 0.5], "word": ["a", "fail", "die"]},
        tmp_path / "out",
        on_run=lambda run: done.append(run.name),
    )
    assert len(done) == 6 and not first.is_interrupted
    assert {run.failure for run in first.failed} == {
        "it failed",
        "the process ended with 9 and said nothing",
    }
    done.clear()
    second = sweep(
        notebook,
        {"ratio": [0.3, 0.5, 0.7], "word": ["a"]},
        tmp_path / "out",
        on_run=lambda run: done.append(run.name),
    )
    assert done == ["ratio=0.7,word=a"] and len(second.runs) == 3 and not second.failed
    sweep(
        notebook,
        {"ratio": [0.3], "word": ["a"]},
        tmp_path / "out",
        replace=True,
        on_run=lambda run: done.append(run.name),
    )
    assert done[1:] == ["ratio=0.3,word=a"]


@pytest.fixture
def shared(notebook: Path, tmp_path: Path, fake_worker: None) -> Callable[..., list[SweepRun]]:
    """Sweeps of `word` in a folder, with one database."""

    def run(folder: str, words: list[str], **options: Any) -> list[SweepRun]:
        values = {"word": words} | options.pop("values", {})
        url = f"sqlite:///{tmp_path / 'runs.db'}"
        return list(sweep(notebook, values, tmp_path / folder, study=url, **options).runs)

    return run


def folders(of: Path) -> set[str]:
    return {path.name for path in of.iterdir() if path.is_dir()}


def test_a_run_that_is_complete_is_not_repeated_in_another_folder_of_the_study(
    shared: Callable[..., list[SweepRun]], notebook: Path, tmp_path: Path
) -> None:
    sweep(notebook, {"word": ["c"]}, tmp_path / "one")  # before there is a study
    first = shared("one", ["a", "b", "c"], values={"ratio": [0.3]}) + shared("one", ["c"])
    assert len(folders(tmp_path / "one")) == 4 and not any(run.note for run in first)
    (again,) = shared("two", ["a"], values={"ratio": [0.3]})
    assert again.parameters == {"word": "a", "ratio": 0.3} and again.figures == first[0].figures
    assert f"run in {tmp_path / 'one' / again.name} on {os.uname().nodename}" == again.note
    (other,) = shared("two", ["c"])
    assert other.figures and str(tmp_path / "one") in other.note
    assert not folders(tmp_path / "two")
    in_other_order = ["-p", "ratio=0.3", "-p", "word=b", "--out", str(tmp_path / "two")]
    study = ["--study", f"sqlite:///{tmp_path / 'runs.db'}"]
    printed = CliRunner().invoke(program.app, ["sweep", str(notebook), *in_other_order, *study])
    assert printed.exit_code == 0 and f"run in {tmp_path / 'one'}" in printed.output
    assert not folders(tmp_path / "two")
    assert not shared("two", ["c", "d"], replace=True)[0].note
    assert folders(tmp_path / "two") == {"word=c", "word=d"}
    assert str(tmp_path / "two") in shared("three", ["c"])[0].note  # the newest
    notebook.write_text(notebook.read_text().replace("the loss is NaN", "the loss is no number"))
    assert not shared("four", ["a"], values={"ratio": [0.3]})[0].note


def test_a_run_of_the_study_that_failed_or_was_stopped_is_tried_again(
    shared: Callable[..., list[SweepRun]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "one", "two"):
        assert [run.failure for run in shared(folder, ["fail"])] == ["it failed"]
    monkeypatch.setattr(running._Pool, "_run_process", lambda pool, run: pool._stop())
    assert not shared("one", ["a"])
    monkeypatch.undo()
    assert [each.state.name for each in opened(tmp_path).get_trials()] == ["FAIL"] * 4


def opened(tmp_path: Path) -> Any:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    (name,) = optuna.get_all_study_names(url)
    return optuna.load_study(study_name=name, storage=url)


KEY_OF_A = '{"word": "a"}'


def claim(study: Any, owner: list[Any]) -> None:
    attributes = {store.KEY: KEY_OF_A, store.OWNER: owner, store.TOKEN: "another's"}
    state = optuna.trial.TrialState.RUNNING
    study.add_trial(optuna.trial.create_trial(state=state, user_attrs=attributes))


def test_a_run_that_a_living_process_is_at_is_left_to_it_and_one_of_a_dead_process_is_not(
    shared: Callable[..., list[SweepRun]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared("one", ["b"])
    parent = os.getppid()
    living = [os.uname().nodename, parent, psutil.Process(parent).create_time()]
    real, adding = optuna.Study.add_trial, []

    def meanwhile(study: Any, trial: Any) -> None:
        if not adding:
            adding.append(trial)
            claim(study, living)
        real(study, trial)

    monkeypatch.setattr(optuna.Study, "add_trial", meanwhile)
    for options in ({}, {}, {"replace": True}):  # once it came while this process began
        left, _ = sorted(shared("one", ["a", "b"], **options), key=lambda run: run.name)
        assert left.note == f"not run here: process {parent} on {living[0]} is at it"
        assert left.parameters == {"word": "a"} and folders(tmp_path / "one") == {"word=b"}
    study = opened(tmp_path)
    number = next(each.number for each in study.get_trials() if each.state.name == "RUNNING")
    study.tell(number, state=optuna.trial.TrialState.FAIL)
    claim(study, [living[0], parent, 1.0])  # another process had this number
    assert [run.note for run in shared("one", ["a"])] == [""]
    assert folders(tmp_path / "one") == {"word=a", "word=b"}


def test_of_two_that_begin_a_run_together_the_first_has_it(
    shared: Callable[..., list[SweepRun]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = os.getppid()
    living = [os.uname().nodename, parent, psutil.Process(parent).create_time()]
    real, added = optuna.Study.add_trial, []

    def then_another(study: Any, trial: Any) -> None:
        real(study, trial)
        if not added:
            added.append(trial)
            claim(study, living)

    monkeypatch.setattr(optuna.Study, "add_trial", then_another)
    assert [run.note for run in shared("one", ["a"])] == [""]
    assert folders(tmp_path / "one") == {"word=a"}


def test_two_processes_with_one_study_divide_the_runs(
    shared: Callable[..., list[SweepRun]], notebook: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from paifuser_lab.cli import sweep as running\n"
        "notebook, worker, out, url = sys.argv[1:]\n"
        "running.WORKER = [sys.executable, worker]\n"
        "swept = running.sweep(notebook, {'seed': range(4)}, out, study=url, jobs=2)\n"
        "assert len(swept.runs) == 4 and not swept.failed"
    )
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    outs = [tmp_path / "one", tmp_path / "two"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(notebook), str(tmp_path / "running.py"), str(out), url]
        )
        for out in outs
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    ran = [folders(out) for out in outs]
    assert len(ran[0]) + len(ran[1]) == 4 == len(ran[0] | ran[1])
    states = [trial.state.name for trial in opened(tmp_path).get_trials()]
    assert states.count("COMPLETE") == 4 and "RUNNING" not in states


def test_a_study_that_cannot_be_used_is_named(
    shared: Callable[..., list[SweepRun]], tmp_path: Path
) -> None:
    (tmp_path / "runs.db").write_text("no database")
    with pytest.raises(FileError, match=r"runs.db cannot be used"):
        shared("one", ["a"])


@pytest.mark.usefixtures("fake_worker")
def test_runs_of_a_notebook_with_other_code_are_refused(notebook: Path, tmp_path: Path) -> None:
    sweep(notebook, {"ratio": [0.3]}, tmp_path / "out")
    notebook.write_text(notebook.read_text().replace("the loss is NaN", "the loss is not a number"))
    with pytest.raises(
        PaifuserError, match=r"ratio=0.3 was run with another text of small.ipynb; give --force"
    ):
        sweep(notebook, {"ratio": [0.3, 0.4]}, tmp_path / "out")
    assert not (tmp_path / "out" / "ratio=0.4").exists()
    assert len(sweep(notebook, {"ratio": [0.3]}, tmp_path / "out", replace=True).runs) == 1


@pytest.mark.usefixtures("fake_worker")
def test_an_interrupt_stops_running_notebooks_and_keeps_complete_runs(
    swept: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(run: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "_print_run", interrupted)
    out = tmp_path / "out"
    code, _, _ = swept("-p", "word=wait,after,a,b", "--jobs", "2")
    assert code == 130
    assert {path.name for path in out.iterdir()} >= {
        "word=after",
        "word=wait.stopped",
        "sweep.json",
    }
    assert not (out / "word=wait").exists()
    record = lab.Record.load(out / "sweep.json")
    assert isinstance(record, Sweep)
    assert record.is_interrupted and "stopped early" in record.title and not record.failed


def test_a_killed_sweep_takes_its_running_notebook_with_it(notebook: Path, tmp_path: Path) -> None:
    slow = nbformat.read(notebook, as_version=4)
    slow.cells[1].source = "import time\nopen(f'{out}/started', 'w').close()\ntime.sleep(60)"
    nbformat.write(slow, notebook)
    out = tmp_path / "out"
    command = ["-m", "paifuser_lab.cli", "sweep", str(notebook), "-p", "seed=0", "--out", str(out)]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as started:
        wait_for(lambda: any(out.glob(".seed=0.*/started")))
        (worker,) = psutil.Process(started.pid).children()
        started.kill()
    worker.wait(30)  # not a child of this process: raises unless it ends
    assert not [*out.iterdir()], "what it had begun is removed"


def wait_for(is_there: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def test_a_process_of_a_sweep_in_the_background_can_be_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {"notebook": "a.ipynb", "out": "out", "parameters": {}, "replace": False}
    job["sweep"] = os.getppid()
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(job)))
    monkeypatch.setattr(
        running, "run_notebook", lambda *args, **options: signal.raise_signal(signal.SIGINT)
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert running.main() == running.STOPPED
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("fake_worker")
def test_jobs_share_the_cores_and_the_title_warns_of_disturbed_latencies(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "usable_cores", lambda: (8, 16))
    swept = sweep(notebook, {"ratio": [0.1, 0.9]}, tmp_path / "out", jobs=2, sort="ratio_seen")
    assert [run.figures for run in swept.runs] == [
        {"ratio_seen": 0.9, "threads": 4},
        {"ratio_seen": 0.1, "threads": 4},
    ]
    assert "2 at a time, so latencies disturbed each other" in swept.title
    assert list(
        sweep(notebook, {"ratio": [0.9, 0.1]}, tmp_path / "out", sort="ratio").frame["ratio"]
    ) == [0.1, 0.9]
    with pytest.raises(
        PaifuserError,
        match=(
            r"No run has a figure 'speed' to sort by; there are ratio_seen, threads, ratio\. All "
            r"else"
        ),
    ):
        sweep(notebook, {"ratio": [0.1, 0.9]}, tmp_path / "out", sort="speed")


REFUSED = {
    "a name that is not declared": (
        ["rato=0.5"],
        "small.ipynb has no parameter 'rato'; it has out, ratio",
    ),
    "the folder": (["out=a,b"], "chooses each run's 'out'"),
    "a word for a number": (["ratio=half"], "ratio = 0.5; 'half' is no number"),
    "a fraction for an integer": (["seed=0.5"], "seed = 0; 0.5 is not an integer"),
    "a number for a truth": (["is_quick=1"], "is_quick = True; 1 is neither true nor false"),
    "a truth for a number": (["ratio=true"], "ratio = 0.5; True is no number"),
    "no values": (["ratio="], "gives no values"),
    "no name": (["ra tio=1"], "gives no values"),
    "no sign": (["ratio"], "write name=value,value or name=low..high"),
    "a list": (["ratio=[1,2]"], "each value is a number or a word"),
    "an open quote": (['word="a'], "cannot be read; put words with commas"),
    "twice": (["ratio=0.3", "ratio=0.5"], "'ratio' is given twice"),
    "a falling range": (["seed=4..0"], "a range rises"),
    "too many": (
        ["seed=0..999", "ratio=0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95,0.99"],
        "11,000 runs, past the limit",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_parameters_are_refused_before_anything_runs(
    case: str, swept: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, sentence = REFUSED[case]
    monkeypatch.setattr(running, "WORKER", ["/nowhere"])
    code, _, err = swept(*(part for text in texts for part in ("-p", text)))
    assert code == 2 and sentence in err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_a_file_is_refused(notebook: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="Cannot make the folder"):
        sweep(notebook, {"ratio": [0.5]}, tmp_path / "file")


def test_values_are_numbers_words_and_ranges() -> None:
    texts = [
        "ratio=0.3, 1e-3",
        "seed=0..2,7",
        'word=a,"b,c",no',
        "is_quick=true,false",
        "limit=null",
    ]
    assert values_of(texts) == {
        "ratio": [0.3, 1e-3],
        "seed": [0, 1, 2, 7],
        "word": ["a", "b,c", "no"],
        "is_quick": [True, False],
        "limit": [None],
    }


def test_values_are_converted_to_the_declared_types(notebook: Path) -> None:
    runs = runs_of(notebook, {"word": [50, "x/y"], "ratio": [1], "folder": [3], "limit": [None, 4]})
    assert [run.parameters["word"] for run in runs] == ["50", "50", "x/y", "x/y"]
    assert {run.parameters["folder"] for run in runs} == {3}, "an expression may be anything"
    assert (
        all("/" not in run.name for run in runs)
        and runs[0].name == "word=50,ratio=1,folder=3,limit=None"
    )


NO_DEFAULT: Any = {"default": "None"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True),
)
def test_every_combination_has_a_folder_of_its_own(words: list[str], seeds: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "check_parameters", lambda notebook, values: None)
        patch.setattr(
            grid, "declared", lambda notebook: dict.fromkeys(("word", "seed"), NO_DEFAULT)
        )
        runs = runs_of(Path("x.ipynb"), {"word": words, "seed": seeds})
    assert len(runs) == len(words) * len(seeds) == len({run.name for run in runs})
    assert not any(
        set(run.name) & set('/\\:*?"<>|\n\0') or len(run.name.encode()) > 240 for run in runs
    )


ROW = Measurement(
    name="cut", threads=1, latency_ms=2.5, parameters=1200, metric=0.75, size_bytes=4800
)
REPORTS: dict[str, tuple[Any, dict[str, float], str]] = {
    "a comparison": (
        comparison_of(Measurement(name="b", threads=1), ROW, metric_name="accuracy"),
        {"accuracy": 0.75, "latency_ms": 2.5, "parameters": 1200, "size_bytes": 4800},
        "",
    ),
    "a measurement": (
        ROW.model_copy(update={"metric": None}),
        {"latency_ms": 2.5, "parameters": 1200, "size_bytes": 4800},
        "",
    ),
    "a refused one": (
        Measurement(name="cut", threads=1, metric=0.5, refused="too far"),
        {"metric": 0.5},
        "refused: too far",
    ),
    "numbers by name": (
        '{"loss": 0.5, "is_good": true, "name": "x", "bad": NaN}',
        {"loss": 0.5},
        "",
    ),
    "another record": (
        StepReport(step="fold", seconds=1, relative_error=0),
        {},
        "its report.json is a StepReport, which is no model's figures",
    ),
    "a list": ("[1]", {}, "its report.json holds no figures by name"),
    "no JSON": ("{", {}, "its report.json is not JSON"),
    "none": (None, {}, "it left no report.json"),
}


@pytest.mark.parametrize("case", REPORTS)
def test_figures_are_read_from_records_and_from_plain_json(case: str, tmp_path: Path) -> None:
    report, figures, note = REPORTS[case]
    if isinstance(report, str):
        (tmp_path / "report.json").write_text(report)
    elif report is not None:
        report.save(tmp_path / "report.json")
    row = reported(Run("one", {"ratio": 0.5}), tmp_path)
    assert (row.figures, row.note) == (figures, note)


@pytest.mark.parametrize(("is_lower", "best"), [(True, 2.0), (False, 9.0)])
def test_the_best_metric_comes_first_also_where_smaller_is_better(
    is_lower: bool, best: float, tmp_path: Path
) -> None:
    rows = []
    for perplexity in (9.0, 2.0, 4.0):
        last = ROW.model_copy(update={"metric": perplexity})
        report = comparison_of(last, metric_name="score", smaller_is_better=is_lower)
        report.save(tmp_path / "report.json")
        rows.append(reported(Run(str(perplexity), {}), tmp_path))
    assert running._sorted(rows, "score")[0].figures["score"] == best


def test_runs_are_sorted_by_a_parameter_of_words_behind_numbers_and_before_none() -> None:
    rows = [SweepRun(name=str(word), parameters={"word": word}) for word in ("b", None, "a", 2)]
    assert [row.name for row in running._sorted(rows, "word")] == ["2", "a", "b", "None"]


def test_a_table_escapes_text_from_parameters_and_errors() -> None:
    runs = (
        SweepRun(
            name="a",
            parameters={"word": "x|y"},
            figures={"latency_ms": 1.25, "parameters": 11_689_512, "size_bytes": 1536},
        ),
        SweepRun(name="b", parameters={"word": "<b>"}, failure="it broke\nfor two reasons"),
    )
    swept = Sweep(notebook="n.ipynb", jobs=1, runs=runs)
    assert "| x\\|y | 1.25 | 11.7 M | 1.54 kB |  |" in swept.to_markdown()
    assert "it broke for two reasons" in swept.to_markdown() and "<b>" not in swept._repr_html_()
    assert json.loads(swept.model_dump_json())["runs"][1][
        "failure"
    ] and "n.ipynb: 2 runs, 1 failed" in str(swept)
    assert "nothing has been run" in Sweep(notebook="n.ipynb", jobs=1, runs=()).to_markdown()
