"""The instructions in a kernel's machine code, by NVIDIA's disassembler, and how many a warp runs.

Nothing is run and no GPU is needed. The code's multiply-adds give the operations of one pass
through it, and a warp's total operations give the number of passes of its main loop: the innermost
loop with the most multiply-adds. Other loops, which load, count once; so do the instructions of an
outer loop.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Literal

from ..errors import KernelError, MissingExtraError, first_line

PACKAGE = "nvidia-cuda-nvdisasm"
_LINE = re.compile(
    r"^(\.L\w+):|^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)$", re.MULTILINE
)
_TARGET = re.compile(r"`\((\.L\w+)\)")
_SHAPE = re.compile(r"^([HIQ]MMA)\.168(\d+)")  # 16 × 8 results, each a sum of that many products
_PLAIN = {"FFMA": 2, "HFMA2": 4, "IDP": 8}  # operations per lane
_LANES = 32

Loop = tuple[int, int]  # its first instruction, and the one behind its last
# the unit that computes the products
Unit = Literal["matrices", "int8 matrices", "four bytes", "plain"]
_UNITS: dict[str, Unit] = {
    "HMMA": "matrices",
    "IMMA": "int8 matrices",
    "QMMA": "int8 matrices",
    "IDP": "four bytes",
    "FFMA": "plain",
    "HFMA2": "plain",
}


def listing_of(cubin: Path) -> str:
    """The machine code as text, one instruction per line."""
    command = [disassembler(), str(cubin)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise KernelError(
            f"{cubin.name} cannot be disassembled: {first_line(RuntimeError(process.stderr))}."
        )
    return process.stdout


def disassembler() -> str:
    """The path of nvdisasm: of its pip package, or on the PATH."""
    try:
        for file in files(PACKAGE) or []:
            path = Path(str(file.locate()))
            if path.name in ("nvdisasm", "nvdisasm.exe") and path.exists():
                return str(path)
    except PackageNotFoundError:
        pass
    if known := shutil.which("nvdisasm"):
        return known
    raise MissingExtraError(PACKAGE, extra="dev", needed_for="Counting a kernel's instructions")


def instructions_run(listing: str, operations: float) -> float:
    """The instructions that one warp runs for so many operations; a multiply-add counts as two."""
    names, loops = _parsed(listing)
    unit = _unit(names)
    work = [_operations(name) if _UNITS.get(_kind(name)) == unit else 0 for name in names]
    once = [index for index, name in enumerate(names) if name != "NOP"]
    start, end = max(_innermost(loops), key=lambda loop: sum(work[slice(*loop)]), default=(0, 0))
    inside = sum(work[start:end])
    if not inside:
        return len(once)
    passes = max(1.0, (operations - (sum(work) - inside)) / inside)
    return len(once) + (passes - 1) * sum(start <= index < end for index in once)


def unit_of(listing: str) -> Unit:
    """The unit that computes the products: the matrix units if the code has such an instruction."""
    return _unit(_parsed(listing)[0])


def _parsed(listing: str) -> tuple[list[str], list[Loop]]:
    """The name of every instruction, and the range of each loop, by its jump back."""
    names: list[str] = []
    loops: list[Loop] = []
    labels: dict[str, int] = {}
    for label, name, rest in _LINE.findall(listing):
        if label:
            labels[label] = len(names)
            continue
        names.append(name)
        target = _TARGET.search(rest)
        if name.startswith("BRA") and target is not None and target[1] in labels:
            loops.append((labels[target[1]], len(names)))
    return names, loops


def _innermost(loops: Sequence[Loop]) -> list[Loop]:
    def holds(loop: Loop, other: Loop) -> bool:
        return other != loop and loop[0] <= other[0] and other[1] <= loop[1]

    return [loop for loop in loops if not any(holds(loop, other) for other in loops)]


def _unit(names: Sequence[str]) -> Unit:
    kinds = set(map(_kind, names))
    return next((unit for kind, unit in _UNITS.items() if kind in kinds), "plain")


def _kind(name: str) -> str:
    return name.partition(".")[0]


def _operations(name: str) -> int:
    """The operations that one instruction computes in a warp."""
    shape = _SHAPE.match(name)
    return 2 * 16 * 8 * int(shape[2]) if shape else _PLAIN.get(_kind(name), 0) * _LANES
