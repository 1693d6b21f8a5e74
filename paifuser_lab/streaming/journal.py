"""What a stream has delivered, in SQLite, so that a restarted one goes on behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._files import checked_path
from ..errors import StreamError, first_line
from .stage import Result

TABLES = """
create table if not exists stream (identity text not null);
create table if not exists committed (
    only integer primary key check (only = 1), groups integer not null, frames integer not null,
    set_aside integer not null, token text
);
"""
COMMIT = """
insert into committed values (1, 1, ?, ?, ?) on conflict (only) do update set
    groups = groups + 1, frames = frames + excluded.frames,
    set_aside = set_aside + excluded.set_aside, token = excluded.token
"""


@dataclass(frozen=True)
class Position:
    """How much is committed, and what the sink gave with the last group."""

    groups: int = 0
    frames: int = 0
    set_aside: int = 0
    token: str | None = None


class Journal:
    """A file of SQLite with the number of groups delivered; one stream writes it at a time.

    A group is committed, with the sink's token, in one transaction after the sink has taken it, so
    what a killed process had written past the last commit is known, and is removed.
    """

    def __init__(self, path: str | Path, identity: str) -> None:
        self.path = checked_path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self.path, timeout=0.2, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise StreamError(
                f"The journal {self.path} cannot be opened: {first_line(error)}; choose another "
                "file."
            ) from error
        try:
            self._begin(identity)
        except BaseException:
            self._database.close()
            raise

    def _begin(self, identity: str) -> None:
        try:
            # held until close, and let go by the system when the process is killed
            self._database.execute("pragma locking_mode = exclusive")
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("begin immediate")
            for statement in TABLES.split(";"):
                self._database.execute(statement)
            known = self._database.execute("select identity from stream").fetchone()
            if known is None:
                self._database.execute("insert into stream values (?)", (identity,))
            self._database.execute("commit")
        except sqlite3.OperationalError as error:
            raise StreamError(
                f"The journal {self.path} is in use or cannot be written ({first_line(error)}); "
                "stop the stream that writes it, or choose another file."
            ) from error
        except sqlite3.DatabaseError as error:
            raise StreamError(
                f"{self.path} is not a stream's journal ({first_line(error)}); choose another file."
            ) from error
        if known is not None and known[0] != identity:
            raise StreamError(
                f"The journal {self.path} belongs to another stream ({known[0]}); this one is "
                f"{identity}. Delete the file to begin anew, or choose another."
            )

    @property
    def position(self) -> Position:
        """What is committed."""
        row = self._database.execute(
            "select groups, frames, set_aside, token from committed"
        ).fetchone()
        return Position(*row) if row else Position()

    def commit(self, results: Sequence[Result], token: str | None) -> None:
        """The results of a group more have been taken by the sink."""
        failed = sum(result.error is not None for result in results)
        try:
            self._database.execute(COMMIT, (len(results), failed, token))
        except sqlite3.Error as error:
            raise StreamError(
                f"The journal {self.path} cannot be written ({first_line(error)}); free some space "
                "and run the stream again: it goes on behind the last group that was committed."
            ) from error

    def close(self) -> None:
        self._database.close()
