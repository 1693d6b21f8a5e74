"""Inspect and edit any torch model, whatever its task.

`watch` observes calls of layers, `graph` records one run as operators, `branches` proves what holds
for every input, `fold` folds batch-norms, `replace` exchanges a module, `weights` hashes, counts,
saves and loads, `tensors` lists those of an output, `silence` keeps compilers from printing.
"""
