"""Benchmarks that a user runs on their own machine; the others are in `benchmarks/` of a checkout.

runner            the record of a bench, one measurement after another, options of commands
text              numbers as cells and sentences show them
header            where and on what a record was measured, written beside its data
models            each model in each engine, and our plan against the fastest
by_hand           engines called directly, as the baseline of the plan
trust             verdicts on a quiet and on a busy machine
stream_batching   latency against throughput of dynamic batching
kernels           CUDA kernels: exactness, and time against torch
"""
