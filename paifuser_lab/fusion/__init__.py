"""Layers and what follows them as one operator: where that can be, whether it is right and quicker,
and the model that runs so.

mapping      find, try, choose, write down; the same again from what was written down
scouting     how a model's parts are called, seen in one run
tracing      a block's own forward as a graph
following    what follows a layer in it: a sum, an activation
products     matrix products that a block calls as functions, and what follows them
product_call such a product with what follows it in one call
places       where a layer and what follows it could be one
judging      each place on the inputs that it really gets, both ways
layers       the layer that does what follows it too
ways         what runs as one on each kind of device: onednn, mkl, cuda
blocks       the block that calls its layers so
seen         the block as it was, while which it may
form         how a block is called
activation   what may follow a sum
composing    when all is composed of torch's operators instead
geometry     of convolutions and images

Nothing is taken out of the model: every part keeps its place, name and weights, and a block its own
forward for all other calls.
"""

from .fusion_map import Choice, Fused, fuse, fuse_again, fusions
from .layers import packed_bytes

__all__ = ["Choice", "Fused", "fuse", "fuse_again", "fusions", "packed_bytes"]
