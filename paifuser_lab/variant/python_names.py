"""Names of the user's own code: `package.module:function`, `file.py:function`, also with a path, or
a class; with `@1x3x32x32` the shapes of the inputs of a model that comes without.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from .._files import file_exists, read_text
from ..errors import FileError, UnknownModelError, WorkloadError

RETURNS = (
    "a function that returns a Workload, a pair of a model and its inputs, or a model; or the "
    "model's class"
)
MOST_VALUES = 1 << 30  # of an input
DEFAULT = "make"  # the function of a file that is named without one, and trusted
SOURCE = "__paifuser_source__"  # the SHA-256 of the text that a module was executed from


class CodeName(NamedTuple):
    """The parts of a name."""

    module: str  # its dotted name, or the path of its file
    attribute: str
    shapes: str  # of the inputs, as they were written; '' without any

    @classmethod
    def of(cls, name: str) -> CodeName:
        """The parts of a name of code."""
        module, _, rest = name.rpartition(":")
        attribute, _, shapes = rest.partition("@")  # a folder's name may have one too
        return cls(module, attribute, shapes)

    def with_shapes(self, shapes: str) -> str:
        """The name with these shapes."""
        return f"{self.module}:{self.attribute}@{shapes}"

    @property
    def file(self) -> Path | None:
        """The file, where the name gives one."""
        return Path(self.module).absolute() if is_python_file(self.module) else None

    @property
    def module_name(self) -> str:
        """What the module is called once it is imported."""
        return self.module if self.file is None else self.file.stem

    @property
    def folder(self) -> Path:
        """The folder that its code imports from: of the file, else the current one."""
        return Path.cwd() if self.file is None else self.file.parent

    def loaded(self) -> ModuleType | None:
        """The module, if this process has imported it."""
        module = sys.modules.get(self.module_name)
        if module is None or self.file is None:
            return module
        own = getattr(module, "__file__", None)
        return module if own and Path(own).resolve() == self.file.resolve() else None

    def imported(self) -> ModuleType:
        """The module, imported; a file under its own name, and again where it was edited."""
        if self.file is None:
            return import_module(self.module)
        name, known = self.module_name, self.loaded()
        before = None if known is None else vars(known).get(SOURCE)
        if known is not None and before is None:
            return known  # the user's own import
        if not file_exists(self.file):
            raise FileError(f"There is no file {self.module!r}.")
        if known is None and (name in sys.modules or name in sys.stdlib_module_names):
            raise UnknownModelError(
                f"{self.module} would be the module '{name}', and another one is called that; "
                "rename the file."
            )
        source = self.file.read_bytes()
        executed = hashlib.sha256(source).hexdigest()
        if known is not None and executed == before:
            return known
        spec = spec_from_file_location(name, self.file)
        assert spec is not None
        module = sys.modules[name] = module_from_spec(spec)
        setattr(module, SOURCE, executed)
        try:
            # the text itself: its loader may take the compiled code of an earlier edit
            exec(compile(source, self.file, "exec", dont_inherit=True), vars(module))
        except BaseException:
            del sys.modules[name]
            if known is not None:
                sys.modules[name] = known
            raise
        return module


def is_python_file(name: str) -> bool:
    """Whether a name is that of a file of Python code, without what in it makes the model."""
    return name.lower().endswith(".py")


def named_in(file: str, *, trust: bool) -> str:
    """The name of the function `make` of a trusted file; else raise, saying how it is given."""
    if not file_exists(file):
        raise FileError(f"There is no file {file!r}.")
    defined = defined_in(Path(file))
    if trust and DEFAULT in defined:
        return f"{file}:{DEFAULT}"
    shown = defined[0] if defined and DEFAULT not in defined else DEFAULT
    has = f"it defines {', '.join(defined)}" if defined else "it defines none yet"
    raise UnknownModelError(
        f"{file} is code: name what in it makes the model, such as {file}:{shown} ({has}): "
        f"{RETURNS}. With trust=True (on the command line: --trust) {file} alone means its "
        f"function '{DEFAULT}'."
    )


def defined_in(file: Path) -> list[str]:
    """The public functions and classes of a file, without running it."""
    try:
        tree = ast.parse(read_text(file))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise FileError(f"{file} is not Python code: {error}.") from error
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]


def shapes_of(name: str) -> list[tuple[int, ...]]:
    """The shapes in a name: `1x3x32x32`, several separated by commas."""
    text = CodeName.of(name).shapes
    try:
        shapes = [tuple(int(size) for size in part.split("x")) for part in text.split(",")]
    except ValueError:
        shapes = []
    if not shapes or any(min(shape) < 1 or prod(shape) > MOST_VALUES for shape in shapes):
        raise WorkloadError(
            f"{text!r} is no shape of an input; write 1x3x32x32, and several separated by commas."
        )
    return shapes
