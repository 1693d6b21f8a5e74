"""The search for the best tile of a problem on a device: ranked without a GPU, measured on one.

candidates  every tile compiled without a GPU; those that spill or do not fit are dropped
bound       the lower bound of a launch's time, and how many of its blocks run at once
search      the best tile within a budget of measurements, and the final rounds
evolution   tiles as points, a learned model of their times, and those that it rates best
store       the best tiles measured, one file per device
"""
