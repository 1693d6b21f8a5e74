"""A server answers what it can, refuses the rest in a sentence, and loses nothing when it stops."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch
from torch import nn
from tornado.httpclient import AsyncHTTPClient

import paifuser_lab as lab
from paifuser_lab.errors import DataError, StreamError
from paifuser_lab.parallel.group import is_loopback
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.model import OpenModel
from paifuser_lab.streaming.serving import Limits, Predictor, Server
from paifuser_lab.streaming.serving.inputs import _tensor
from paifuser_lab.streaming.stages.answer import kind_of
from tests.support.clips import encoded, pictures
from tests.support.served import npy, workload

ZEROS = npy(np.zeros((3, 4, 4), np.float32))


def in_loop(test):
    """A test that runs in an event loop of its own."""

    @functools.wraps(test)
    def run():
        asyncio.run(test())

    return run


@asynccontextmanager
async def served(predictor=None, **limits):
    server = Server(predictor or Predictor(workload()), Limits(**limits))
    server.start(port=0)
    try:
        yield server
    finally:
        await server.stop(5)


async def post(server, body, kind="application/x-npy", **more):
    client = AsyncHTTPClient(force_instance=True, max_clients=300)
    address = f"http://127.0.0.1:{server.address[1]}/predict"
    try:
        reply = await client.fetch(
            address,
            method="POST",
            body=body,
            headers={"Content-Type": kind},
            raise_error=False,
            **more,
        )
    finally:
        client.close()
    return reply.code, json.loads(reply.body)


def raw(body):
    """A request as it is sent."""
    head = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def get(server, path):
    client = AsyncHTTPClient(force_instance=True)
    try:
        address = f"http://127.0.0.1:{server.address[1]}{path}"
        reply = await client.fetch(address, raise_error=False)
    finally:
        client.close()
    return reply.code, reply.body.decode()


@in_loop
async def test_images_arrays_and_json_are_answered():
    image = pictures(1, 8, 8)[0]
    example = np.random.default_rng(0).random((3, 4, 4), np.float32)
    async with served(Predictor(workload(), names=("left", "right"))) as server:
        total = pytest.approx(example.sum(), rel=1e-5)
        assert await post(server, npy(example)) == (200, {"output": [total, total]})
        assert (await post(server, npy(example[None])))[0] == 200
        body = json.dumps({"inputs": example.tolist()})
        assert (await post(server, body, "application/json"))[1] == {"output": [total, total]}
        code, answer = await post(server, encoded(image), "image/png")
        labels = {each["label"] for each in answer["classes"]}
        assert code == 200 and labels == {"left", "right"}
        assert json.loads((await get(server, "/"))[1])["inputs"]["0"]["shape"] == [3, 4, 4]
        assert await get(server, "/health") == (200, '{"status": "ok"}')
        assert (await get(server, "/elsewhere"))[0] == 404
        assert (await get(server, "/predict"))[0] == 405


def test_a_model_is_called_alone_and_on_several_examples_before_it_is_served():
    seen = []

    class Counted(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return x.sum((1, 2, 3))[:, None]

    work = lab.Workload(Counted(), torch.rand(2, 3, 4, 4))
    seen.clear()
    Predictor(work)
    assert seen == [1, 2]


class Evil:
    def __reduce__(self):
        return os.system, ("false",)


def header(shape, kind="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "kind", "code", "sentence"),
    [
        (b"x", "text/html", 415, "is not understood"),
        (b"", "image/png", 400, "has no body"),
        (b"GIF89a", "image/png", 400, "no image that can be read"),
        (b"x", "application/x-npy", 400, "no whole .npy file"),
        (b"\x93NUMPY\x01\0\x08\0{'descr'", "application/x-npy", 400, "no whole .npy file"),
        (npy(np.zeros((3, 4))), "application/x-npy", 400, "has shape 3×4; one example has 3×4×4"),
        (npy(np.array([Evil()])), "application/x-npy", 400, "nothing pickled is read"),
        (header((1 << 40,)), "application/x-npy", 400, "no whole .npy file"),
        (header((-1, -1)) + b"1234", "application/x-npy", 400, "no whole .npy file"),
        (npy(np.zeros((3, 4, 4), np.longdouble)), "application/x-npy", 400, "64 bits or less"),
        (npy(np.full((3, 4, 4), 1e300)), "application/x-npy", 400, "not finite in float32"),
        (npy(np.full((3, 4, 4), np.nan)), "application/x-npy", 400, "not finite"),
        (npy(np.array(["a"])), "application/x-npy", 400, "numbers"),
        (b"{", "application/json", 400, "not JSON"),
        (b"[" * 100_000, "application/json", 400, "not JSON"),
        (b"[1]", "application/json", 400, "has the form"),
        (b'{"inputs": [[1], [1, 2]]}', "application/json", 400, "is no tensor"),
        (b'{"inputs": {"x": 1}}', "application/json", 400, "takes inputs 0, not x"),
        (b'{"inputs": "abc"}', "application/json", 400, "no tensor of numbers"),
        (npy(np.full((3, 4, 4), 7.0)), "application/x-npy", 500, "seven is not possible"),
        (npy(np.full((3, 4, 4), 3e38)), "application/x-npy", 500, "not finite"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(shared_server, body, kind, code, sentence):
    status, answer = asyncio.run_coroutine_threadsafe(
        post(shared_server.server, body, kind, allow_nonstandard_methods=True), shared_server.loop
    ).result(20)
    assert (status, sentence in answer["error"]) == (code, True), answer


class _Running:
    """A server in the loop of another thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server = asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(30)

    async def _start(self):
        server = Server(Predictor(workload()), Limits(max_delay_ms=0))
        server.start(port=0)
        return server

    def close(self):
        assert asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def shared_server():
    running = _Running()
    yield running
    running.close()


