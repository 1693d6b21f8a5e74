"""The description of this machine: facts about its CPU, and ceilings measured once and cached."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from .._files import cache_folder
from ..errors import FileError
from ..records import Accelerator, Ceiling, Hardware
from ..records.hardware import RATES
from .ceilings import cpu_ceiling, cuda_accelerators, cuda_names
from .contention import with_ratio_warnings
from .datasheets import find_device
from .host import host_facts, thread_choices, threads

__all__ = ["hardware", "keep_faster", "machine_label", "thread_choices", "threads"]

REMEASURE_S = 600.0  # ceilings of a busy machine are measured again after so long …
MAX_MEASUREMENTS = 5  # … and so often: then the best of them stays, with its warnings
EXPIRY_S = 30 * 86400.0
MAX_SHOWN = 3

_lock = threading.Lock()
# Machines whose ceilings this process has returned: they do not change between its measurements.
_returned: set[str] = set()


def hardware(*, refresh: bool = False) -> Hardware:
    """This machine's hardware and peak rates, measured once and then cached; PAIFUSER_HARDWARE=H100
    uses the published figures of that device instead.
    """
    device_name = os.environ.get("PAIFUSER_HARDWARE", "").strip()
    published = find_device(device_name) if device_name else None
    with _lock:
        here = _this_machine(refresh=refresh)
    if published is None:
        return here
    device, origin = published
    note = f"{device.name}: {origin}. The CPU is this machine's."
    return here.model_copy(
        update={"name": device.name, "source": "published", "accelerators": (device,), "note": note}
    )


def machine_label() -> str:
    """The machine that measures, as records name it, whatever PAIFUSER_HARDWARE names."""
    return host_facts().label


# The facts are cheap and always fresh; only ceilings are cached. Those measured on a busy machine
# are measured again by a later run, a few times at most, and the best of each rate is kept; expired
# ones are replaced.


def _this_machine(*, refresh: bool) -> Hardware:
    facts, devices = host_facts(), cuda_names()
    name = _file_name(facts, devices)
    record = None if refresh else _cached(name)
    if record is None or _age_s(record) > EXPIRY_S:
        record = _measure_and_save(facts, devices, name)
    elif name not in _returned and _is_due(record):
        record = _measure_and_save(facts, devices, name, before=record)
    _returned.add(name)
    ceilings = with_ratio_warnings(record.ceilings)
    fields = ("accelerators", "measured_at", "measurements")
    known = {field: getattr(record, field) for field in fields}
    note = f"{record.note} {_busy_note(ceilings, record.accelerators)}".strip()
    return facts.model_copy(update={**known, "ceilings": ceilings, "note": note})


def keep_faster(machine: Hardware, threads: int, rates: Mapping[str, float | None]) -> None:
    """Raise the cached ceilings to rates that a model reached on this machine's CPU."""
    with _lock:
        name = _file_name(host_facts(), cuda_names())
        record = _cached(name)
        if record is None or _digest(record, ()) != _digest(
            machine.model_copy(update={"name": record.name}), ()
        ):
            return
        raised = record.raised(threads, rates)
        if raised != record:
            _save(raised, name)


def _file_name(facts: Hardware, devices: tuple[str, ...]) -> str:
    return f"hardware-{_digest(facts, devices)}.json"


def _digest(facts: Hardware, devices: tuple[str, ...]) -> str:
    key = [
        facts.name,
        facts.isa,
        facts.physical_cores,
        facts.logical_cores,
        facts.torch_version,
        devices,
    ]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _cached(name: str) -> Hardware | None:
    """The record of an earlier run; None if there is none or it is damaged."""
    with suppress(FileError, OSError):
        record = Hardware.load(cache_folder() / name)
        return record if record.ceilings else None
    return None


def _save(record: Hardware, name: str) -> Hardware:
    """Save the record; if the cache cannot be written, return it with a note."""
    try:
        record.save(cache_folder() / name)
    except (FileError, OSError) as error:
        return record.model_copy(
            update={"note": f"{record.note} Measured anew each time: {error}".strip()}
        )
    return record


def _age_s(record: Hardware) -> float:
    """The age of the ceilings; infinite for a record without a valid date."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(record.measured_at)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


def _measure_and_save(
    facts: Hardware, devices: tuple[str, ...], name: str, before: Hardware | None = None
) -> Hardware:
    """Measure the ceilings, keep the better of each rate and of `before`, and save them."""
    record = _measured(facts, devices)
    record = record if before is None else _better(before, record)
    # a device that failed, perhaps with its memory full, is tried again the next time
    return _save(record, name) if len(record.accelerators) == len(devices) else record


def _measured(facts: Hardware, devices: tuple[str, ...]) -> Hardware:
    ceilings = tuple(cpu_ceiling(count, facts) for count in thread_choices())
    accelerators, note = cuda_accelerators(devices)
    return facts.model_copy(
        update={
            "ceilings": ceilings,
            "accelerators": accelerators,
            "note": note,
            "measured_at": _now(),
        }
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _better(before: Hardware, now: Hardware) -> Hardware:
    """The better of each rate of two measurements."""
    known = {ceiling.threads: ceiling for ceiling in before.ceilings}
    cards = {card.name: card.ceiling for card in before.accelerators}
    return now.model_copy(
        update={
            "ceilings": tuple(
                _better_ceiling(known.get(ceiling.threads), ceiling) for ceiling in now.ceilings
            ),
            "accelerators": tuple(
                card.model_copy(
                    update={"ceiling": _better_ceiling(cards.get(card.name), card.ceiling)}
                )
                for card in now.accelerators
            ),
            "measurements": before.measurements + 1,
        }
    )


def _better_ceiling(before: Ceiling | None, now: Ceiling) -> Ceiling:
    """The higher of each rate; warnings stay only if both measurements have them."""
    if before is None:
        return now
    best = now.raised({name: getattr(before, name) for name in RATES})
    return best.model_copy(update={"warnings": now.warnings if before.warnings else ()})


def _is_due(record: Hardware) -> bool:
    """Whether ceilings of a busy machine are to be measured again, on a process's first call."""
    is_busy = bool(_busy_note(with_ratio_warnings(record.ceilings), record.accelerators))
    return is_busy and record.measurements < MAX_MEASUREMENTS and _age_s(record) > REMEASURE_S


def _busy_note(ceilings: tuple[Ceiling, ...], accelerators: tuple[Accelerator, ...]) -> str:
    warnings = [
        text
        for ceiling in (*ceilings, *(card.ceiling for card in accelerators))
        for text in ceiling.warnings
    ]
    if not warnings:
        return ""
    more = f", and {len(warnings) - MAX_SHOWN} more" if len(warnings) > MAX_SHOWN else ""
    return (
        "The machine was busy while its ceilings were measured, so that some may be too low "
        f"({'; '.join(warnings[:MAX_SHOWN])}{more}); "
        f"a later run measures again, and hardware(refresh=True) does now."
    )
