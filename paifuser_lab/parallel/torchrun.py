"""A script in several processes under torchrun, which starts all of them again when one dies.

On one machine they find each other through a file, so that nothing listens on other interfaces
than the loopback one. torchrun's own store keeps keys of the ranks that died, which some restarts
then wait for (pytorch#167288): it is not shared with them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ParallelError
from .group import STORE, loopback_name


def torchrun_command(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    processes: int,
    restarts: int,
    folder: str | Path,
) -> tuple[list[str], dict[str, str]]:
    """The command line that runs a script in so many processes, and its environment; `folder` is
    for the files through which they find each other.
    """
    if not 1 <= processes <= 1024:
        raise ParallelError(f"{processes} is no number of processes; give 1 or more.")
    if restarts < 0:
        raise ParallelError(f"{restarts} is no number of restarts; give 0 or more.")
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
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    name = loopback_name()
    if name is not None:
        environment["GLOO_SOCKET_IFNAME"] = name
    return [*command, str(script), *arguments], {**os.environ, **environment}
