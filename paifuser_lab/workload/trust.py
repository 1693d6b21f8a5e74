"""Which functions that a file names may be imported and called: a name such as
`package.module:function` is code.

What a person types is their own word. A name that stands in a file (the origin of a saved folder, a
recipe's workload) is followed where the caller says so (`trust=True`, `--trust`), and otherwise
only where it runs nothing new:

* a function of paifuser_lab, or of the package of an installed plug-in (entry point
  `paifuser_lab.steps`), that declares
  `-> Workload`;
* a function of a module of the user's own that this process has imported already, the notebook
  itself included. The user's own is
  what neither belongs to Python nor lies in site-packages, which hold much that does harm when
  called (`pytest:main`).

Either way the function is defined in that module, not borrowed from another, and the working
directory is not put on the path for it. Functions of Python's own, such as `os:abort`, make no
model and are refused whoever names them.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from .._files import PACKAGE
from ..errors import FileError, UnknownModelError, first_line

SITES = {"site-packages", "dist-packages"}
HOW = "with trust=True (on the command line: --trust)"


def names_function(name: str) -> bool:
    """Whether a name is one of a function, `package.module:function`."""
    return ":" in name and not name.startswith("hf:")


def imported(name: str) -> Callable[..., Any]:
    """The function of a name that is trusted."""
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UnknownModelError(
            f"{name!r} cannot be imported ({reason}); give package.module:function."
        ) from error
    if not callable(found):
        raise UnknownModelError(
            f"{name!r} is a {type(found).__name__}, not a function; give package.module:function."
        )
    if _is_pythons(module):
        raise UnknownModelError(
            f"{name!r} is Python's own and makes no model; give package.module:function of a "
            "function that returns a Workload."
        )
    return found  # type: ignore[no-any-return]


def followed(name: str, source: str | Path) -> Callable[..., Any]:
    """The function that a file names, where following it needs nobody's trust; a FileError says how
    to trust the file.
    """
    module, _, function = name.partition(":")
    found: Any
    if _is_plug_in(module):
        found = imported(name)
        is_followed = _declares_workload(found)
    else:
        found = getattr(sys.modules.get(module), function, None)
        is_followed = (
            module in sys.modules and callable(found) and _is_users_own(sys.modules[module])
        )
    if not (is_followed and getattr(found, "__module__", None) == module):
        raise FileError(
            f"{source} names {name!r}, which would run code that a file chose: if you trust it, "
            f"load it {HOW}."
        )
    return found  # type: ignore[no-any-return]


def check_named_in_file(name: str, options: Mapping[str, Any], source: str | Path) -> None:
    """Refuse a name in a file, or the options beside it, that would be followed only with trust."""
    if names_function(name):
        followed(name, source)
        return
    for (
        key,
        value,
    ) in (
        options.items()
    ):  # a transformers config may fetch a kernel, which is code, from a hub or a folder
        if any("/" in word or os.sep in word for word in _words(value)):
            raise FileError(
                f"{source} gives the option {key}={value!r}, which may fetch code: if you trust "
                f"it, load it {HOW}."
            )


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _words(key)
            yield from _words(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)


def _is_plug_in(module: str) -> bool:
    """Whether it belongs to paifuser_lab, or to the package in which an installed step lies; a
    program's `__main__` does not.
    """
    steps = [entry.module for entry in entry_points(group="paifuser_lab.steps")]
    packages = [__package__, *(step.rpartition(".")[0] or step for step in steps)]
    is_program = module.rpartition(".")[2] == "__main__"
    return not is_program and any(
        module == package or module.startswith(f"{package}.") for package in packages
    )


def _declares_workload(function: Callable[..., Any]) -> bool:
    if not inspect.isfunction(function):
        return False
    declared = inspect.signature(function).return_annotation
    return getattr(declared, "__name__", str(declared)).rpartition(".")[2] == "Workload"


def _is_pythons(module: str) -> bool:
    """Whether a module is of the standard library; a file of the user's that only has the same name
    is not.
    """
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or _lies_in(Path(file), _installed())


def _is_users_own(module: ModuleType) -> bool:
    """Whether neither the module nor the package at its root was installed; a notebook has no
    file.
    """
    if module.__name__ == "__main__" and getattr(module, "__file__", None) is None:
        return True
    root = sys.modules.get(module.__name__.partition(".")[0])
    return not _is_pythons(module.__name__) and all(
        one is not None and _lies_elsewhere(one) for one in (root, module)
    )


def _lies_elsewhere(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    places = [Path(place) for place in ([file] if file else getattr(module, "__path__", ()))]
    return bool(places) and not any(_lies_in(place, _installed()) for place in places)


def _installed() -> set[Path]:
    """Where programs and packages are: Python's own library, installed packages, scripts, and
    paifuser_lab.
    """
    places = (
        Path(sysconfig.get_path(name))
        for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    )
    return {form for place in (*places, PACKAGE) for form in (place.absolute(), place.resolve())}


def _lies_in(file: Path, folders: set[Path]) -> bool:
    """As the path is written, and as links lead: an installed file may be a link to a cache."""
    forms = (file.absolute(), file.resolve())
    return any(SITES & set(form.parts) or folders & set(form.parents) for form in forms)
