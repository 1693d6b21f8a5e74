"""Which claims have no record, and the commands that would make them."""

from __future__ import annotations

from .folder import Records
from .text import paragraph

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


def missing(records: Records) -> str:
    """What is measured by a command and has no record here."""
    commands = [
        f"`paifuser-lab {command}`" for name, command in COMMANDS.items() if not records.has(name)
    ]
    if not commands:
        return ""
    return paragraph(
        "No run of these is on record here, and so nothing is claimed of what they measure: "
        f"{', '.join(commands)}."
    )
