"""Ranks that are forks of one process, which has imported everything: starting them costs little,
where each process of `parallel.run` imports torch anew.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.processes import ROOT, python

TIMEOUT_S = 60
# what checks import where they need it: once here, and not in each fork
WARM = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.export._trace",
    "tests.support.parallel_checkpoints",
)


def forked(checks: Mapping[int, str], folder: Path) -> dict[int, list[Any]]:
    """What a function, named module:function, returns in each rank of so many; it gets the folder.

    The groups of ranks run one after another.
    """
    calls = [f"{world}={function}" for world, function in checks.items()]
    variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    python("-m", "tests.support.forked", folder, *calls, added=variables, cwd=ROOT)
    return {
        world: [
            pickle.loads((folder / f"result-{world}-{rank}").read_bytes()) for rank in range(world)
        ]
        for world in checks
    }


def main(folder: Path, calls: list[str]) -> None:
    """Import what is called, and then let groups of forks call it."""
    torch.set_num_threads(1)
    for name in WARM:
        import_module(name)
    functions = []
    for call in calls:
        world, _, name = call.partition("=")
        module, _, attribute = name.partition(":")
        functions.append((int(world), getattr(import_module(module), attribute)))
    for world, function in functions:
        ranks = []
        for rank in range(world):
            pid = os.fork()
            if not pid:
                _execute(function, folder, rank, world)
            ranks.append(pid)
        while ranks:
            pid, status = os.wait()
            ranks.remove(pid)
            if status:
                for other in ranks:
                    os.kill(other, signal.SIGKILL)
                raise SystemExit(1)


def _execute(function: Any, folder: Path, rank: int, world: int) -> None:
    """Be one rank, to the end of this process."""
    code = 1
    try:
        store = dist.FileStore(str(folder / f"store-{world}"), world)
        timeout = timedelta(seconds=TIMEOUT_S)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
        result = function(str(folder))
        (folder / f"result-{world}-{rank}").write_bytes(pickle.dumps(result))
        dist.barrier()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
