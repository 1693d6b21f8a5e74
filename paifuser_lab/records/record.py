"""The base class of records: frozen, typed results saved and loaded as JSON with their name and
version. Built on pydantic.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from .._files import read_text, write_text
from ..errors import FileError, first_line

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


def _envelope(path: Path) -> tuple[type[Record], Any]:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{path.name} is not JSON ({first_line(error)}); was it cut short?"
        ) from error
    if not isinstance(content, dict) or str(content.get("record")) not in Record.kinds:
        raise FileError(
            f"{path.name} is not a record; a record names its kind, one of "
            f"{', '.join(sorted(Record.kinds))}."
        )
    if content.get("format") != FORMAT:
        raise FileError(
            f"{path.name} has format {content.get('format')!r}; this version reads format {FORMAT}."
        )
    return Record.kinds[content["record"]], content.get("data")
