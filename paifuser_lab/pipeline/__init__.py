"""Recipes and notebooks in bulk, without a person: `notebook` runs one, `sweep` every combination
of parameters.
"""
