"""Fusion: a layer and the operators that follow it run as one operator, where that is right and
faster.

fusion_map    find, try, choose and record the sites; apply the same again from the record
call_trace    how a model's parts are called, in one run
block_graph   a block's own forward as a graph
consumers     what follows a layer in that graph: a sum, an activation
products      matrix products that a block calls as functions, and what follows them
product_call  such a product with what follows it in one call
sites         a site: a layer or product and what could run as one with it
site_search   the sites of a model
evaluate      each site on its real inputs, fused and apart
site_runs     the inputs that sites get in a block, and copies of a layer to be timed
layers        the layer that computes what follows it too
backends      what runs as one on each kind of device: onednn, mkl, cuda
blocks        the block that calls its layers so
snapshot      the block as it was when fused; another one runs unfused
activation    the activations that may follow
fallback      when torch's own operators run instead
geometry      of convolutions and images

Nothing is taken out of the model: every part keeps its name and weights, and a block its own
forward for all other calls.
"""

from .fusion_map import Choice, Fused, fuse, fuse_again, fusions
from .layers import packed_bytes

__all__ = ["Choice", "Fused", "fuse", "fuse_again", "fusions", "packed_bytes"]
