"""The manifest of a training for Kubeflow Trainer: a `TrainJob` that runs a script under torchrun
on several nodes.

It is checked here against the fields of trainer.kubeflow.org/v1alpha1 that it uses (after
manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml of kubeflow/trainer); no cluster is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .._files import write_text
from ..errors import ParallelError

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"  # of DNS, as Kubernetes wants it
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|[MGTPE]|[KMGTPE]i)?")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Variable(_Part):
    """An environment variable."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    value: str


class Resources(_Part):
    """What each node gets."""

    requests: dict[str, str]
    limits: dict[str, str]


class Trainer(_Part):
    """What each node runs."""

    image: str = Field(min_length=1)
    command: list[str] = Field(min_length=1)
    args: list[str] = []
    env: list[Variable] = []
    numNodes: int = Field(ge=1, le=2**31 - 1)
    numProcPerNode: int = Field(ge=1)
    resourcesPerNode: Resources


class RuntimeRef(_Part):
    """The cluster's recipe for such a job."""

    apiGroup: Literal["trainer.kubeflow.org"] = "trainer.kubeflow.org"
    kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = "ClusterTrainingRuntime"
    name: str = Field(min_length=1)


class Spec(_Part):
    """What is to be run, and by which runtime."""

    runtimeRef: RuntimeRef
    trainer: Trainer


class Metadata(_Part):
    """The job's name and namespace."""

    name: str = Field(pattern=NAME, max_length=63)
    namespace: str | None = Field(default=None, pattern=NAME, max_length=63)


class TrainJob(_Part):
    """A training on Kubernetes, as the manifest has it."""

    apiVersion: Literal["trainer.kubeflow.org/v1alpha1"] = "trainer.kubeflow.org/v1alpha1"
    kind: Literal["TrainJob"] = "TrainJob"
    metadata: Metadata
    spec: Spec

    @property
    def text(self) -> str:
        """The manifest as YAML, for `kubectl apply`."""
        content = self.model_dump(exclude_none=True)
        return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    def save(self, path: str | Path) -> Path:
        """Write the manifest."""
        return write_text(path, self.text)


def train_job(
    name: str,
    script: str,
    *arguments: str,
    image: str,
    nodes: int = 1,
    processes: int = 1,
    cpus: str = "4",
    memory: str = "16Gi",
    gpus: int = 0,
    runtime: str = "torch-distributed",
    namespace: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> TrainJob:
    """The manifest that runs `script`, a path in the image, on so many nodes with so many processes
    each. It restarts by its checkpoints, so that these belong on a volume that all nodes see.
    """
    for what, value in (("cpus", cpus), ("memory", memory)):
        if not QUANTITY.fullmatch(value):
            raise ParallelError(
                f"{what}={value!r} is no quantity of Kubernetes; give '4' or '16Gi'."
            )
    amounts = {"cpu": cpus, "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **(environment or {})}
    return checked(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "runtimeRef": {"name": runtime},
                "trainer": {
                    "image": image,
                    "command": ["torchrun", script],
                    "args": list(_texts(arguments)),
                    "env": [{"name": key, "value": value} for key, value in variables.items()],
                    "numNodes": nodes,
                    "numProcPerNode": processes,
                    "resourcesPerNode": {"requests": amounts, "limits": amounts},
                },
            },
        }
    )


def checked(content: Any) -> TrainJob:
    """A manifest that has the fields of a TrainJob; any other is refused in a sentence."""
    try:
        return TrainJob.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ParallelError(f"The manifest is no TrainJob: {where}: {first['msg']}.") from error


def _texts(arguments: Sequence[Any]) -> Sequence[str]:
    return [str(argument) for argument in arguments]
