"""Benchmarks of this project beside its peers: run by hand with `python -m benchmarks NAME`; they
print ratios and assert nothing about time.

detector          the zoo's detector trained in both ways: time and mean average precision
fuse              fused layers and attention against eager and compiled torch
builds            how long building a variant takes, with empty and filled caches
precision         lower precision against fp32 in every engine and against other quantizers
quantized_peers   those other quantizers
int4              linear layers of a Llama-like model in int4
memory            calls with a memory pool and without one: time, page faults, resident memory
profile           the overhead of profiling, whether the rows add up, FLOPs beside torch's
advice            predicted effects of advised steps against measured ones, and their coefficients
search            `lab.search` beside simpler ways to choose a recipe, in equal seconds
prune             small architectures pruned, compared with the same model with zeroed channels
prune_peer        the same architectures pruned by Torch-Pruning
compress          prune, distil and train in int8, over several seeds
sensitivity       predicted sensitivity against measured losses
hessian_peer      the trace of each layer's Hessian, against PyHessian
recipes           random recipes: undo, hashes, saved folders
faults            writes killed, on a full disk or without memory at random moments: what is lost
fault_tasks       those writes, and what must be there after
experiment        small experiments behind single statements of the pages
memory_snapshot   reading a generated snapshot of a gigabyte: time and memory
memory_replay     recorded snapshots replayed: simulated peaks against recorded ones
reuse             the step reuse: peak of a call and time, with it and without it
train             training with each switch of enable(), with its choice, and by peers
train_models      the models of that benchmark and their batches
checkpoints       checkpointing within a memory limit: peak and time, predicted and measured
formats           formats by layer against autocast, each trained for the same time
parallel          every way to train on several processes: bytes, steps a second, loss, links
parallel_models   the models of that benchmark
export            models exported in each precision, and models that are hard to export
memory_peak       predicted peaks against measured ones
parallel_equal    every strategy against the same training by one process
parallel_kills    ranks killed at random while they train: what is lost, and for how long
parallel_kill_rank  one rank of that training
stream            streams over simulated workers: rate against the ideal, faults, overhead
stream_rows       one of those streams, and its row
stream_faults     those streams while workers, a machine or the driver are killed
stream_overhead   a frame that nothing is done with: streams, queues, Ray's own ways
widgets           a widget in a real JupyterLab: create, paint, click
probe             the panel of that benchmark, with time stamps
serve             a server under many clients: what is lost, how long answers take
stream_video      groups of encoded pictures against decoded frames; stages of a pipeline
pages             the figures of README.md and docs/, rendered from records
child             measurements in a process of their own
pictures          the pictures of the README and of docs/
"""
