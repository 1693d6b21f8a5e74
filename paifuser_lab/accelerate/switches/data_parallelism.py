"""Several processes that train one model: in a single one there is nothing to do."""

from __future__ import annotations

import torch.distributed

from .base import Parts, Switch


class DataParallelism(Switch):
    """Says where the gradients of several processes are exchanged; here nowhere."""

    name = "data_parallelism"
    is_judged = False

    def obstacle(self, parts: Parts) -> str:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return "this process trains alone, so that there is nothing to exchange"
        return (
            "gradients of several processes are exchanged by torch's DistributedDataParallel; wrap "
            "the model in it"
        )
