"""Which blocks of a model are divided among processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import Record
from .table import TableRecord
from .text import counted, readable_count
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas


class TensorBlock(Record):
    """An attention or MLP block: its linear layers, what each sum over the processes has, forward
    and backward, and why it stays whole, if it does.
    """

    kind: str
    layers: tuple[str, ...]
    parameters: int
    exchanged_bytes: tuple[int, ...] = ()
    reason: str = ""


class TensorPlan(TableRecord):
    """The blocks of a model that tensor parallelism divides among processes."""

    text_columns = ("block", "layers", "divided")

    workload: AboutWorkload
    processes: int
    parameters: int
    blocks: tuple[TensorBlock, ...] = ()

    @property
    def divided(self) -> tuple[TensorBlock, ...]:
        """The blocks that are divided."""
        return tuple(block for block in self.blocks if not block.reason)

    @property
    def share(self) -> float:
        """The share of the parameters in divided blocks."""
        return sum(block.parameters for block in self.divided) / max(self.parameters, 1)

    @property
    def own_parameters(self) -> int:
        """The parameters that each process has."""
        divided = sum(block.parameters for block in self.divided)
        return self.parameters - divided + -(-divided // self.processes)

    @property
    def reason(self) -> str:
        """Why blocks stay whole, once each."""
        reasons = dict.fromkeys(block.reason for block in self.blocks if block.reason)
        return "; ".join(reasons) or "no linear layers lie between two others of their block"

    @property
    def title(self) -> str:
        """The workload and what is divided, in a line."""
        return (
            f"{self.workload} on {self.processes} processes · {len(self.divided)} of "
            f"{counted(len(self.blocks), 'block')} divided, "
            f"{self.share:.0%} of the parameters"
        )

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per block, as plain numbers."""
        import pandas

        return pandas.DataFrame([block.model_dump() for block in self.blocks])

    def table(self) -> list[dict[str, str]]:
        """A row per block."""
        return [
            {
                "block": block.kind,
                "layers": ", ".join(block.layers),
                "parameters": readable_count(block.parameters),
                "divided": "no: " + block.reason if block.reason else "yes",
            }
            for block in self.blocks
        ]

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether the block is divided."""
        return row["divided"] == "yes"
