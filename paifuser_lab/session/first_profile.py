"""The last profile of a model, kept between sessions: a workbench shows it at once."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from pathlib import Path

import torch

from .._files import cache_folder
from ..errors import FileError
from ..machine import machine_label
from ..records import Profile
from ..workload import Workload

MIN_KEPT_MS = 5.0  # a faster model is profiled before its old profile is read

logger = logging.getLogger(__name__)


def kept_profile(work: Workload) -> Profile | None:
    """The profile of this model from an earlier session on this machine; None if there is none."""
    with suppress(FileError, OSError):
        return Profile.load(_path(work)).model_copy(update={"workload": work.name})
    return None


def keep_profile(work: Workload, profile: Profile) -> None:
    """Keep a profile for the next session; a cache that cannot be written only costs that."""
    if profile.latency_ms < MIN_KEPT_MS or profile.failure or profile.is_interrupted:
        return
    try:
        profile.save(_path(work))
    except (FileError, OSError) as error:
        logger.info("the profile of %s is not kept: %s", work.name, error)


def _path(work: Workload) -> Path:
    """A file for this structure, these inputs and this machine; values of weights do not matter."""
    parts = [
        str(work.model),
        *(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in work.model.named_parameters()),
        *(f"{tuple(x.shape)} {x.dtype}" for x in work.inputs.tensors),
        str(work.device),
        machine_label(),
        torch.__version__,
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    return cache_folder() / f"profile-{digest}.json"
