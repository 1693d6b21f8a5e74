"""Inspect and edit any torch model, whatever its task.

`watch` observes calls of layers, `graph` records one run as operators, `dataflow` says who reads an
output, in one run and for every input, `flops` counts multiply-adds, `fold` folds batch-norms,
`replace` exchanges a module, `weights` hashes, counts, saves and loads, `tensors` lists those of an
output, `silence` keeps compilers from printing, `formats` rounds to a precision as quantized layers
do.
"""
