"""Language models: generating text as two workloads, and what is evaluated on a text.

cache    a key-value cache that is allocated once
decoder  tokens to logits, one call after the other
phases   prefill and decode, each a workload
text     a plain text as data
"""

from .decoder import Decoder, TorchDecoder, greedy, surprise
from .phases import Generation, generation
from .text import give_text, judged_windows

__all__ = [
    "Decoder",
    "Generation",
    "TorchDecoder",
    "generation",
    "give_text",
    "greedy",
    "judged_windows",
    "surprise",
]
