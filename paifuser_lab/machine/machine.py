"""The description of this machine: facts about its CPU, and ceilings measured once and kept."""

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

__all__ = ["hardware", "keep_faster", "thread_choices", "threads"]

LATER_S = 600.0  # ceilings of a busy machine are measured again after so long …
MOST_MEASUREMENTS = 5  # … and so often: then the best of them stays, marked as it is
OLD_S = 30 * 86400.0
MOST_SHOWN = 3

_one_at_a_time = threading.Lock()
# Machines whose ceilings this process has returned: they do not change between its measurements.
_answered: set[str] = set()


def hardware(*, refresh: bool = False) -> Hardware:
    """What this machine can do, measured once and then kept; PAIFUSER_HARDWARE=H100 uses the
    published figures of that device instead.
    """
    wanted = os.environ.get("PAIFUSER_HARDWARE", "").strip()
    published = find_device(wanted) if wanted else None
    with _one_at_a_time:
        here = _this_machine(refresh=refresh)
    if published is None:
        return here
    device, origin = published
    note = f"{device.name}: {origin}. The CPU is this machine's."
    return here.model_copy(
        update={"name": device.name, "source": "published", "accelerators": (device,), "note": note}
    )


# Measured once, kept in the cache: the facts are cheap and always fresh, only ceilings are kept.
# Those that were measured on a busy machine are measured again by a later run, a few times at most,
# and the best of each rate is kept; old ones are replaced.


def _this_machine(*, refresh: bool) -> Hardware:
    facts, devices = host_facts(), cuda_names()
    name = _file_name(facts, devices)
    kept = None if refresh else _kept(name)
    if kept is None or _age_s(kept) > OLD_S:
        kept = _measured_and_kept(facts, devices, name)
    elif name not in _answered and _is_due(kept):
        kept = _measured_and_kept(facts, devices, name, before=kept)
    _answered.add(name)
    ceilings = with_ratio_warnings(kept.ceilings)
    fields = ("accelerators", "measured_at", "measurements")
    known = {field: getattr(kept, field) for field in fields}
    note = f"{kept.note} {_busy_note(ceilings, kept.accelerators)}".strip()
    return facts.model_copy(update={**known, "ceilings": ceilings, "note": note})


def keep_faster(machine: Hardware, threads: int, rates: Mapping[str, float | None]) -> None:
    """Keep rates that a model reached on this machine's CPU where they beat the ceilings in the
    cache.
    """
    with _one_at_a_time:
        name = _file_name(host_facts(), cuda_names())
        kept = _kept(name)
        if kept is None or _digest(kept, ()) != _digest(
            machine.model_copy(update={"name": kept.name}), ()
        ):
            return
        raised = kept.raised(threads, rates)
        if raised != kept:
            _keep(raised, name)


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
        return record.model_copy(
            update={"note": f"{record.note} Measured anew each time: {error}".strip()}
        )
    return record


def _age_s(kept: Hardware) -> float:
    """How long ago the ceilings were measured; a record that does not say is older than any."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(kept.measured_at)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


def _measured_and_kept(
    facts: Hardware, devices: tuple[str, ...], name: str, before: Hardware | None = None
) -> Hardware:
    """The ceilings as they are measured now, or as `before` had them where that was better."""
    found = _measured(facts, devices)
    found = found if before is None else _better(before, found)
    is_whole = len(found.accelerators) == len(devices)
    return (
        _keep(found, name) if is_whole else found
    )  # a device left out, full perhaps, is tried again the next time


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
    known = {one.threads: one for one in before.ceilings}
    cards = {one.name: one.ceiling for one in before.accelerators}
    return now.model_copy(
        update={
            "ceilings": tuple(_better_ceiling(known.get(one.threads), one) for one in now.ceilings),
            "accelerators": tuple(
                one.model_copy(
                    update={"ceiling": _better_ceiling(cards.get(one.name), one.ceiling)}
                )
                for one in now.accelerators
            ),
            "measurements": before.measurements + 1,
        }
    )


def _better_ceiling(before: Ceiling | None, now: Ceiling) -> Ceiling:
    """The higher of each rate; what was measured undisturbed once carries no warning."""
    if before is None:
        return now
    best = now.raised({name: getattr(before, name) for name in RATES})
    return best.model_copy(update={"warnings": now.warnings if before.warnings else ()})


def _is_due(kept: Hardware) -> bool:
    """Whether the ceilings of a busy machine are measured once more, with the first question that a
    process asks.
    """
    is_busy = bool(_busy_note(with_ratio_warnings(kept.ceilings), kept.accelerators))
    return is_busy and kept.measurements < MOST_MEASUREMENTS and _age_s(kept) > LATER_S


def _busy_note(ceilings: tuple[Ceiling, ...], accelerators: tuple[Accelerator, ...]) -> str:
    every = [
        text
        for one in (*ceilings, *(card.ceiling for card in accelerators))
        for text in one.warnings
    ]
    if not every:
        return ""
    more = f", and {len(every) - MOST_SHOWN} more" if len(every) > MOST_SHOWN else ""
    return (
        "The machine was busy while its ceilings were measured, so that some may be too low "
        f"({'; '.join(every[:MOST_SHOWN])}{more}); "
        f"a later run measures again, and hardware(refresh=True) does now."
    )
