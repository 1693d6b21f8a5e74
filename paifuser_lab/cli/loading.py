"""The model that a command is about, whether functions that files name are called, and options
with several values.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import paifuser_lab as lab

from ..errors import PaifuserError
from ..variant.folder import can_be_named, is_folder
from ..variant.python_names import CodeName, is_python_file, named_in
from ..variant.trust import check_named_in_file, names_function

Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run code that a file names or holds: a saved folder's original, a program."
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        help="A model's name, an ONNX file, a .pt2 program, hf:TYPE, hf:PATH, file.py:function, "
        "file.py:Class, package.module:function, or a saved model's folder."
    ),
]
Shapes = Annotated[
    str,
    typer.Option(
        "--input",
        help="The shapes of the inputs of a model of your own that comes without: 1x3x32x32, "
        "several separated by commas.",
    ),
]


def load_model(model: str, *, trust: bool, shapes: str = "", **options: Any) -> Any:
    """Load the named model, with inputs of these shapes."""
    work = lab.load(named(model, trust=trust, shapes=shapes), trust=trust, **options)
    for note in work.notes:
        typer.echo(f"{work.name}: {note}", err=True)
    return work


def named(model: str, *, trust: bool, shapes: str = "") -> str:
    """The model's name with the shapes of its inputs; functions that the user names or trusts may
    be in the current folder.
    """
    if trust or names_function(model):
        sys.path.insert(0, os.getcwd())
    if not shapes:
        return model
    if is_python_file(model):
        model = named_in(model, trust=trust)
    if not names_function(model):
        raise PaifuserError(
            f"{model} has inputs of its own; --input is for code of yours, as net.py:Net."
        )
    return CodeName.of(model).with_shapes(shapes)


def model_of(recipe: lab.Recipe, file: Path, *, trust: bool) -> str:
    """The name by which a recipe's own workload is loaded."""
    name = recipe.workload
    if name is None:
        raise PaifuserError(f"{file.name} names no workload; say which with --model.")
    if not (can_be_named(name) or is_folder(name)):
        raise PaifuserError(
            f"{file.name} is for '{name}', which is no name to load a model by; say which with "
            "--model, as net.py:make."
        )
    if not trust:
        check_named_in_file(name, {}, file)
    return name


def split(text: str) -> tuple[str, ...]:
    """The values that commas separate."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """The numbers that commas separate; None where there are none."""
    try:
        return tuple(float(part) for part in split(text or "")) or None
    except ValueError:
        raise PaifuserError(
            f"--{option} {text!r} is no number; give one, or one a channel, separated by commas."
        ) from None
