"""The command `paifuser-lab`, also `python -m paifuser_lab.cli`. `program` has the commands
and their groups, other modules are named after theirs, `bench` makes commands of benches,
`loading` finds a command's model, `terminal` prints; `notebook` runs one by papermill, `sweep` one
per combination of parameters, which `grid` makes.
"""

from .program import app, main

__all__ = ["app", "main"]
