"""`python -m benchmarks NAME`."""

from paifuser_lab.cli.program import main

from .commands import bench

if __name__ == "__main__":
    main(bench)
