"""This process as one of several that work on one model: under `parallel.run`, under torchrun, or
alone.

The processes find each other through a file, where one machine has them all, or through a store on
rank 0. Listeners stay on the loopback interface unless the address of rank 0 is another. Before the
first step they agree on model, data and options: a difference is an error on every rank.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore, Store, TCPStore

from ..errors import ParallelError, first_line

ASKED_EVERY_S = 0.5
MOST_PROCESSES = 1024
TIMEOUT_S = 120.0  # how long a rank waits for the others; torch's own is 30 minutes
STORE = "PAIFUSER_STORE"  # the file of a launcher of ours, in the environment
MISSING = "nothing"
_send: list[Callable[[Any], None]] = []  # to the process that started this one; one at most


@dataclass(frozen=True)
class Group:
    """One of `world` processes. Alone, it is rank 0 of 1 and nothing is sent."""

    rank: int = 0
    world: int = 1

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process."""
        return self.world == 1

    @property
    def device(self) -> torch.device:
        """The device of this rank: its GPU, or the CPU."""
        is_gpu = dist.is_initialized() and "nccl" in dist.get_backend_config()
        return torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")


def join(*, timeout_s: float = TIMEOUT_S) -> Group:
    """The group that this process belongs to, joined if it was not yet. `timeout_s` is how long a
    rank waits for the others, now and in each exchange, before that is an error.
    """
    if not dist.is_initialized():
        names = ("RANK", "WORLD_SIZE")
        if any(name not in os.environ for name in names):
            return Group()
        rank, world = (_number(name) for name in names)
        if not 0 <= rank < world:
            raise ParallelError(f"RANK={rank} is none of WORLD_SIZE={world}; ranks begin with 0.")
        initialise(_store(rank, world, timeout_s), rank, world, timeout_s)
    return Group(dist.get_rank(), dist.get_world_size())


def initialise(store: Store, rank: int, world: int, timeout_s: float) -> None:
    """Join the process group of this store; its timeout holds for every exchange."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    is_gpu = gpus >= int(os.environ.get("LOCAL_WORLD_SIZE", world))
    if is_gpu:
        torch.cuda.set_device(local_rank)
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if is_gpu else "gloo",
            store=store,
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=timeout_s),
        )
    except RuntimeError as error:
        raise ParallelError(
            f"rank {rank} of {world} did not find the others within {timeout_s:g} s "
            f"({first_line(error).rstrip('.')}); were all of them started?"
        ) from error


def tell(value: Any) -> None:
    """Send a value to the process that started this one by `parallel.run`; under another launcher
    nothing is sent.
    """
    for send in _send:
        send(value)


def agree(group: Group, facts: Mapping[str, Any]) -> None:
    """Raise on every rank unless all ranks have equal facts; values are compared as text."""
    if group.is_alone:
        return
    gathered: list[Any] = [None] * group.world
    dist.all_gather_object(gathered, {name: str(value) for name, value in facts.items()})
    problem = disagreement(gathered)
    if problem:
        raise ParallelError(problem)


def disagreement(by_rank: Sequence[Mapping[str, str]]) -> str:
    """The first difference between the ranks, as a sentence; empty if there is none."""
    first = by_rank[0]
    for rank, facts in enumerate(by_rank[1:], 1):
        for name in [*first, *(name for name in facts if name not in first)]:
            own, other = first.get(name, MISSING), facts.get(name, MISSING)
            if own != other:
                return (
                    f"The ranks disagree on {name}: rank 0 has {own}, and rank {rank} has {other}; "
                    "let all of them build the same. Nothing was trained."
                )
    return ""


def facts_of(model: nn.Module) -> dict[str, str]:
    """A model's weights and buffers: dtype, shape and whether they are trained."""
    facts = {"the model": type(model).__name__}
    for name, weight in model.named_parameters():
        kind = "" if weight.requires_grad else ", frozen"
        facts[f"the weight '{name}'"] = f"{weight.dtype} {tuple(weight.shape)}{kind}"
    for name, buffer in model.named_buffers():
        facts[f"the buffer '{name}'"] = f"{buffer.dtype} {tuple(buffer.shape)}"
    return facts


def on_loopback() -> dict[str, str]:
    """The environment in which gloo exchanges over the loopback interface, where there is one."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == "127.0.0.1" for address in addresses):
            return {"GLOO_SOCKET_IFNAME": name}
    return {}


def _store(rank: int, world: int, timeout_s: float) -> Store:
    """The store in which the processes find each other."""
    if path := os.environ.get(STORE):
        stay_on_loopback()
        _end_with_parent()
        return FileStore(f"{path}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", world)
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ParallelError(
            f"RANK is set but {' and '.join(missing)} not; start the script by torchrun, or by "
            "paifuser-lab train SCRIPT --processes N."
        )
    address, port = os.environ["MASTER_ADDR"], _number("MASTER_PORT")
    is_local = is_loopback(address)
    if is_local:
        stay_on_loopback()
    elif rank == 0:
        warnings.warn(
            f"rank 0 listens on {address}:{port}, whose store has no authentication; use it only "
            "in a network that you trust.",
            stacklevel=4,
        )
    has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_master = rank == 0 and not has_store
    try:
        listener = listener_on(address, port)[0] if is_master and is_local else None
        return TCPStore(
            address,
            port,
            world,
            is_master,
            timedelta(seconds=timeout_s),
            master_listen_fd=listener,
        )
    except (RuntimeError, OSError) as error:
        if is_master:
            raise ParallelError(
                f"rank 0 cannot listen on {address}:{port} ({first_line(error)}); is the port "
                "taken? Set MASTER_PORT to another."
            ) from error
        raise ParallelError(
            f"rank {rank} could not reach rank 0 at {address}:{port} within {timeout_s:g} s; is "
            "MASTER_ADDR right, and was rank 0 started?"
        ) from error


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def listener_on(address: str, port: int) -> tuple[int, int]:
    """A socket that listens on this address alone, and its port; torch's own listens on all."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1" if address == "localhost" else address, port))
        listener.listen()
        port = listener.getsockname()[1]
        return listener.detach(), port


def stay_on_loopback() -> None:
    """Let gloo exchange over the loopback interface, unless another was named."""
    for name, interface in on_loopback().items():
        os.environ.setdefault(name, interface)


def _end_with_parent() -> None:
    """End this process soon after torchrun has; where that is killed, its ranks stay."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ASKED_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ParallelError(f"{name}={os.environ[name]!r} is no whole number.") from None
