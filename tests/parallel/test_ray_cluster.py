"""`parallel.run_on_ray` on a cluster of this machine, which is started once."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import torch.distributed as dist

from paifuser_lab import parallel
from paifuser_lab.errors import MissingExtraError, ParallelError
from paifuser_lab.parallel.ray_cluster import _results


def summed(value: float) -> tuple[int, float]:
    rank = parallel.join().rank
    number = torch.tensor(value * (rank + 1))
    dist.all_reduce(number)
    return rank, number.item()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_ranks_on_a_cluster_are_one_group_and_a_failure_names_its_rank():
    ray = pytest.importorskip("ray")

    def call(rank: int) -> None:
        if rank:
            raise ValueError("broken here")

    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": paths},
    )
    try:
        assert parallel.run_on_ray(summed, 1.5) == [(0, 4.5), (1, 4.5)]
        with pytest.raises(ParallelError, match="rank 1 of 2 failed: ValueError: broken here"):
            _results(ray, [ray.remote(call).remote(rank) for rank in range(2)])
        with pytest.raises(ParallelError, match="no 2 places with 1 CPUs and 1 GPUs each"):
            parallel.run_on_ray(summed, 1.5, gpus=1, timeout_s=1)
        assert ray.is_initialized()  # it was there before
    finally:
        ray.shutdown()


def test_a_cluster_of_its_own_is_on_the_loopback_interface_and_tells_nobody(monkeypatch):
    ray = pytest.importorskip("ray")
    given: dict[str, object] = {}

    def init(**options: object) -> None:
        given.update(options)
        raise InterruptedError

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    with pytest.raises(InterruptedError):
        parallel.run_on_ray(summed, 1.5, cpus=2)
    assert given["_node_ip_address"] == "127.0.0.1" and given["num_cpus"] == 4
    assert given["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "2"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"paifuser-lab\[cluster\]"):
        parallel.run_on_ray(summed, 1.0)
