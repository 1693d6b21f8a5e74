"""Behind Ray Serve a model answers as behind the server of one process, and ends as well."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import MissingExtraError, StreamError
from paifuser_lab.streaming.serving import Limits, serve_on_ray
from paifuser_lab.streaming.serving.ray_serve import Replica, _is_up, _plain
from tests.support.served import npy, workload

pytest.importorskip("ray.serve")


class Request:
    """As the proxy gives it to a replica."""

    def __init__(self, path="/predict", body=b"", method="POST", kind="application/x-npy", **more):
        self.url, self.method, self.parts = SimpleNamespace(path=path), method, [body, b""]
        self.headers = {"content-type": kind, **more}

    async def stream(self):
        for part in self.parts:
            yield part


@pytest.fixture(scope="module")
def replica():
    made = Replica(workload(), {}, Limits(max_bytes=1000, max_delay_ms=0))
    yield made
    made.close()


def asked(replica, **request):
    response = asyncio.run(replica(Request(**request)))
    return response.status_code, json.loads(response.body)


def test_a_replica_answers_like_the_server_and_refuses_in_a_sentence(replica):
    example = np.random.default_rng(0).random((3, 4, 4), np.float32)
    total = pytest.approx(example.sum(), rel=1e-5)
    assert asked(replica, body=npy(example)) == (200, {"output": [total, total]})
    assert asked(replica, path="/health", method="GET") == (200, {"status": "ok"})
    assert asked(replica, path="/", method="GET")[1]["inputs"]["0"]["shape"] == [3, 4, 4]
    for request, status, sentence in [
        ({"path": "/metrics", "method": "GET"}, 404, "metrics port"),
        ({"method": "GET"}, 405, "Not Allowed"),
        ({"body": b"x" * 1001}, 413, "limit of 1,000 bytes"),
        ({"body": b"x", "content-length": "1001"}, 413, "limit of 1,000 bytes"),
        ({"body": b"x"}, 400, "no whole .npy file"),
        ({"body": npy(np.full((3, 4, 4), 7.0))}, 500, "seven is not possible"),
    ]:
        code, answer = asked(replica, **request)
        assert (code, sentence in answer["error"]) == (status, True), (request, answer)


def test_a_replica_that_is_full_says_when_to_come_again():
    replica = Replica(workload(), {}, Limits(max_batch=2, max_delay_ms=1000, max_waiting=1))

    async def two():
        first = asyncio.ensure_future(replica(Request(body=npy(np.zeros((3, 4, 4))))))
        while not replica.waiting:
            await asyncio.sleep(0.01)
        second = await replica(Request(body=npy(np.zeros((3, 4, 4)))))
        first.cancel()
        return second

    response = asyncio.run(two())
    replica.close()
    assert response.status_code == 503 and response.headers["retry-after"] == "1"
    assert "1 requests wait already" in json.loads(response.body)["error"]


def test_what_is_wrong_is_said_before_a_cluster_is_started(monkeypatch):
    monkeypatch.setattr(
        "paifuser_lab.streaming.serving.ray_serve.connect",
        lambda *args, **more: pytest.fail("a cluster was started"),
    )
    with pytest.raises(StreamError, match="replicas=0"):
        serve_on_ray(workload(), replicas=0)
    with pytest.raises(StreamError, match="without a batch dimension"):
        serve_on_ray(lab.Workload(nn.Identity(), torch.tensor(1.0), name="scalar"))
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    monkeypatch.delattr("ray.serve", raising=False)
    with pytest.raises(MissingExtraError, match=r"paifuser-lab\[serve\]"):
        serve_on_ray(workload())


def test_a_port_that_is_taken_is_said_before_ray_serve_starts(monkeypatch):
    room = "paifuser_lab.streaming.serving.ray_serve"
    nothing = SimpleNamespace(proxies={}, applications={})
    idle = SimpleNamespace(status=lambda: nothing)  # has no start
    monkeypatch.setattr(f"{room}.connect", lambda *args, **more: False)
    monkeypatch.setattr(f"{room}.ray_serve_module", lambda: idle)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(StreamError, match="choose another --host or --port"),
    ):
        serve_on_ray(workload(), port=taken.getsockname()[1])


class Cluster:
    """Ray Serve on a cluster, and what was asked of it."""

    def __init__(self, *, proxies, applications):
        self.proxies, self.applications, self.asked = proxies, applications, []

    def status(self):
        return SimpleNamespace(proxies=self.proxies, applications=self.applications)

    def __getattr__(self, name):
        return lambda *args, **options: self.asked.append(name)


@pytest.fixture
def joined(monkeypatch):
    """A function that lets `serve_on_ray` join a cluster, where nothing is deployed."""

    def join(**state):
        cluster = Cluster(**state)
        room = "paifuser_lab.streaming.serving.ray_serve"
        monkeypatch.setattr(f"{room}.connect", lambda *args, **more: True)
        monkeypatch.setattr(f"{room}.ray_module", lambda: cluster)
        monkeypatch.setattr(f"{room}.ray_serve_module", lambda: cluster)
        monkeypatch.setattr(f"{room}._deploy", lambda *args: None)
        monkeypatch.setattr(f"{room}._is_up", lambda *args: False)
        return cluster

    return join


def test_an_application_that_runs_already_is_left_as_it_is(joined):
    name = _plain(workload().name)
    cluster = joined(proxies={"node": "HEALTHY"}, applications={name: "RUNNING"})
    with pytest.raises(StreamError, match="runs on this cluster already"):
        serve_on_ray(workload(), address="auto")
    assert cluster.asked == ["shutdown"], "this process leaves the cluster"


@pytest.mark.parametrize(
    ("address", "others", "asked"),
    [
        ("auto", {}, ["start", "delete", "shutdown", "shutdown"]),
        ("auto", {"other": "RUNNING"}, ["start", "delete", "shutdown"]),
        (None, {}, ["start", "delete", "shutdown"]),
    ],
)
def test_ray_serve_that_this_process_started_ends_with_it_if_no_other_uses_it(
    joined, address, others, asked
):
    cluster = joined(proxies={}, applications=others)
    serve_on_ray(workload(), address=address, port=0)
    assert cluster.asked == asked


def status_of(*states):
    """Ray Serve, whose application goes through these states, a look each."""
    left = list(states)

    def status():
        state, message = left.pop(0) if len(left) > 1 else left[0]
        replicas = {"model": SimpleNamespace(message=message)}
        application = SimpleNamespace(status=state, message="", deployments=replicas)
        return SimpleNamespace(applications={"sums": application})

    return SimpleNamespace(status=status)


@pytest.fixture
def impatient(monkeypatch):
    for name in ("LOOK_S", "PATIENCE_S"):
        monkeypatch.setattr(f"paifuser_lab.streaming.serving.ray_serve.{name}", 0.0)


def test_what_is_missing_is_said_once_until_the_replicas_answer(impatient):
    serve = status_of(*[("DEPLOYING", "1 CPU is missing.")] * 3, ("RUNNING", ""))
    said = []
    assert _is_up(serve, "sums", threading.Event(), said.append)
    assert said == ["Waiting for the replicas of sums: 1 CPU is missing."]


def test_replicas_that_fail_or_are_stopped_end_the_wait(impatient):
    with pytest.raises(StreamError, match="does not start on Ray Serve: it died"):
        _is_up(status_of(("DEPLOY_FAILED", "trace\nit died.")), "sums", threading.Event(), print)
    stopped = threading.Event()
    stopped.set()
    assert not _is_up(status_of(("DEPLOYING", "")), "sums", stopped, print)


def test_an_application_has_a_name_that_ray_can_send():
    assert _plain("resnet18 · fuse, bf16") == "resnet18-fuse-bf16"
    assert _plain("模型") == "model"


def fetched(address, body=None, kind="application/x-npy"):
    request = urllib.request.Request(address, body, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.timeout(240)
def test_a_saved_variant_is_served_by_replicas_of_a_real_ray_serve_and_leaves_nothing(tmp_path):
    work = lab.load("resnet18-digits-tiny")
    variant = lab.apply(work, lab.Recipe([{"fuse": {}}]))
    variant.save(tmp_path / "mine")
    command = [sys.executable, "-m", "paifuser_lab.cli", "serve", "mine", "--ray", "local"]
    served = subprocess.Popen(
        [*command, "--port", "0", "--replicas", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        line = served.stdout.readline()
        assert line.startswith("mine on http://127.0.0.1:"), line
        where = line.split()[-1]
        example = work.inputs.tensors[0][0].numpy()
        expected = variant.workload.output()[0].tolist()
        status, answer = fetched(f"{where}/predict", npy(example))
        assert status == 200 and answer["output"] == pytest.approx(expected, abs=1e-4)
        assert fetched(f"{where}/predict", b"x")[0] == 400
        assert fetched(f"{where}/health") == (200, {"status": "ok"})
        started = psutil.Process(served.pid).children(recursive=True)
        assert len(started) > 2
        served.send_signal(signal.SIGTERM)
        assert served.stdout.readline() == "stopped\n" and served.wait(60) == 0
        _, left = psutil.wait_procs(started, timeout=30)
        assert not left
    finally:
        served.kill()
        served.stdout.close()
        served.wait()
