"""Call stacks, each kept once: the call site of each, shortened, and its category.

A call site is the innermost frame of the user's own code: outside of torch, of installed packages
and of Python's own files. The category is read from the functions and files of the stack; torch
does not record it, so it is a reading and can be wrong.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

CATEGORIES = (
    "weights",
    "optimizer state",
    "gradients",
    "activations",
    "inputs",
    "communication",
    "other",
    "unknown",
)
UNKNOWN_SITE = "no call stack recorded"
NO_STACK = 0
NOT_OURS = (
    "/torch/",
    "/torchinductor",
    "site-packages/",
    "dist-packages/",
    "/lib/python3",
    "<frozen",
    "<built",
)
NATIVE = (".cpp", ".cc", ".cu", ".h", ".hpp", ".c", ".so", "??")
# the first that is found in a stack decides: part of the file's path, name of the function
SIGNS = (
    ("communication", "/torch/distributed/", ""),
    ("optimizer state", "/torch/optim/", ""),
    ("gradients", "/torch/autograd/", "backward"),
    ("gradients", "", "backward"),
    ("gradients", "/torch/_tensor.py", "backward"),
    ("inputs", "/torch/utils/data/", ""),
    ("inputs", "", "pin_memory"),
    ("weights", "/torch/nn/modules/module.py", "_apply"),
    ("weights", "/torch/nn/modules/module.py", "to"),
    ("weights", "/torch/nn/modules/module.py", "load_state_dict"),
    ("weights", "/torch/nn/init.py", ""),
    ("activations", "/torch/nn/", "forward"),
    ("activations", "", "forward"),
    ("activations", "/torch/nn/functional.py", ""),
    ("weights", "/torch/nn/modules/", "__init__"),
)


class Frame(NamedTuple):
    """A line of a call stack."""

    function: str
    file: str
    line: int

    @property
    def is_native(self) -> bool:
        return not self.file or self.file.endswith(NATIVE)

    @property
    def is_own(self) -> bool:
        """Whether it is the user's code."""
        return not self.is_native and not any(part in self.path for part in NOT_OURS)

    @property
    def path(self) -> str:
        return self.file.replace("\\", "/")

    def __str__(self) -> str:
        if self.is_native:
            return self.function or UNKNOWN_SITE
        folder_and_file = "/".join(self.path.split("/")[-2:])
        return f"{folder_and_file}:{self.line} {self.function}"


class Stacks:
    """Every call stack of a snapshot once; the first is the empty one."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.stacks: list[tuple[int, ...]] = [()]

    def __len__(self) -> int:
        return len(self.stacks)

    def frames_of(self, stack: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first."""
        return tuple(self.frames[index] for index in self.stacks[stack])

    @cached_property
    def sites(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The call sites, and the index of each stack's."""
        index_of: dict[str, int] = {}
        shown = [str(frame) for frame in self.frames]
        is_own = [frame.is_own for frame in self.frames]
        is_native = [frame.is_native for frame in self.frames]
        indices = []
        for stack in self.stacks:
            own = next((index for index in stack if is_own[index]), -1)
            python = next((index for index in stack if not is_native[index]), -1)
            best = own if own >= 0 else python if python >= 0 else stack[0] if stack else -1
            indices.append(
                index_of.setdefault(shown[best] if best >= 0 else UNKNOWN_SITE, len(index_of))
            )
        return tuple(index_of), tuple(indices)

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """The index in CATEGORIES of each stack."""
        signs = [self._signs_of(frame) for frame in self.frames]
        other = CATEGORIES.index("other")
        unknown = CATEGORIES.index("unknown")
        found = []
        for stack in self.stacks:
            first = min((signs[index] for index in stack), default=None)
            found.append(
                unknown
                if first is None
                else other
                if first == len(SIGNS)
                else CATEGORIES.index(SIGNS[first][0])
            )
        return tuple(found)

    def _signs_of(self, frame: Frame) -> int:
        """The first of SIGNS that a frame shows; the number of signs if none."""
        for index, (_, file, function) in enumerate(SIGNS):
            if file in frame.path and function in ("", frame.function):
                return index
        return len(SIGNS)
