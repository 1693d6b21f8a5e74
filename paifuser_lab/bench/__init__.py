"""Benchmarks that a user runs on their own machine; the others are in `benchmarks/` of a checkout.

each              one measurement after another: failures are recorded, Ctrl-C keeps results
header            where and on what a record was measured, written beside its data
models            each model in each engine, and our plan against the fastest
by_hand           engines called directly, as the baseline of the plan
trust             verdicts on a quiet and on a busy machine
kernels           CUDA kernels: exactness, and time against torch
stream_batching   latency against throughput of dynamic batching
"""
