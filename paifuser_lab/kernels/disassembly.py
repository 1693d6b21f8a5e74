"""The one door to NVIDIA's disassembler: which instructions a piece of machine code has. Needs no
GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from ..errors import KernelError, MissingExtraError, first_line

PACKAGE = "nvidia-cuda-nvdisasm"
_INSTRUCTION = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE
)


def instructions_of(cubin: Path) -> Counter[str]:
    """How often each instruction stands in the machine code: FFMA, LDSM, HMMA …; the padding at the
    end is left out.
    """
    counted = Counter(_INSTRUCTION.findall(listing_of(cubin)))
    counted.pop("NOP", None)
    return counted


def listing_of(cubin: Path) -> str:
    """The machine code as text, an instruction a line."""
    done = subprocess.run([disassembler(), str(cubin)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(
            f"{cubin.name} cannot be disassembled: {first_line(RuntimeError(done.stderr))}."
        )
    return done.stdout


def disassembler() -> str:
    """nvdisasm: of its pip package, or on the path."""
    try:
        found = [
            Path(str(file.locate()))
            for file in files(PACKAGE) or []
            if file.name in ("nvdisasm", "nvdisasm.exe")
        ]
    except PackageNotFoundError:
        found = []
    places = [str(path) for path in found if path.exists()] + [
        path for path in [shutil.which("nvdisasm")] if path
    ]
    if not places:
        raise MissingExtraError(PACKAGE, extra="dev", needed_for="Counting a kernel's instructions")
    return places[0]
