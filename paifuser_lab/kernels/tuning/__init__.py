"""The search for the best tile of a problem on a device: ranked without a GPU, measured on one.

candidates  every tile compiled without a GPU; those that spill or do not fit are dropped
bound       the lower bound of a launch's time: bytes, products, instructions
occupancy   how many blocks a multiprocessor runs at once
search      the best tile within a budget of measurements, and the final rounds
space       tiles as points of a search space
evolution   a learned model of a tile's time, and the tiles that it rates best
record      the attempts of a search and its winner
store       the best tiles measured, one file per device
"""
