"""Run notebooks without a browser: `notebook` runs one, `sweep` one per combination of parameters,
which `grid` makes.
"""