def test_an_image_is_answered_as_the_workload_states_unless_told_otherwise():
    work = workload()
    work.preprocessing = {"mean": 0.45, "std": 0.25, "classes": ("left", "right")}
    frame = Frame(pictures(1, 4, 4)[0])
    predictor, given = Predictor(work), Predictor(workload(), mean=0.45, std=0.25)
    assert torch.equal(predictor._prepared(frame).tensor, given._prepared(frame).tensor)
    assert predictor([frame])[0]["classes"][0]["label"] in ("left", "right")
    assert torch.equal(
        Predictor(work, mean=0, std=1)._prepared(frame).tensor,
        Predictor(workload(), mean=0, std=1)._prepared(frame).tensor,
    )


def test_a_single_score_or_channel_of_a_mask_is_answered_as_it_is():
    assert kind_of(torch.zeros(1)) == kind_of(torch.zeros(1, 4, 4)) == ""
    work = lab.Workload(nn.Sequential(nn.Flatten(), nn.Linear(48, 1)), torch.rand(2, 3, 4, 4))
    nn.init.zeros_(work.model[1].weight)
    nn.init.constant_(work.model[1].bias, -2)
    assert Predictor(work)([Frame(pictures(1, 4, 4)[0])]) == [{"output": [-2.0]}]


def test_an_integer_that_the_model_s_type_does_not_have_is_refused():
    with pytest.raises(DataError, match="values from -3 to 300; uint8 holds 0 to 255"):
        _tensor(np.array([-3, 300]), "x", (2,), torch.uint8)
    with pytest.raises(DataError, match=r"values from 0 to 9223372036854775808; int64"):
        _tensor(np.array([1 << 63], np.uint64), "x", (1,), torch.int64)
    assert _tensor(np.array([7, 255]), "x", (2,), torch.uint8).tolist() == [7, 255]
    assert _tensor(np.array([True, False]), "x", (2,), torch.int64).tolist() == [1, 0]


def test_a_model_in_bf16_is_answered_in_numbers_that_json_has():
    class Short(nn.Module):
        def forward(self, x):
            return {"scores": x.flatten(1)[:, :2].to(torch.bfloat16)}

    predictor = Predictor(lab.Workload(Short(), torch.rand(2, 3, 4, 4)))
    example = torch.full((3, 4, 4), 0.5)
    assert predictor([[example]]) == [{"output": {"scores": [0.5, 0.5]}}]


