"""The base classes of records: frozen, typed, saved as JSON; and those read as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias, TypeVar, get_args
from uuid import uuid4

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from .._files import read_text, write_text
from ..errors import FileError, first_line
from .table import Columns, Table, table_of

if TYPE_CHECKING:
    import pandas

Frame: TypeAlias = "pandas.DataFrame"  # imported when one is asked for


class WorkloadName(str):
    """A name with the key of its workload, since several workloads may share a name, such as
    `Sequential`; a variant has the key of its workload. Only the name is saved.
    """

    key: str

    def __new__(cls, name: str, key: str = "") -> WorkloadName:
        workload_name = super().__new__(cls, name)
        workload_name.key = key or uuid4().hex
        return workload_name


def _keep_key(value: Any, handler: ValidatorFunctionWrapHandler) -> str:
    return value if isinstance(value, WorkloadName) else str(handler(value))


AboutWorkload = Annotated[str, WrapValidator(_keep_key)]


def workload_key(name: str) -> str:
    """The key of a record's workload; '' if the record was read from a file."""
    return name.key if isinstance(name, WorkloadName) else ""


FORMAT = 1


class Record(BaseModel):
    """An immutable result."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    kinds: ClassVar[dict[str, type[Record]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if cls.model_fields:  # a base class such as TableRecord has none
            Record.kinds[cls.__name__] = cls

    def __repr__(self) -> str:
        title = getattr(self, "title", None)
        return super().__repr__() if title is None else f"{type(self).__name__}({title})"

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON."""
        data = json.loads(self.model_dump_json())
        return write_text(
            path,
            json.dumps({"record": type(self).__name__, "format": FORMAT, "data": data}, indent=1)
            + "\n",
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a record back; `Record.load` takes any kind, `Comparison.load` only its own."""
        kind, data = _envelope(Path(path))
        if not issubclass(kind, cls):
            raise FileError(f"{Path(path).name} holds a {kind.__name__}, not a {cls.__name__}.")
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise FileError(
                f"{Path(path).name} is not a valid {kind.__name__}: {where}: {first['msg']}."
            ) from error


# Kinds of a room above this one, which is imported when one is read.
ABOVE = {"SearchResult": "paifuser_lab.planner"}


def _envelope(path: Path) -> tuple[type[Record], Any]:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{path.name} is not JSON ({first_line(error)}); was it cut short?"
        ) from error
    kind = str(content.get("record")) if isinstance(content, dict) else ""
    if kind in ABOVE:
        import_module(ABOVE[kind])
    if kind not in Record.kinds:
        raise FileError(
            f"{path.name} is not a record; a record names its kind, one of "
            f"{', '.join(sorted(Record.kinds))}."
        )
    if content.get("format") != FORMAT:
        raise FileError(
            f"{path.name} has format {content.get('format')!r}; this version reads format {FORMAT}."
        )
    return Record.kinds[kind], content.get("data")


AnyRecord = TypeVar("AnyRecord", bound=Record)


def row_of(rows: Sequence[AnyRecord], field: str, value: object, what: str = "row") -> AnyRecord:
    """The row whose field has this value; the error names those that there are."""
    for row in rows:
        if getattr(row, field) == value:
            return row
    known = ", ".join(str(getattr(row, field)) for row in rows)
    raise KeyError(f"no {what} {value!r}; there are {known}")


def frame_of(
    rows: Iterable[Record | dict[str, Any]], index: str = "", columns: Iterable[str] | None = None
) -> Frame:
    """A row of plain values for each record; `columns` are those of a frame without rows."""
    import pandas

    plain = [row.model_dump() if isinstance(row, Record) else row for row in rows]
    if columns is None and not plain and index:
        columns = (index,)
    frame = pandas.DataFrame(plain, columns=None if columns is None else list(columns))
    return frame.set_index(index) if index else frame


def frame_of_columns(columns: dict[str, Any]) -> Frame:
    """A column for each name."""
    import pandas

    return pandas.DataFrame(columns)


class TableRecord(Record):
    """A record with a title and a table, lines above or below it, and further tables."""

    columns: ClassVar[Columns] = {}
    text_columns: ClassVar[tuple[str, ...]] = ()  # those of words, not figures
    row_field: ClassVar[str] = "rows"  # the field of which the table and the frame have the rows
    row_key: ClassVar[str] = ""  # the field of a row that its frame has as index

    @property
    def title(self) -> str:
        """What the record is about, in a line."""
        raise NotImplementedError

    @property
    def sentence(self) -> str:
        """What the record says in a sentence; '' where its table says it all."""
        return ""

    @property
    def captions(self) -> Sequence[str]:
        """The lines above the table."""
        return [line for line in dict.fromkeys((self.title, self.sentence)) if line]

    @property
    def remarks(self) -> Sequence[str]:
        """The lines below the table in a terminal; a notebook has them above, with the captions."""
        return ()

    def table(self) -> list[dict[str, str]]:
        """The record's rows, as text."""
        return table_of(self.columns, getattr(self, self.row_field))

    @property
    def frame(self) -> Frame:
        """The record's rows, as plain values; of one without rows, its table."""
        if self.row_field not in type(self).model_fields:
            return frame_of(self.table())
        rows = getattr(self, self.row_field)
        row, *_ = get_args(type(self).model_fields[self.row_field].annotation)
        return frame_of(rows, self.row_key, row.model_fields)

    @property
    def sections(self) -> Sequence[Table | TableRecord]:
        """The tables below the record's own."""
        return ()

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether a notebook shows this row of the table in bold."""
        return False

    def as_table(self, *captions: str) -> Table:
        """The record's rows below these lines."""
        return Table(captions, self.table(), self.text_columns, self.is_bold)

    def __str__(self) -> str:
        own = "\n".join([str(self.as_table(*self.captions)), *self.remarks])
        return "\n\n".join([own, *map(str, self.sections)])

    def _repr_html_(self) -> str:
        parts = [self.as_table(*self.captions, *self.remarks), *self.sections]
        return "".join(part._repr_html_() for part in parts)
