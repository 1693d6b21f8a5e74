"""Which workload a record is about: its name, and in one process the workload that has the name."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from pydantic import ValidatorFunctionWrapHandler, WrapValidator


class WorkloadName(str):
    """A name as text, with a key of the workload that has it: several may have one name, such as
    `Sequential`. Saved, it is the name alone.
    """

    key: str

    def __new__(cls, name: str) -> WorkloadName:
        made = super().__new__(cls, name)
        made.key = uuid4().hex
        return made


def _kept(value: Any, handler: ValidatorFunctionWrapHandler) -> str:
    return value if isinstance(value, WorkloadName) else str(handler(value))


AboutWorkload = Annotated[str, WrapValidator(_kept)]


def workload_key(name: str) -> str:
    """The key of the workload that a record is about; '' where the record was read from a file."""
    return name.key if isinstance(name, WorkloadName) else ""
