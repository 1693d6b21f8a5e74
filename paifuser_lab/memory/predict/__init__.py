"""The peak of a call or a training step, predicted with fake tensors: shapes without values.

predictor     the peak of a workload at a batch size
examples      the inputs and the target of a step; the step on real tensors
fake          a copy of a model without values
step          one call, or one step of training, on real or fake tensors
ledger        which storages are alive after each operator, by category and layer
convolutions  the memory inside a convolution on a CPU
workspace     the memory that operators on a CPU allocate and free inside
blocks        the repeated blocks of a model, which checkpointing applies to
"""

from __future__ import annotations

from .predictor import Predictor, predicted_peak

__all__ = ["Predictor", "predicted_peak"]
