"""How processes find each other: sentences for what cannot be found, listeners on the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import psutil
import pytest
import torch.distributed as dist

from paifuser_lab.errors import ParallelError
from paifuser_lab.parallel import Group, join
from paifuser_lab.parallel import group as module
from paifuser_lab.parallel.torchrun import torchrun_command


@pytest.fixture
def environment(monkeypatch):
    """Sets the variables of a launcher."""

    def put(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    monkeypatch.delenv(module.STORE, raising=False)
    put(GLOO_SOCKET_IFNAME="lo")
    return put


@pytest.fixture
def taken():
    """A port of the loopback interface on which somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_without_a_launcher_a_process_is_alone():
    assert join() == Group(0, 1)
    assert join().is_alone


def test_a_port_that_is_taken_is_named(environment, taken):
    environment(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=taken)
    with pytest.raises(ParallelError, match=rf"cannot listen on 127.0.0.1:{taken} .*is the port"):
        join(timeout_s=1)
    assert not dist.is_initialized()


def test_an_address_that_cannot_be_reached_says_after_how_long(environment):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        environment(RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        with pytest.raises(ParallelError, match=r"rank 1 could not reach rank 0 .* within 1 s"):
            join(timeout_s=1)


def test_incomplete_variables_are_named(environment, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    environment(RANK=0, WORLD_SIZE=2)
    with pytest.raises(ParallelError, match="RANK is set but MASTER_ADDR and MASTER_PORT not"):
        join()
    environment(RANK="first")
    with pytest.raises(ParallelError, match="RANK='first' is no whole number"):
        join()


def test_the_store_of_rank_0_listens_on_the_loopback_interface_alone(environment):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    environment(RANK=0, WORLD_SIZE=1, MASTER_ADDR="localhost", MASTER_PORT=port)
    try:
        assert join().is_alone
        listening = {
            place.laddr.ip
            for place in psutil.Process().net_connections()
            if place.status == psutil.CONN_LISTEN and place.laddr.port == port
        }
        assert listening == {"127.0.0.1"}
    finally:
        dist.destroy_process_group()


def test_another_address_than_the_loopback_warns_that_nobody_is_asked_who_he_is(
    environment, monkeypatch
):
    environment(RANK=0, WORLD_SIZE=1, MASTER_ADDR="10.1.2.3", MASTER_PORT=29123)

    def store(*args: object, **options: object) -> None:
        assert options["master_listen_fd"] is None
        raise OSError("stopped here")

    monkeypatch.setattr(module, "TCPStore", store)
    with (
        pytest.warns(UserWarning, match="has no authentication"),
        pytest.raises(ParallelError, match="stopped here"),
    ):
        join()


def test_torchrun_is_asked_for_a_file_and_not_to_share_its_store(tmp_path):
    script = tmp_path / "script.py"
    script.touch()
    command, environment = torchrun_command(
        script, ["--epochs", "3"], processes=2, restarts=1, folder=tmp_path
    )
    assert command[-3:] == [str(script), "--epochs", "3"]
    assert "--rdzv-conf=store_type=file" in command
    assert environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    with pytest.raises(ParallelError, match="There is no file"):
        torchrun_command(tmp_path / "none.py", processes=2, restarts=0, folder=tmp_path)
    with pytest.raises(ParallelError, match="processes=0"):
        torchrun_command(script, processes=0, restarts=0, folder=tmp_path)
    with pytest.raises(ParallelError, match="restarts=-1"):
        torchrun_command(script, processes=1, restarts=-1, folder=tmp_path)


def test_ranks_end_with_the_process_that_started_them(tmp_path):
    """torchrun leaves them behind where it is killed."""
    rank = "from paifuser_lab.parallel import group; import time; group._end_with_parent(); "
    rank += "print('ready', flush=True); time.sleep(600)"
    parent = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]]); "
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, rank],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as started:
        assert started.stdout is not None
        child = psutil.Process(int(started.stdout.readline()))
        assert started.stdout.readline() == "ready\n"
        started.kill()
        assert psutil.wait_procs([child], timeout=30)[1] == []
