"""What was measured in any session: a row per variant and comparison, in the user's database.

A row holds the recipe and figures, never a weight or a datum. `PAIFUSER_HISTORY=0` keeps nothing.
Built on SQLite.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from pydantic import ValidationError

from .._files import APP, HISTORY_OFF, history_file
from ..errors import FileError, MeasureError, first_line
from ..records import Comparison, Limit, Measurement, ResultPair, ResultRow, Results
from ..records.record import Frame, frame_of
from ..records.text import or_dash, readable_ms
from ..workload import Workload, workload_of
from .recipe import Recipe

MOST_ROWS = 20_000  # about 40 MB; older ones are forgotten
PATIENCE_S = 5.0  # for another process that writes
SESSION = uuid4().hex[:12]  # of this process
TABLE = (
    "CREATE TABLE IF NOT EXISTS measured"
    " (number INTEGER PRIMARY KEY, workload TEXT, structure TEXT, data TEXT)"
)
OTHER = {"machine": "another machine", "inputs": "other inputs"}  # else another model


class PastRow(ResultRow):
    """A variant as it was measured: which model, when, on which machine, with which versions."""

    workload: str
    structure: str  # the hash of the names, shapes and types of its weights
    weights: str | None  # their hash
    machine: str
    when: str
    session: str  # the process that measured it
    versions: dict[str, str]
    rounds: int
    metric_name: str | None = None
    inputs: str = ""  # their shapes and types; '' where an earlier version kept the row
    limit: Limit = Limit()

    @property
    def recipe(self) -> Recipe:
        """The recipe, to be applied again. A limit that lets anything pass, as that of a search's
        trials, becomes the usual one, widened to what was measured.
        """
        limit = self.limit
        if limit.metric_drop == 1 and (self.relative_error or 0.0) < limit.output_error:
            error = max(Limit().output_error, self.relative_error or 0.0)
            limit = Limit(output_error=error)
        return Recipe(self.steps, workload=self.workload, limit=limit)


class History(Results):
    """Rows of any session, the newest last."""

    text_columns = ("when", "model", "inputs", "recipe", "verdict", "machine", "note")

    rows: tuple[PastRow, ...] = ()

    def __getitem__(self, number: int) -> PastRow:
        row = super().__getitem__(number)
        assert isinstance(row, PastRow)
        return row

    def where(
        self, model: str = "", machine: str = "", since: str = "", session: str = ""
    ) -> History:
        """The rows whose model and machine have these words in their names, from a day on such as
        "2026-11-01", of one session.
        """
        if since:
            try:
                since = datetime.fromisoformat(since).isoformat()
            except ValueError as error:
                raise MeasureError(f"since={since!r} is no day; write it as 2026-11-01.") from error
        kept = tuple(
            row
            for row in self.rows
            if model.lower() in row.workload.lower()
            and machine.lower() in row.machine.lower()
            and row.when >= since
            and session in ("", row.session)
        )
        return self.model_copy(update={"rows": kept})

    def pair(self, first: int, second: int) -> ResultPair:
        """Compare two rows; times of two models, machines or batches say nothing about each
        other.
        """
        pair = super().pair(first, second)
        before, after = self[first], self[second]
        for name in ("weights", "structure", "workload", "machine", "inputs"):
            one, other = getattr(before, name), getattr(after, name)
            if one != other and "" not in (one, other):
                what = OTHER.get(name, "another model")
                return pair._replace(
                    speedup=None,
                    speedup_interval=None,
                    verdict=pair.verdict._replace(word="not told", sentence=what),
                    difference=f"B is of {what}, so their times say nothing about each "
                    f"other. {pair.difference}",
                )
        return pair

    @property
    def frame(self) -> Frame:
        """A row of plain values for each, with its model, machine and day."""
        left_out = {"steps", "step_labels", "quality", "versions", "limit"}
        rows = [
            row.model_dump(exclude=left_out) | {"verdict": row.verdict.word} for row in self.rows
        ]
        columns = [name for name in PastRow.model_fields if name not in left_out]
        return frame_of(rows, "number", [*columns, "verdict"])

    @property
    def title(self) -> str:
        """Of which model the rows are, and how many."""
        of = f" of {self.workload}" if self.workload else ""
        return f"{len(self.rows)} measured{of}"

    def table(self) -> list[dict[str, str]]:
        """The rows as text."""
        differ = len({row.inputs for row in self.rows}) > 1
        return [
            {
                "number": str(row.number),
                "when": row.when[:16].replace("T", " "),
                "model": row.workload,
                **({"inputs": row.inputs} if differ else {}),
                "recipe": row.label,
                "latency": readable_ms(row.latency_ms),
                "verdict": row.verdict.sentence.partition(" · ")[2] or row.verdict.word,
                "metric": or_dash(row.metric, "{:.4f}"),
                "machine": row.machine,
                "note": f"refused: {row.refused}" if row.refused else "",
            }
            for row in self.rows
        ] or [{"note": "nothing has been measured yet"}]


def history(work: Workload | str | None = None) -> History:
    """Every variant that was measured in any session, the newest last; of a model or all.

    A model is known by the structure of its weights, so that rows of an earlier training are found;
    a name finds all models of that name. `history(work)[12].recipe` is applied again, `.pair(3, 5)`
    compares two rows, `.where(machine="Xeon", since="2026-11-01")` narrows them down, `.frame` is a
    table of plain numbers.
    """
    file = history_file()
    name, condition, value = "", "", ""
    if isinstance(work, str):
        name, condition, value = work, "WHERE workload = ?", work
    elif work is not None:
        work = workload_of(work)
        name, condition, value = work.name, "WHERE structure = ?", structure_hash(work)
    found: Sequence[tuple[int, str]] = ()
    if file is not None and file.is_file():
        with _opened(file) as database:
            chosen = f"SELECT number, data FROM measured {condition} ORDER BY number"
            found = database.execute(chosen, [value] if condition else []).fetchall()
    try:
        rows = tuple(
            PastRow.model_validate({**json.loads(data), "number": number}) for number, data in found
        )
    except (ValidationError, ValueError) as error:
        raise FileError(
            f"The history in {file} holds a row of another version ({first_line(error)}); "
            "move the file away."
        ) from error
    return History(workload=name, machine="", rows=rows)


def keep(work: Workload, compared: Comparison, recipes: Mapping[str, Recipe]) -> None:
    """Keep the measured rows of a comparison; a database that cannot be written only costs that."""
    rows = [row for row in compared.rows if row.name in recipes and row.latency_ms is not None]
    if not rows:
        return
    base = compared[compared.baseline]
    about: dict[str, Any] = {
        "workload": str(work.name),
        "structure": structure_hash(work),
        "weights": base.weights_hash,
        "machine": compared.machine,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "session": SESSION,
        "versions": _versions(),
        "rounds": compared.rounds,
        "metric_name": compared.metric_name,
        "inputs": work.inputs.described,
        "before_ms": base.latency_ms,
        "quality": compared.quality,
    }
    figures = set(ResultRow.model_fields) & set(Measurement.model_fields) - {"steps"}
    kept = [
        PastRow(
            number=0,
            label=recipes[row.name].label,
            steps=_steps_of(recipes[row.name]),
            step_labels=tuple(step.label for step in recipes[row.name]),
            limit=recipes[row.name].limit,
            **about,
            **{name: getattr(row, name) for name in figures},
        ).model_dump_json(exclude={"number"})
        for row in rows
    ]
    insert = "INSERT INTO measured (workload, structure, data) VALUES (?, ?, ?)"
    try:
        if (file := history_file()) is None:
            return
        with _opened(file) as database:
            database.executemany(
                insert, [(about["workload"], about["structure"], data) for data in kept]
            )
            database.execute(
                "DELETE FROM measured WHERE number <= (SELECT max(number) FROM measured) - ?",
                [MOST_ROWS],
            )
    except FileError as error:
        warnings.warn(f"What was measured is not remembered: {error}", stacklevel=3)


def add_metric(work: Workload, recipe: Recipe, metric: float) -> None:
    """Add a metric to the newest row of a recipe in this session: it was evaluated after timing."""
    if not math.isfinite(metric):
        return
    # json_extract, since `->>` needs SQLite 3.38, which systems of 2022 lack
    newest = (
        "SELECT max(number) FROM measured WHERE structure = ? "
        "AND json_extract(data, '$.session') = ? AND json_extract(data, '$.label') = ?"
    )
    change = (
        "UPDATE measured SET data = json_set(data, '$.metric', ?, '$.metric_name', ?) "
        f"WHERE number = ({newest})"
    )
    values = [metric, work.metric_name, structure_hash(work), SESSION, recipe.label]
    try:
        file = history_file()
        if file is None or not file.is_file():
            return
        with _opened(file) as database:
            database.execute(change, values)
    except FileError as error:
        warnings.warn(f"A metric is not remembered: {error}", stacklevel=3)


def structure_hash(work: Workload) -> str:
    """A hash of the names, shapes and types of a model's weights, whatever their values."""
    tensors = [*work.model.named_parameters(), *work.model.named_buffers()]
    texts = [f"{name} {tuple(x.shape)} {x.dtype}" for name, x in tensors]
    return hashlib.sha256("\n".join([type(work.model).__name__, *texts]).encode()).hexdigest()


def _steps_of(recipe: Recipe) -> tuple[dict[str, Any], ...]:
    return tuple(
        {step.kind: step.options | ({"why": step.why} if step.why else {})} for step in recipe
    )


@cache
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "paifuser-lab": version(APP),
    }


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The database, with its table; what is done in the block is kept together or not at all."""
    try:
        with closing(sqlite3.connect(file, timeout=PATIENCE_S)) as database, database:
            database.execute(TABLE)
            yield database
    except sqlite3.Error as error:
        raise FileError(
            f"The history in {file} cannot be used ({first_line(error)}); move the file away, or "
            f"set {HISTORY_OFF}=0."
        ) from error
