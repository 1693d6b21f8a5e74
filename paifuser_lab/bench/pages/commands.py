"""The command that measures each record, and the note of a block that has none."""

from __future__ import annotations

from .folder import Records
from .text import paragraph

# The name of a record's file → the command that writes it, with `--json docs/measured/NAME.json`.
COMMANDS = {
    "models": "bench models resnet18 mobilenetv2 vit-s bert-base --by-hand",
    "fuse": "bench fuse",
    "fuse_builds": "bench fuse --builds",
    "profile": "bench profile",
    "flops": "bench profile --flops",
    "promises": "bench experiment promises",
    "precision": "bench precision",
    "sums": "bench experiment sums",
    "allocation": "bench experiment allocation",
    "sensitivity": "bench sensitivity resnet18-hard-digits",
    "hessian": "bench sensitivity --peer pyhessian",
    "widgets": "bench widgets",
    "prune": "bench prune",
    "prune_peer": "bench prune --peer torch-pruning",
    "compress": "bench compress",
    "compress_segnet": "bench compress segnet-streets --goals 0.18 --seeds 1",
    "cut": "bench experiment cut",
    "int4": "bench experiment int4",
    "attention": "bench experiment attention",
}
# Blocks whose record has another name than they have.
RECORD_OF = {"builds": "fuse_builds", "segmentation": "compress_segnet", "summary": "models"}


def not_measured(block: str) -> str:
    """What stands in a block whose record is not there."""
    command = COMMANDS[RECORD_OF.get(block, block)]
    return f"Not measured yet: `paifuser-lab {command}` measures it."


def missing(records: Records) -> str:
    """The commands whose record is not in the folder."""
    commands = [
        f"`paifuser-lab {command}`" for name, command in COMMANDS.items() if not records.has(name)
    ]
    if not commands:
        return "Every command of these pages has a record."
    return paragraph(
        "These commands have no record in `docs/measured/` yet, so no page claims what they "
        f"measure: {', '.join(commands)}."
    )
