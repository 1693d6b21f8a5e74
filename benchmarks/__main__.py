"""`python -m benchmarks NAME`: the function `bench` of the module of that name."""

from paifuser_lab.cli.bench import group
from paifuser_lab.cli.program import main

NAMES = (
    *("profile", "memory-peak", "fuse", "precision", "int4", "train", "detector", "formats"),
    *("checkpoints", "parallel", "memory", "reuse", "memory-snapshot", "memory-replay", "export"),
    *(
        "serve",
        "stream-video",
        "stream",
        "sensitivity",
        "prune",
        "peers",
        "recipes",
        "compress",
        "advice",
    ),
    *("search", "language", "experiment", "faults", "fuzz", "widgets", "pages", "pictures"),
)
benches = group("Measure this project beside its peers.", "benchmarks", NAMES)

if __name__ == "__main__":
    main(benches)
