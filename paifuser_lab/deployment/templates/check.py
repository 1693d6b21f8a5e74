"""Check that the files are those that were written, and that the model answers as it did there."""

import hashlib
import json
import sys

import numpy as np
from run import HERE, SPEC, answer

files = json.loads((HERE / "manifest.json").read_text("utf-8"))["files"]
for name, expected in files.items():
    if hashlib.sha256((HERE / name).read_bytes()).hexdigest() != expected:
        sys.exit(f"{name} is not the file that was written: its SHA-256 differs")
outputs = answer(HERE / "example.npz", ".npz")
difference = total = 0.0
for name, expected in np.load(HERE / "expected.npz").items():
    expected, output = expected.astype("float64"), outputs[name].astype("float64")
    if output.shape != expected.shape:
        sys.exit(f"{name} has the shape {output.shape}, not {expected.shape}")
    differs = output != expected  # equal infinities differ by nothing
    difference += np.square(output[differs] - expected[differs]).sum()
    total += np.square(expected[np.isfinite(expected)]).sum()
error = np.sqrt(difference / (total or 1.0))
if not error <= SPEC["tolerance"]:
    sys.exit(f"the output differs by {error:.1e}, past {SPEC['tolerance']:.0e}")
print(f"the output differs by {error:.1e} from that of the model it was made from")
