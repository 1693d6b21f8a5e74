"""A script in several processes under torchrun, which starts all of them again when one dies: on
this machine, or on several nodes by a `TrainJob` of Kubeflow Trainer.

On one machine they find each other through a file, so that nothing listens on other interfaces
than the loopback one. torchrun's own store keeps keys of the ranks that died, which some restarts
then wait for (pytorch#167288): it is not shared with them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .._files import write_text
from ..arguments import check_count
from ..errors import ParallelError
from .group import MOST_PROCESSES, STORE, on_loopback

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# what Kubernetes takes, in words and as a pattern
NAME = "a name of at most 63 of a-z, 0-9 and -", r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?"
QUANTITY = "a quantity such as '4' or '16Gi'", r"\d+(\.\d+)?(m|k|[MGTPE]|[KMGTPE]i)?"
VARIABLE = "a variable's name of letters, digits and _", r"[A-Za-z_][A-Za-z0-9_]*"


def torchrun_command(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    processes: int,
    restarts: int,
    folder: str | Path,
) -> tuple[list[str], dict[str, str]]:
    """The command line and environment that run a script in processes, which meet in `folder`."""
    check_count("processes", processes, most=MOST_PROCESSES, error=ParallelError)
    check_count("restarts", restarts, least=0, error=ParallelError)
    if not Path(script).is_file():
        raise ParallelError(f"There is no file {script}.")
    options = {
        "nnodes": 1,
        "nproc-per-node": processes,
        "max-restarts": restarts,
        "monitor-interval": 0.1,
        "rdzv-backend": "c10d",
        "rdzv-endpoint": Path(folder, "rendezvous"),
        "rdzv-conf": "store_type=file",
        "local-addr": "127.0.0.1",
    }
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += [f"--{name}={value}" for name, value in options.items()]
    environment = {
        STORE: str(Path(folder, "store")),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        **OWN_STORE,
        **on_loopback(),
    }
    return [*command, str(script), *arguments], {**os.environ, **environment}


@dataclass(frozen=True)
class TrainJob:
    """A training on Kubernetes: the content of its manifest."""

    content: dict[str, Any]

    @property
    def text(self) -> str:
        """The manifest as YAML, for `kubectl apply`."""
        return str(yaml.safe_dump(self.content, sort_keys=False, allow_unicode=True))

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
    variables = {**OWN_STORE, **(environment or {})}
    _check("name", name, NAME)
    _check("cpus", cpus, QUANTITY)
    _check("memory", memory, QUANTITY)
    for variable in variables:
        _check("environment", variable, VARIABLE)
    check_count("nodes", nodes, error=ParallelError)
    check_count("processes", processes, error=ParallelError)
    metadata = {"name": name}
    if namespace is not None:
        _check("namespace", namespace, NAME)
        metadata["namespace"] = namespace
    amounts = {"cpu": cpus, "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    trainer = {
        "image": image,
        "command": ["torchrun", script],
        "args": [str(argument) for argument in arguments],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "numNodes": nodes,
        "numProcPerNode": processes,
        "resourcesPerNode": {"requests": amounts, "limits": dict(amounts)},
    }
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": runtime,
    }
    return TrainJob(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": metadata,
            "spec": {"runtimeRef": reference, "trainer": trainer},
        }
    )


def _check(what: str, value: str, kind: tuple[str, str]) -> None:
    words, pattern = kind
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ParallelError(f"{what}={value!r} is nothing that Kubernetes takes; give {words}.")
