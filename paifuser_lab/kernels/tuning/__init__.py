"""Which tile is best for a problem on a device: ranked without a GPU, measured on one, stored.

candidates  every tile compiled without a GPU; what spills or does not fit is dropped
bound       the least time that a launch can take: bytes, products, instructions
occupancy   how many blocks a multiprocessor runs at once
search      the best tile within a budget of measurements, and the final rounds
space       tiles as points that a search moves between
evolution   a learned model of a tile's time, and the tiles that it rates best
record      the attempts of a search and its winner
store       the best tiles measured, one file a device
"""
