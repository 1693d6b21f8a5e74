"""Memory snapshots as torch writes them, made by the simulated allocator on a machine without a
GPU.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

from paifuser_lab.memory.snapshots.allocator import Allocator, Block, FreeBlocks
from paifuser_lab.memory.snapshots.settings import Settings

MIB = 1 << 20
TORCH = "/opt/lib/python3.11/site-packages/torch"
LAYER = {"name": "_call_impl", "filename": f"{TORCH}/nn/modules/module.py", "line": 1750}
NATIVE = {"name": "at::empty_cuda", "filename": "??", "line": 0}
MAIN = {"name": "main", "filename": "/home/user/work/train.py", "line": 80}


def frame(function: str, file: str, line: int) -> dict[str, Any]:
    return {"name": function, "filename": file, "line": line}


STACKS = (
    [NATIVE, frame("_apply", f"{TORCH}/nn/modules/module.py", 900), MAIN],
    [NATIVE, frame("forward", "/home/user/work/net.py", 12), LAYER, MAIN],
    [NATIVE, frame("forward", "/home/user/work/net.py", 31), LAYER, MAIN],
    [NATIVE, frame("backward", f"{TORCH}/_tensor.py", 600), MAIN],
    [NATIVE, frame("step", f"{TORCH}/optim/adam.py", 220), MAIN],
)


class Recorder(Allocator):
    """A simulated allocator that keeps the history of its segments as torch does."""

    def __init__(self, settings: Settings | None = None, limit_bytes: int | None = None) -> None:
        super().__init__(settings, limit_bytes)
        self.events: list[dict[str, Any]] = []
        self.heads: dict[int, Block] = {}
        self.stack_of: dict[int, list[dict[str, Any]]] = {}
        self.requested: dict[int, int] = {}

    def log(self, action: str, address: int, size: int, stream: int, **more: Any) -> None:
        more.setdefault("frames", [])
        key = "device_free" if action == "oom" else "addr"
        entry = {"action": action, key: address, "size": size, "stream": stream}
        self.events.append(entry | {"time_us": 1_700_000_000_000_000 + 7 * len(self.events)} | more)

    def _grown(self, pool: FreeBlocks, size: int) -> Block | None:
        block = super()._grown(pool, size)
        if block is not None:
            self.heads[block.address] = block
            self.log("segment_alloc", block.address, block.size, pool.key[0])
        return block

    def _give_back(self, block: Block) -> None:
        super()._give_back(block)
        del self.heads[block.address]
        self.log("segment_free", block.address, block.size, block.pool.key[0])

    def request(self, size: int, stack: list[dict[str, Any]], stream: int = 0) -> Block | None:
        """Allocate as a tensor's creation does."""
        block = self.allocate(size, stream)
        if block is None:
            left = max(0, (self.limit_bytes or 0) - self.reserved_bytes)
            self.log("oom", left, size, stream, frames=list(stack))
            return None
        self.log("alloc", block.address, size, stream, frames=list(stack))
        self.stack_of[block.address], self.requested[block.address] = stack, size
        return block

    def release(self, block: Block) -> None:
        """Free as a tensor's deletion does."""
        size, stream = self.requested[block.address], block.pool.key[0]
        self.log("free_requested", block.address, size, stream)
        self.log("free_completed", block.address, size, stream)
        self.free(block)

    def snapshot(self, **more: Any) -> dict[str, Any]:
        """What `torch.cuda.memory._snapshot` returns."""
        return {
            "segments": [self._segment(head) for head in self.heads.values()],
            "device_traces": [self.events],
            "allocator_settings": {
                "max_split_size": self.settings.max_split_bytes or -1,
                "garbage_collection_threshold": self.settings.garbage_collection_threshold,
                "expandable_segments": False,
                "roundup_power2_divisions": {"1": 0, "2": 0},
            },
            **more,
        }

    def _segment(self, head: Block) -> dict[str, Any]:
        blocks, block = [], head
        while block is not None:
            blocks.append(
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": 0 if block.is_free else self.requested[block.address],
                    "state": "inactive" if block.is_free else "active_allocated",
                    "frames": [] if block.is_free else list(self.stack_of[block.address]),
                }
            )
            block = block.next  # type: ignore[assignment]
        return {
            "device": 0,
            "address": head.address,
            "total_size": sum(row["size"] for row in blocks),
            "stream": head.pool.key[0],
            "segment_type": "small" if head.pool.is_small else "large",
            "is_expandable": False,
            "blocks": blocks,
        }


def recorded(
    seed: int = 0,
    steps: int = 300,
    settings: Settings | None = None,
    limit_bytes: int | None = None,
    keep: int = 40,
) -> Recorder:
    """A run of random requests and releases on two streams, with a few trims."""
    draw = random.Random(seed)
    recorder = Recorder(settings, limit_bytes)
    alive: list[Block] = []
    for _ in range(steps):
        if len(alive) > keep or (alive and draw.random() < 0.4):
            recorder.release(alive.pop(draw.randrange(len(alive))))
        elif draw.random() < 0.01:
            recorder.trim()
        else:
            size = int(2 ** draw.uniform(2, 25))
            block = recorder.request(size, draw.choice(STACKS), draw.choice((0, 0, 0, 7)))
            alive += [] if block is None else [block]
    return recorder


def dump(content: Any, path: Path, protocol: int = 4) -> Path:
    """Write what `torch.cuda.memory._dump_snapshot` writes."""
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path