def test_an_image_becomes_the_floats_that_the_model_takes():
    model = nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten()).to(torch.bfloat16)
    predictor = Predictor(lab.Workload(model, torch.rand(2, 3, 4, 4, dtype=torch.bfloat16)))
    (answer,) = predictor([Frame(pictures(1, 4, 4)[0])])
    assert len(answer["classes"]) == 2


def test_a_model_of_integers_takes_no_images():
    class Bytes(nn.Module):
        def forward(self, x):
            return x.float().mean((2, 3))

    assert OpenModel(lab.Workload(Bytes(), torch.ones(2, 3, 4, 4).byte())).image_shape is None


@in_loop
async def test_a_body_past_the_limit_is_refused():
    async with served(max_bytes=1000) as server:
        code, answer = await post(server, b"x" * 5000)
        assert code == 413 and "limit of 1,000 bytes" in answer["error"]
        # before a body is sent: where the client asks, and where it is far too large
        for more in ("Content-Length: 1001\r\nExpect: 100-continue", "Content-Length: 99999999"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.address[1])
            writer.write(f"POST /predict HTTP/1.1\r\nHost: x\r\n{more}\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), 20)
            assert answer.startswith(b"HTTP/1.1 413") and answer.count(b"HTTP/1.1") == 1
            writer.close()
        assert server.metrics.count("paifuser_in_flight") == 0


@in_loop
async def test_a_client_that_has_gone_is_not_computed():
    held = Held()
    async with served(held, max_batch=1, max_delay_ms=0) as server:
        first = asyncio.ensure_future(post(server, ZEROS))
        await asyncio.to_thread(held.has_begun.wait, 20)
        _, writer = await asyncio.open_connection("127.0.0.1", server.address[1])
        writer.write(raw(ZEROS))
        while not server.waiting:
            await asyncio.sleep(0.01)
        writer.close()
        while server.waiting or server.metrics.count("paifuser_in_flight") > 1:
            await asyncio.sleep(0.01)
        held.go.set()
        assert (await first)[0] == 200
        assert (await post(server, ZEROS))[0] == 200
        count = server.metrics.count
        assert count("paifuser_batch_size_count") == 2
        assert count("paifuser_requests_total", status="499") == 1


@in_loop
async def test_twenty_clients_lose_nothing_and_share_calls():
    count, clients = 6, 20
    examples = np.random.default_rng(0).random((clients, 3, 4, 4), np.float32)

    async def client(server, example):
        for _ in range(count):
            code, answer = await post(server, npy(example))
            assert code == 200
            assert answer["output"][0] == pytest.approx(float(example.sum()), rel=1e-5)

    async with served(max_batch=8, max_delay_ms=20) as server:
        await asyncio.gather(*(client(server, example) for example in examples))
        value = server.metrics.count
        assert value("paifuser_requests_total", status="200") == count * clients
        assert value("paifuser_batch_size_sum") == count * clients
        assert value("paifuser_batch_size_count") < count * clients
        assert (await get(server, "/health"))[0] == 200
        text = (await get(server, "/metrics"))[1]
        assert f'paifuser_requests_total{{status="200"}} {count * clients}.0' in text
        assert "# TYPE paifuser_request_seconds histogram" in text


@in_loop
async def test_one_bad_example_does_not_fail_the_others_of_its_call():
    async with served(max_batch=3, max_delay_ms=2000) as server:
        bodies = [npy(np.full((3, 4, 4), value, np.float32)) for value in (1, 7, 2)]
        codes = [code for code, _ in await asyncio.gather(*(post(server, b) for b in bodies))]
        assert codes == [200, 500, 200]


class Held(Predictor):
    """Answers once it is let."""

    def __init__(self):
        super().__init__(workload())
        self.go, self.has_begun = threading.Event(), threading.Event()

    def __call__(self, examples):
        self.has_begun.set()
        assert self.go.wait(20)
        return super().__call__(examples)


@in_loop
async def test_past_the_queue_s_bound_and_the_time_limit_requests_are_refused():
    held = Held()
    async with served(held, max_batch=1, max_delay_ms=0, max_waiting=1, timeout_s=0.6) as server:
        first = asyncio.ensure_future(post(server, ZEROS))
        await asyncio.to_thread(held.has_begun.wait, 20)
        second = asyncio.ensure_future(post(server, ZEROS))
        while not server.waiting:
            await asyncio.sleep(0.01)
        code, answer = await post(server, ZEROS)
        assert code == 503 and "1 requests wait already" in answer["error"]
        assert [code for code, _ in await asyncio.gather(first, second)] == [504, 504]
        held.go.set()


@in_loop
async def test_a_server_that_stops_answers_what_has_come():
    held = Held()
    server = Server(held, Limits(max_batch=2, max_delay_ms=0))
    server.start(port=0)
    waiting = [asyncio.ensure_future(post(server, ZEROS)) for _ in range(5)]
    while server.metrics.count("paifuser_in_flight") < 5:
        await asyncio.sleep(0.01)
    stopping = asyncio.ensure_future(server.stop(20))
    await asyncio.sleep(0)
    assert server.is_draining
    held.go.set()
    assert await stopping
    assert [code for code, _ in await asyncio.gather(*waiting)] == [200] * 5


@in_loop
async def test_a_request_whose_head_has_come_before_the_stop_is_answered():
    server = Server(Predictor(workload()), Limits(max_delay_ms=0))
    server.start(port=0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address[1])
    request = raw(ZEROS)
    writer.write(request[:-10])
    while not server.metrics.count("paifuser_in_flight"):
        await asyncio.sleep(0.01)
    stopping = asyncio.ensure_future(server.stop(20))
    await asyncio.sleep(0)
    assert server.is_draining
    writer.write(request[-10:])
    answer = await asyncio.wait_for(reader.read(), 20)
    assert await stopping and answer.startswith(b"HTTP/1.1 200")
    writer.close()


@in_loop
async def test_what_was_sent_before_the_stop_is_answered_although_it_was_not_read_yet():
    server = Server(Predictor(workload()), Limits(max_delay_ms=0))
    server.start(port=0)
    connections = [await asyncio.open_connection("127.0.0.1", server.address[1]) for _ in range(5)]
    for _, writer in connections:
        writer.write(raw(ZEROS))
    assert await server.stop(20)
    answers = [await asyncio.wait_for(reader.read(), 20) for reader, _ in connections]
    for answer in answers:
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")), answer
        assert b"Connection: close" in answer
    for _, writer in connections:
        writer.close()


def test_a_port_in_use_and_impossible_limits_are_refused():
    async def run():
        async with served() as server:
            with pytest.raises(StreamError, match="choose another --host or --port"):
                Server(server.predictor).start(port=server.address[1])

    asyncio.run(run())
    with pytest.raises(StreamError, match="max_bytes=0"):
        Limits(max_bytes=0)
    with pytest.raises(StreamError, match="count=0"):
        Limits(max_batch=0)


def test_only_addresses_of_this_machine_are_loopback():
    hosts = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.168.1.2", "example.org")
    assert [is_loopback(host) for host in hosts] == [True] * 3 + [False] * 4


def test_the_command_serves_a_saved_variant_until_sigterm(tmp_path):
    subject = lab.load("resnet18-digits-tiny")
    lab.apply(subject, lab.Recipe(["fold"])).save(tmp_path / "mine")
    command = [sys.executable, "-m", "paifuser_lab.cli", "serve", str(tmp_path / "mine")]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().split()[-1]
        body = npy(subject.inputs.tensors[0][0].numpy())
        request = urllib.request.Request(
            f"{address}/predict", body, {"Content-Type": "application/x-npy"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            output = json.load(reply)["output"]
        expected = subject.output()[0].tolist()
        assert output == pytest.approx(expected, rel=1e-3, abs=1e-3)
        process.send_signal(signal.SIGTERM)
        assert "stopped; 1 answered" in process.communicate(timeout=60)[0]
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
