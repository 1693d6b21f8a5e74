"""What this machine can do: the facts about its CPU, and ceilings measured once and then kept."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress

from ._files import cache_folder
from .ceilings import cpu_ceiling, cuda_accelerators, cuda_names, is_disturbed
from .cores import thread_choices, threads
from .devices import find_device
from .errors import FileError
from .host import host_facts
from .records import Hardware

__all__ = ["hardware", "thread_choices", "threads"]

_one_at_a_time = threading.Lock()


def hardware(*, refresh: bool = False) -> Hardware:
    """What this machine can do, measured once and then kept; PAIFUSER_HARDWARE=H100 puts a published device in its place."""
    wanted = os.environ.get("PAIFUSER_HARDWARE", "").strip()
    published = find_device(wanted) if wanted else None
    with _one_at_a_time:
        here = _this_machine(refresh=refresh)
    if published is None:
        return here
    device, origin = published
    note = f"{device.name}: {origin}. The CPU is this machine's."
    return here.model_copy(update={"name": device.name, "source": "published", "accelerators": (device,), "note": note})


# Measured once, kept in the cache: the facts are cheap and always fresh, only ceilings are kept.


def _this_machine(*, refresh: bool) -> Hardware:
    facts, devices = host_facts(), cuda_names()
    name = f"hardware-{_digest(facts, devices)}.json"
    kept = None if refresh else _kept(name)
    if kept is None:
        kept = _measured(facts, devices)
        if len(kept.accelerators) == len(devices):  # a device left out, full perhaps, is tried again the next time
            kept = _keep(kept, name)
    return facts.model_copy(update={"ceilings": kept.ceilings, "accelerators": kept.accelerators, "note": kept.note})


def _digest(facts: Hardware, devices: tuple[str, ...]) -> str:
    key = [facts.name, facts.isa, facts.physical_cores, facts.logical_cores, facts.torch_version, devices]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _kept(name: str) -> Hardware | None:
    """The record of an earlier run; None where there is none or it is damaged."""
    with suppress(FileError, OSError):
        record = Hardware.load(cache_folder() / name)
        return record if record.ceilings else None
    return None


def _keep(record: Hardware, name: str) -> Hardware:
    """A cache that cannot be written costs seconds the next time, not the answer now."""
    try:
        record.save(cache_folder() / name)
    except (FileError, OSError) as error:
        return record.model_copy(update={"note": f"{record.note} Measured anew each time: {error}".strip()})
    return record


def _measured(facts: Hardware, devices: tuple[str, ...]) -> Hardware:
    ceilings = tuple(cpu_ceiling(count, facts) for count in thread_choices())
    accelerators, note = cuda_accelerators(devices)
    if is_disturbed(ceilings):
        note = f"{note} The cores were busy while this was measured; hardware(refresh=True) measures again.".strip()
    return facts.model_copy(update={"ceilings": ceilings, "accelerators": accelerators, "note": note})
