"""Any torch model, seen and edited, without knowing what it is for.

`watch` observes calls of layers, `graph` records one run as operators, `fold` joins batch-norms,
`replace` exchanges a module, `weights` hashes, counts, saves and loads.
"""
