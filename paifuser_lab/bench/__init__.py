"""Benchmarks: run by hand, print ratios, assert nothing about time.

models            each model in each engine, and our plan against the best
by_hand           engines called directly, to hold the plan against
fuse              fused layers and attention against eager and compiled torch
builds            how long building a variant takes, with empty and filled caches
precision         lower precision against fp32 in every engine and other quantizers
quantized_peers   those other quantizers
int4              linear layers of a Llama-like model in int4
profile           what profiling costs, and whether its rows add up
flops             our FLOPs against torch's
prune             small architectures pruned, compared with themselves with zeros
prune_rows        the rows of that bench
prune_peer        the same architectures pruned by Torch-Pruning
prune_zoo         the architectures
masking           the expected outputs of a pruned model, without the pruning code
compress          prune, distil and train in int8, over several seeds
sensitivity       predicted sensitivity against what was measured
hessian_peer      the trace of each layer's Hessian, against PyHessian
recipes           random recipes: undo, hashes, saved folders
experiments       small experiments behind single statements of the README
kernels           CUDA kernels: exactness, and time against torch
widgets           a widget in a real JupyterLab: create, paint, click
probe             the panel of that bench, with time stamps
jupyterlab        JupyterLab in a browser: served, opened, run
pages             the figures of README.md and docs/, rendered from records
pictures          the pictures of the README and of docs/
"""
