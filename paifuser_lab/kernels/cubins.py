"""Machine code cached between runs in the user's own folder and verified by its SHA-256."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from .._files import cache_folder, replacing, write_text
from ..errors import FileError, first_line
from .compile import Program
from .nvrtc import nvrtc
from .resources import Resources, resources_in


class Cubin(BaseModel):
    """The machine code of one entry: path, name to load it by, and resources."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: Path
    entry: str
    sha256: str
    compiler: str
    flags: tuple[str, ...]
    resources: Resources


def cubin_of(program: Program) -> Cubin:
    """The machine code of a program: cached, or compiled now."""
    folder = _folder()
    compiler = nvrtc().version
    manifest = folder / f"{program.entry.split('<')[0]}-{program.key(compiler)[:20]}.json"
    return _read(manifest) or _compile(program, compiler, manifest)


def _compile(program: Program, compiler: str, manifest: Path) -> Cubin:
    compiled = program.compiled()
    cubin = Cubin(
        path=manifest.with_suffix(".cubin"),
        entry=compiled.entry,
        sha256=hashlib.sha256(compiled.cubin).hexdigest(),
        compiler=compiler,
        flags=program.flags,
        resources=resources_in(compiled.log, compiled.entry),
    )
    try:
        _write(cubin, compiled.cubin, manifest)
    except FileError as error:
        warnings.warn(f"Machine code is cached for this run only: {error}", stacklevel=2)
        cubin = cubin.model_copy(update={"path": _folder_of_this_run() / cubin.path.name})
        cubin.path.write_bytes(compiled.cubin)
    return cubin


def _write(cubin: Cubin, code: bytes, manifest: Path) -> None:
    with replacing(cubin.path) as temporary:
        temporary.write_bytes(code)
    write_text(manifest, cubin.model_dump_json(indent=1) + "\n")
    for path in (cubin.path, manifest):
        path.chmod(0o600)


def _read(manifest: Path) -> Cubin | None:
    """The machine code cached under a manifest, or None; damage is a warning."""
    if not manifest.exists():
        return None
    try:
        cached = Cubin.model_validate_json(manifest.read_bytes())
        code = manifest.with_suffix(".cubin").read_bytes()
    except (OSError, ValidationError) as error:
        reason = first_line(error)
    else:
        if (
            cached.path == manifest.with_suffix(".cubin")
            and hashlib.sha256(code).hexdigest() == cached.sha256
        ):
            return cached
        reason = "its SHA-256 differs"
    warnings.warn(
        f"The machine code cached as {manifest.stem} is damaged ({reason}); it is compiled again.",
        stacklevel=2,
    )
    return None


def _folder() -> Path:
    """The user's own folder of machine code, or a temporary one if that is not private.

    Whoever can write there decides which code runs.
    """
    try:
        folder = cache_folder("kernels")
        folder.chmod(0o700)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            raise OSError(None, f"{folder} belongs to another user")
    except OSError as error:
        reason = error.strerror or first_line(error)
        warnings.warn(
            f"Machine code is cached for this run only: the cache is unusable ({reason}).",
            stacklevel=2,
        )
        return _folder_of_this_run()
    return folder


@cache
def _folder_of_this_run() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"paifuser-lab-{os.getpid()}-"))
