"""Which code that a file holds or names may run: a name such as `package.module:function` or
`file.py:function` is code, and so is a program of torch.export, which is unpickled.

A name that the user types is trusted. A name in a file (the origin of a saved folder, a recipe's
workload) is followed with `trust=True` or `--trust`, and otherwise only where it runs nothing new:

* a function of paifuser_lab, or of the package of an installed plug-in (entry point
  `paifuser_lab.steps`), that declares `-> Workload`;
* a function of a user's module that this process has already imported, the notebook itself
  included. A user's module neither belongs to Python nor lies in site-packages, which hold much
  that does harm when called (`pytest:main`).

Either way the function is defined in that module, not imported there, and the working directory is
not added to the path for it. Functions of the standard library, such as `os:abort`, create no
model and are always refused.

A program (`.pt2`) is loaded with trust, or where this process has loaded a file of the same content
with trust before: a saved folder then finds its original again.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from .._files import PACKAGE, file_exists
from ..errors import FileError, PaifuserError, UnknownModelError, first_line
from .model_files import content_hash, is_model_file, is_program
from .python_names import CodeName, defined_in

SITES = {"site-packages", "dist-packages"}
HOW = "with trust=True (on the command line: --trust)"


def names_function(name: str) -> bool:
    """Whether a name is that of a function, `package.module:function`."""
    return ":" in name and not name.startswith("hf:") and not is_model_file(name)


_trusted_programs: set[str] = set()  # the SHA-256 of those that were loaded with trust


def check_program(name: str, *, trust: bool) -> None:
    """Refuse a program of torch.export that is not trusted."""
    if not is_program(name):
        return
    if not file_exists(name):
        raise FileError(f"There is no program {name!r}.")
    content = content_hash([Path(name)])
    if trust:
        _trusted_programs.add(content)
    elif content not in _trusted_programs:
        raise FileError(
            f"{name} is read by torch.export.load, which unpickles it and so may run code that the "
            f"file holds: if you trust it, load it {HOW}."
        )


def imported(name: str) -> Callable[..., Any]:
    """The function of a trusted name."""
    parts = CodeName.of(name)
    try:
        function = getattr(parts.imported(), parts.attribute)
    except PaifuserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UnknownModelError(
            f"{name!r} cannot be imported ({reason}); {_remedy(parts, error)}."
        ) from error
    if not callable(function):
        raise UnknownModelError(
            f"{name!r} is a {type(function).__name__}, not a function; give "
            "package.module:function."
        )
    if parts.file is None and _is_standard_library(parts.module):
        raise UnknownModelError(
            f"{name!r} is Python's own and makes no model; give package.module:function of a "
            "function that returns a Workload."
        )
    return function  # type: ignore[no-any-return]


def _remedy(parts: CodeName, error: Exception) -> str:
    """What to do about a name that cannot be imported."""
    if parts.file is None:
        return "give package.module:function, or file.py:function"
    if isinstance(error, AttributeError) and (defined := defined_in(parts.file)):
        return f"it defines {', '.join(defined)}"
    return "correct the file"


def followed(name: str, source: str | Path) -> Callable[..., Any]:
    """The function that a file names, if it may be followed without trust; else a FileError that
    says how to trust the file.
    """
    parts = CodeName.of(name)
    function: Any
    if _is_plug_in(parts.module):
        function = imported(name)
        is_followed = _declares_workload(function)
    else:
        module = parts.loaded()
        function = getattr(module, parts.attribute, None)
        is_followed = module is not None and callable(function) and _is_user_module(module)
    if not (is_followed and getattr(function, "__module__", None) == parts.module_name):
        raise FileError(
            f"{source} names {name!r}, which would run code that a file chose: if you trust it, "
            f"load it {HOW}."
        )
    return function  # type: ignore[no-any-return]


def check_named_in_file(name: str, options: Mapping[str, Any], source: str | Path) -> None:
    """Refuse a name in a file, or options beside it, that need trust."""
    if names_function(name):
        followed(name, source)
        return
    if is_model_file(name):
        return
    # A transformers config may fetch a kernel, which is code, from a hub or a folder.
    for key, value in options.items():
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
    """Whether a module belongs to paifuser_lab, or to the package of an installed step; a
    package's `__main__` does not.
    """
    steps = [entry.module for entry in entry_points(group="paifuser_lab.steps")]
    packages = [__package__, *(step.rpartition(".")[0] or step for step in steps)]
    is_main = module.rpartition(".")[2] == "__main__"
    return not is_main and any(
        module == package or module.startswith(f"{package}.") for package in packages
    )


def _declares_workload(function: Callable[..., Any]) -> bool:
    if not inspect.isfunction(function):
        return False
    declared = inspect.signature(function).return_annotation
    return getattr(declared, "__name__", str(declared)).rpartition(".")[2] == "Workload"


def _is_standard_library(module: str) -> bool:
    """Whether a module belongs to the standard library; a user's file of the same name does not."""
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or _is_inside(Path(file), _installed())


def _is_user_module(module: ModuleType) -> bool:
    """Whether neither the module nor its root package was installed; a notebook has no file."""
    if module.__name__ == "__main__" and getattr(module, "__file__", None) is None:
        return True
    root = sys.modules.get(module.__name__.partition(".")[0])
    return not _is_standard_library(module.__name__) and all(
        part is not None and _is_not_installed(part) for part in (root, module)
    )


def _is_not_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    paths = [Path(path) for path in ([file] if file else getattr(module, "__path__", ()))]
    return bool(paths) and not any(_is_inside(path, _installed()) for path in paths)


def _installed() -> set[Path]:
    """The folders of programs and packages: the standard library, installed packages, scripts, and
    paifuser_lab.
    """
    folders = (
        Path(sysconfig.get_path(name))
        for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    )
    return {
        path for folder in (*folders, PACKAGE) for path in (folder.absolute(), folder.resolve())
    }


def _is_inside(file: Path, folders: set[Path]) -> bool:
    """Whether a file lies in the folders, as written or resolved: it may be a link to a cache."""
    forms = (file.absolute(), file.resolve())
    return any(SITES & set(form.parts) or folders & set(form.parents) for form in forms)
