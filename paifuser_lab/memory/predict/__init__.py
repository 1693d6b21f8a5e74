"""The peak of a call or a training step, predicted with fake tensors: shapes without values.

predictor     the peak of a workload at a batch size, on a copy without values
step          one call, or one step of training, on real or fake tensors; its inputs
ledger        which storages are alive after each operator, by category and layer
convolutions  the memory inside a convolution on a CPU
blocks        the repeated blocks of a model, which checkpointing applies to
"""

from .predictor import Predictor, predicted_peak

__all__ = ["Predictor", "predicted_peak"]
