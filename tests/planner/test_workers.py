"""A search whose candidates are measured on the machines of a Ray cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import optuna
import pytest
from optuna.trial import TrialState

from paifuser_lab import planner
from paifuser_lab.errors import MeasureError, MissingExtraError, StreamError
from paifuser_lab.planner import places, searching
from paifuser_lab.planner.places import Here, RayNodes
from paifuser_lab.planner.screening import Screen
from paifuser_lab.planner.space import Point
from paifuser_lab.planner.store import Study
from tests.planner.conftest import BF16, FOLD, LABELS, LAYOUT


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on this machine; the process that joins them is on the first."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    import ray

    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    ray.init(nodes.address, log_to_driver=False, runtime_env={"env_vars": paths})
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_two_machines_measure_at_once_and_what_one_of_them_had_begun_is_measured_by_the_other(
    cluster, work, tried
):
    import ray

    begun: list[int] = []
    queued: list[Any] = []
    real = RayNodes.begin

    def leaving(self: Any, *given: Any) -> Any:
        future = real(self, *given)
        begun.append(len(self.actors) - len(self.idle))
        if len(begun) == 2:  # a machine leaves while it measures
            busy = next(actor for actor in self.actors if actor not in self.idle)
            ray.kill(busy)
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayNodes, "begin", leaving)
        queue = Study.queue
        patch.setattr(Study, "queue", lambda *given: queued.append(given[1]) or queue(*given))
        last = tried(work, FOLD, LAYOUT, BF16, metric_drop=1.0, seconds=300, workers="auto")[-1]
    assert begun[:2] == [1, 2] and max(map(queued.count, queued)) == 2  # what was lost, again
    assert {row.label for row in last.rows} == set(LABELS.values())
    assert all(row.latency_ms and row.interval for row in last.rows)
    assert any(row.rounds == 3 for row in last.rows)  # the leaders, on this machine
    assert ray.is_initialized()  # it was there before


def test_only_machines_with_this_one_s_processor_measure(work, monkeypatch):
    killed: list[Any] = []
    actor = SimpleNamespace(kind=SimpleNamespace(remote=lambda: "Z80"))
    ray = SimpleNamespace(
        nodes=lambda: [{"Alive": True, "NodeID": "a", "Resources": {"CPU": 1.0}}],
        put=lambda screen: screen,
        remote=lambda **options: lambda kind: SimpleNamespace(remote=lambda screen: actor),
        wait=lambda refs, **options: (refs, []),
        get=lambda ref: ref,
        kill=killed.append,
        util=MagicMock(),
    )
    monkeypatch.setattr(places, "ray_module", lambda needed_for: ray)
    monkeypatch.setattr(places, "connect", lambda address: False)
    nodes = RayNodes("auto", Screen(work, "latency"))
    with pytest.raises(MeasureError, match=r"this one's processor .*; there are Z80"), nodes:
        pass
    assert killed == [actor]


def test_a_search_whose_machines_have_all_left_keeps_what_they_measured(work, tried, url):
    real = Here.begin
    begun: list[Any] = []

    def leaving(self: Any, *given: Any) -> Any:
        begun.append(given)
        if len(begun) > 1:
            raise MeasureError("no machine is left.")
        return real(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Here, "begin", leaving)
        last = tried(work, FOLD, LAYOUT, metric_drop=1.0, study=url)[-1]
    assert len(last.rows) == 1 and last.is_done and "ended early: no machine is left." in last.note
    states = {trial.state for trial in optuna.load_study(study_name=last.study, storage=url).trials}
    assert TrialState.RUNNING not in states  # what had begun is given back


def test_a_candidate_that_is_being_measured_is_not_begun_again(work, tried):
    suggested = chain([FOLD, FOLD, LAYOUT, LAYOUT], repeat(BF16))
    begun: list[Point] = []
    held: list[tuple[Future[Any], Any]] = []
    real, ask = Here.begin, Study.ask

    def beginning(self: Any, change: Any, *given: Any) -> Any:
        begun.append(change.point)
        held.append((Future(), real(self, change, *given).result()))
        future = held[-1][0]
        if len(held) == 2 or change.point == BF16:  # two are measured at a time
            for each, result in held:
                each.set_result(result)
            held.clear()
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Here, "count", 2)
        patch.setattr(Here, "begin", beginning)
        patch.setattr(Study, "ask", lambda self: (ask(self)[0], next(suggested)))
        patch.setattr(searching._Search, "_queued", lambda self, *given: iter(()))
        patch.setattr(searching._Search, "_is_hopeless", lambda self, point: False)
        tried(work, FOLD, LAYOUT, BF16, metric_drop=1.0)
    assert begun == [FOLD, LAYOUT, BF16]


def test_without_a_cluster_the_address_is_named(work):
    pytest.importorskip("ray")
    with pytest.raises(StreamError, match=r"127\.0\.0\.1:1"):
        planner.search(work, workers="127.0.0.1:1", seconds=1)


def test_without_ray_the_extra_is_named(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"paifuser-lab\[cluster\]"):
        planner.search(work, workers="auto", seconds=1)
