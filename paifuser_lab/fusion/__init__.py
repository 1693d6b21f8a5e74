"""Fusion: run a layer and the operators that follow it as one operator, where that is correct and

fusion_map    find, check, time, choose and record the sites; apply them again from the record
call_trace    how a model's parts are called, in one run
consumers     a block's own forward as a graph, and what follows a layer there: a sum, an activation
products      matrix products that a block calls as functions, and what follows them
product_call  such a product and what follows it as one call
site_search   finds the sites of a model: a layer or product and what can be fused with it
evaluate      each site on its real inputs, fused and unfused
layers        the layer that also computes the sum and activation after it
backends      the fused operators of each kind of device: onednn, mkl, cuda
blocks        the block that calls such layers
snapshot      a block's state when it was fused; a block that has changed since runs unfused
activation    the activations that may follow
fallback      when torch's own operators run instead

Nothing is removed from the model: every part keeps its name and weights, and every block its own
forward, which runs for all other calls.
"""

from .fusion_map import Switches, fuse, fuse_again, fusions
from .layers import packed_bytes

__all__ = ["Switches", "fuse", "fuse_again", "fusions", "packed_bytes"]
