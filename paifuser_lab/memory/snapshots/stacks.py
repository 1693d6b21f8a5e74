"""Call stacks, each kept once: the call site of each, shortened, its layer and its category.

A call site is the innermost frame of the user's own code: outside of torch, of installed packages
and of Python's own files. Of a snapshot's file, layer and category are read from the functions and
files of the stack; torch does not record them, so they are readings and can be wrong. A layer is
then the line of the forward that called it, and blocks of one class that run in turn are one.
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
    "workspace",
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
    def is_forward(self) -> bool:
        return self.function == "forward" or self.function.endswith(".forward")

    @property
    def layer(self) -> str:
        """The class whose forward this is, or its file where the class is not recorded."""
        kind = self.function.rpartition(".")[0].rpartition(".")[2]
        return kind or self.path.rpartition("/")[2].removesuffix(".py")

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
        # layer and category of stacks where they are not read from the frames
        self.known: dict[int, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self.stacks)

    def frames_of(self, stack: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first."""
        return tuple(self.frames[index] for index in self.stacks[stack])

    def add(self, stack: tuple[int, ...], layer: str, category: str) -> int:
        """Add a stack whose layer and category are known; its index."""
        self.stacks.append(stack)
        self.known[len(self.stacks) - 1] = (layer, category)
        return len(self.stacks) - 1

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layer of each stack; '' if no forward is on it."""
        return tuple(
            self.known[index][0] if index in self.known else self._layer_of(stack)
            for index, stack in enumerate(self.stacks)
        )

    def _layer_of(self, stack: tuple[int, ...]) -> str:
        """The innermost forward of the user's own code, and the layer of torch that it called."""
        forwards = [self.frames[index] for index in stack if self.frames[index].is_forward]
        own = next((frame for frame in forwards if frame.is_own), None)
        if not forwards or own is forwards[0]:
            return str(own) if own else ""
        inner = forwards[0].layer
        return f"{own} › {inner}" if own else inner

    @cached_property
    def sites(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The call sites, and the index of each stack's."""
        index_of: dict[str, int] = {}
        shown = [str(frame) for frame in self.frames]
        # the user's own frames first, then others of Python; of equal ones the innermost
        rank = [2 if frame.is_native else 0 if frame.is_own else 1 for frame in self.frames]
        indices = []
        for stack in self.stacks:
            best = min(stack, key=lambda index: rank[index], default=None)
            site = UNKNOWN_SITE if best is None else shown[best]
            indices.append(index_of.setdefault(site, len(index_of)))
        return tuple(index_of), tuple(indices)

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """The index in CATEGORIES of each stack."""
        signs = [self._signs_of(frame) for frame in self.frames]
        meant = [*(category for category, _, _ in SIGNS), "other"]
        found = []
        for number, stack in enumerate(self.stacks):
            if number in self.known:
                category = self.known[number][1]
            else:
                category = meant[min(signs[index] for index in stack)] if stack else "unknown"
            found.append(CATEGORIES.index(category))
        return tuple(found)

    def _signs_of(self, frame: Frame) -> int:
        """The first of SIGNS that a frame shows; the number of signs if none."""
        for index, (_, file, function) in enumerate(SIGNS):
            if file in frame.path and function in ("", frame.function):
                return index
        return len(SIGNS)
