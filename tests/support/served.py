"""A model for servers, and the bodies of their requests."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import nn

import paifuser_lab as lab


class Sum(nn.Module):
    """The sum of each image, twice; a call with an image of sevens fails."""

    def forward(self, x):
        if (x == 7).flatten(1).all(1).any():
            raise RuntimeError("seven is not possible")
        return x.sum((1, 2, 3))[:, None].expand(-1, 2)


def workload():
    return lab.Workload(Sum(), torch.rand(2, 3, 4, 4), name="sums")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
