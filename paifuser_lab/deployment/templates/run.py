"""Run the model on a file: an image, .npy or .npz; without one, on the example it came with."""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reports what it runs otherwise

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
SPEC = json.loads((HERE / "preprocessing.json").read_text("utf-8"))
SESSION = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])


def answer(file, suffix):  # the outputs by name
    spec, arrays = SPEC["inputs"][0], np.load(file) if suffix in (".npy", ".npz") else None
    if arrays is None:
        from PIL import Image, ImageOps  # pillow is needed for images alone

        mean = spec["mean"] or sys.exit("no mean and std: deploy again with preprocessing={...}")
        picture = ImageOps.exif_transpose(Image.open(file)).convert(spec["mode"])
        image = np.asarray(picture.resize(spec["size"][::-1], Image.Resampling.BILINEAR))
        image = image.reshape(*spec["size"], -1)[..., :: -1 if spec["order"] == "BGR" else 1] / 255
        arrays = ((image - mean) / spec["std"]).transpose(2, 0, 1)[None].astype(spec["dtype"])
    inputs = dict(arrays) if suffix == ".npz" else {spec["name"]: arrays}
    return dict(zip(SPEC["outputs"], SESSION.run(SPEC["outputs"], inputs), strict=True))


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "example.npz"
    print(*(f"{name} {array.shape}\n{array}" for name, array in answer(file, file.suffix).items()))
