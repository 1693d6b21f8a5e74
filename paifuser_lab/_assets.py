"""Finds the files that are not Python: front-end sources, CUDA sources and notebooks, in a wheel as
in a checkout.
"""

from __future__ import annotations

from pathlib import Path

from .errors import FileError

PACKAGE = Path(__file__).parent


def asset(name: str) -> Path:
    """The path of `widgets/…`, `kernels/…` or `notebooks/…`: of the wheel's copy, or of the
    checkout's.
    """
    places = (PACKAGE / "_sources" / name, PACKAGE.parent / name)
    for place in places:
        if place.exists():
            return place
    raise FileError(
        f"{name} is neither in the installed package ({places[0]}) nor in a checkout "
        f"({places[1]}); reinstall paifuser-lab."
    )


def notebook_file(name: str) -> Path:
    """A notebook: a file of the user's, or one of ours by its name."""
    if Path(name).is_file():
        return Path(name)
    ours = sorted(path.name for path in asset("notebooks").glob("*.ipynb"))
    if name not in ours:
        raise FileError(
            f"There is no notebook {name}, neither as a file nor among ours: {', '.join(ours)}."
        )
    return asset(f"notebooks/{name}")


def own_notebook(name: str) -> Path:
    """A notebook of ours that may be written to: the checkout's own, or a copy of the wheel's in
    the current folder.
    """
    source = notebook_file(name)
    if "_sources" not in source.parts:
        return source
    target = Path.cwd() / name
    if not target.exists():
        target.write_bytes(source.read_bytes())
    return target
