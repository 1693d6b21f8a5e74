"""Make an ordinary training loop faster: `lab.enable()` before it, nothing changed inside it.

features      `enable`, `disable`, `status`, and one pair of functions a feature
acceleration  what a user holds: switches added, removed, looked at
watcher       sees the loop's models, optimizer steps and losses, through torch's hooks
loop          what the watcher tells: one loop, its parts, and its switches in force
calls         the call of one model, in training as the switches want it; where a NaN began in it
judging       times the loop's steps in blocks, and lets it run as the judge says
judge         which switches stay, decided by blocks of steps
race          ways to run a loop, compared in turn; whether the losses stay in their band
meter         time and memory of steps, and the block of them that runs now
switches      what can be switched, a file each
functions     faster forms of plain functions
"""

from .acceleration import Acceleration
from .features import enable, status

__all__ = ["Acceleration", "enable", "status"]
