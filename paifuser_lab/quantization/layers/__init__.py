"""The layers in lower precision: each computes live as the runtimes do, and gives its weights back
as data.
"""
