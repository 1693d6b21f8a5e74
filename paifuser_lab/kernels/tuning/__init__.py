"""Which tile is best for a problem on a device: compiled and ranked anywhere, measured on a GPU,
kept for the next time.

prospects  every tile compiled without a GPU; what spills or does not fit is dropped, the rest is
ranked bound      the least time that a launch can take: bytes, products, instructions loops
how many instructions a warp runs, read off the machine code occupancy  how many blocks run at once
search     the best tile within a budget of measurements space      tiles as points that a search
walks between model      a learned guess of a tile's time evolution  the tiles that the model thinks
best, in spaces too large to look at all finals     the best few measured again, in turn, until one
is left record     what was tried store      what was measured, a file for each device
"""
