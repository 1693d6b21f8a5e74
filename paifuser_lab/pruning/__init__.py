"""Make models smaller: remove channels together, choose widths, remove blocks, and refit.

groups/    which channels of which layers go together, and how they are removed exactly
targets/   the widths that leave a share of parameters, FLOPs or measured latency
blocks.py  residual blocks that can be removed
refit/     least squares and batch-norm statistics after a cut

The importance of channels: `paifuser_lab.saliency.channels`.
"""
