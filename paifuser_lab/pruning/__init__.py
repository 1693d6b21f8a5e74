"""Make models smaller: which channels can be removed together, to what widths, and the refit.

groups/    which channels of which layers go together, and how they are removed exactly
targets/   the widths with which a share of parameters, FLOPs or measured latency is left
blocks/    residual blocks that can be left out
refit/     least squares and batch-norm statistics after a cut

How important a channel is: `paifuser_lab.saliency.channels`.
"""
