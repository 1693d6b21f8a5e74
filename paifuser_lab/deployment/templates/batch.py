"""Run the model on every file of a folder: `python batch.py IN OUT`, in a Ray job on its nodes."""

import os
import sys
from pathlib import Path

import numpy as np
from run import answer


def run_file(path, out):  # '' or what went wrong; a result is there whole or not at all
    target = Path(out) / f"{path.name}.npz"
    if target.exists():
        return ""
    try:
        outputs = answer(path, path.suffix)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        with part.open("wb") as file:
            np.savez(file, **outputs)
        part.replace(target)
    except (Exception, SystemExit) as error:  # the other files are still run
        return f"{path.name}: {type(error).__name__}: {error}"
    return ""


def main(folder, out):
    Path(out).mkdir(parents=True, exist_ok=True)
    paths = sorted(path for path in Path(folder).iterdir() if path.is_file())
    if os.environ.get("RAY_ADDRESS"):  # set by Ray for the entrypoint of a job
        import ray

        ray.init()
        remote = ray.remote(num_cpus=1, max_retries=3)(run_file)
        results = ray.get([remote.remote(path, out) for path in paths])
    else:
        results = [run_file(path, out) for path in paths]
    failures = [failure for failure in results if failure]
    print(f"{len(paths) - len(failures)} of {len(paths)} files in {out}", *failures, sep="\n")
    return 1 if failures or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 3 else "python batch.py IN OUT")
