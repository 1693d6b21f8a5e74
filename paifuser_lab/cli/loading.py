"""The model that a command is about, and whether functions that files name are called."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Call a function that a file names, such as a saved folder's original."
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        help="A model's name, an ONNX file, a .pt2 program, hf:TYPE, hf:PATH, "
        "package.module:function, or a saved model's folder."
    ),
]


def load_model(model: str, *, trust: bool, **options: Any) -> Any:
    """Load the named model; functions that the user names or trusts may be in the current
    folder.
    """
    from ..loading.trust import names_function
    from ..variant.open import load

    if trust or names_function(model):
        sys.path.insert(0, os.getcwd())
    return load(model, trust=trust, **options)
