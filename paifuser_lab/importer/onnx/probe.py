"""Runs an ONNX file in a process of its own, with limits of memory and time.

A file that crashes ONNX Runtime, never ends or asks for too much memory ends that process alone.
This file is also the program of that process, which imports neither torch nor this package.
"""

import json
import sys
import typing

MEMORY = 8 << 30  # bytes of address space beside those for the file, several times
SECONDS = 120


def main(model: str, inputs: str, outputs: str, memory: int, seconds: int) -> None:
    """Run the model on each set of inputs in a file, and write the outputs to another."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # not on this system; the time is limited by the parent
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = numpy.load(inputs, allow_pickle=False)
    names = json.loads(bytes(given["names"]).decode())
    results: dict[str, typing.Any] = {}
    for index in range(int(given["count"])):
        feed = {name: given[f"{index}.{at}"] for at, name in enumerate(names)}
        for at, result in enumerate(session.run(None, feed)):
            if not isinstance(result, numpy.ndarray) or result.dtype.kind not in "biufc":
                raise TypeError(f"its output {at} is no tensor of numbers")
            results[f"{index}.{at}"] = result
    numpy.savez(outputs, **results)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4], *map(int, sys.argv[4:6]))  # type: ignore[arg-type]
    except BaseException as error:  # whatever it is, the parent reports its first line
        sys.stderr.write(f"\n{type(error).__name__}: {error}")
        sys.exit(1)
