"""The workload of a record: its name and, within one process, a key of the workload itself."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from pydantic import ValidatorFunctionWrapHandler, WrapValidator


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
