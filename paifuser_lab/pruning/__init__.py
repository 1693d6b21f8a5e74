"""Smaller models: channels, heads and blocks left out, and what is left refitted.

`groups` finds which channels go together, cuts and proves it; `targets` chooses how much to cut;
`blocks` leaves out residual blocks; `refit` gives the layers that are left new weights.
"""
