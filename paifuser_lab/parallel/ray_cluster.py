"""Run a function in several processes of a Ray cluster, as ranks of one group: a placement group
keeps a place for each, with its CPUs and GPUs. Ray does not start a rank again; checkpoints do not
need it to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from ..arguments import check_count
from ..errors import ParallelError, first_line
from ..machine.cluster import ray_module, signals_kept
from .group import TIMEOUT_S, initialise, listener_on, stay_on_loopback

LOCAL = "127.0.0.1"


def run_on_ray(
    function: Callable[..., Any],
    *args: Any,
    processes: int = 2,
    cpus: float = 1,
    gpus: float = 0,
    address: str = "local",
    timeout_s: float = TIMEOUT_S,
    **kwargs: Any,
) -> list[Any]:
    """Call `function(*args, **kwargs)` in several processes of a cluster and return the result of
    each rank; each gets so many CPUs and GPUs.

    `address` is the cluster's, such as "auto"; "local" starts one on this machine and ends it.
    Where all ranks are on one node, they exchange over its loopback interface. On others this
    package has to be installed, and their store has no authentication.
    """
    ray = ray_module("run_on_ray")
    check_count("processes", processes, error=ParallelError)
    is_own = not ray.is_initialized()
    if is_own:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        threads = str(max(1, int(cpus)))
        options = {"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": threads}}
        own: dict[str, Any] = {}
        if address == "local":
            own = {"num_cpus": max(1, round(processes * cpus)), "_node_ip_address": LOCAL}
        with signals_kept():
            ray.init(address=address, include_dashboard=False, runtime_env=options, **own)
    ranks: list[Any] = []
    places = ray.util.placement_group([{"CPU": cpus, "GPU": gpus}] * processes)
    try:
        if not places.wait(timeout_s):
            raise ParallelError(
                f"The cluster has no {processes} places with {cpus:g} CPUs and {gpus:g} GPUs each, "
                f"or none was free within {timeout_s:g} s; ask for less, or add nodes."
            )
        make = ray.remote(num_cpus=cpus, num_gpus=gpus)(RayRank).options
        where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(places)
        ranks = [
            make(scheduling_strategy=where).remote(rank, processes) for rank in range(processes)
        ]
        nodes = ray.get([rank.node.remote() for rank in ranks])
        host = LOCAL if len(set(nodes)) == 1 else nodes[0]
        port = ray.get(ranks[0].listen.remote(host, timeout_s))
        calls = [rank.call.remote(host, port, timeout_s, function, args, kwargs) for rank in ranks]
        return _results(ray, calls)
    finally:
        for rank in ranks:
            ray.kill(rank)
        ray.util.remove_placement_group(places)
        if is_own:
            ray.shutdown()


def _results(ray: Any, calls: list[Any]) -> list[Any]:
    """The result of each rank; raises for the first that fails."""
    left = list(calls)
    while left:
        (done, *_), left = ray.wait(left)
        try:
            ray.get(done)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            rank = calls.index(done)
            raise ParallelError(
                f"rank {rank} of {len(calls)} failed: {type(cause).__name__}: "
                f"{first_line(cause).rstrip('.')}; all were ended."
            ) from error
    return list(ray.get(calls))


class RayRank:
    """One rank, as an actor of Ray."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.store: TCPStore | None = None

    def node(self) -> str:
        """The address of the node that it is on."""
        import ray

        return str(ray.util.get_node_ip_address())

    def listen(self, host: str, timeout_s: float) -> int:
        """Open the store of all ranks and return its port."""
        listener, port = listener_on(host, 0)
        self.store = TCPStore(
            host,
            port,
            self.world,
            True,
            timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=listener,
        )
        return port

    def call(
        self,
        host: str,
        port: int,
        timeout_s: float,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Join the others and call the function."""
        if host == LOCAL:
            stay_on_loopback()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        store = self.store or TCPStore(
            host, port, self.world, False, timedelta(seconds=timeout_s), wait_for_workers=False
        )
        os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"] = "0", "1"  # Ray shows it its GPUs
        initialise(store, self.rank, self.world, timeout_s)
        result = function(*args, **kwargs)
        dist.barrier()  # nobody ends while another still exchanges with it
        return result
