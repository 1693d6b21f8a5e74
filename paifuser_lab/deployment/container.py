"""The files of a container image: a Dockerfile with a stage for serving and one for batches, and
the packages that it installs, pinned.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata

RAY = "2.60.0"  # where no Ray is installed
DEBIAN = "bookworm"
PACKAGES = ("numpy", "onnxruntime", "pillow")

_DOCKERFILE = """\
# Serving: docker build --target serve -t {image} .
# Batches and Ray Serve: docker build --target batch -t {batch_image} .
# The network is used while an image is built, and not when it runs.
FROM python:{python}-slim-{debian} AS serve
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /model
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
# an image is only built where the files are whole and the model answers as it did
RUN python check.py
USER 65534
EXPOSE 8080
ENTRYPOINT ["python"]
CMD ["run.py"]

FROM rayproject/ray:{ray}-py{minor} AS batch
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/model
WORKDIR /model
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
RUN python check.py
"""


def dockerfile(image: str, batch_image: str) -> str:
    """The Dockerfile of a deploy folder, for the Python and Ray that run here."""
    return _DOCKERFILE.format(
        image=image,
        batch_image=batch_image,
        python=platform.python_version(),
        debian=DEBIAN,
        ray=ray_version(),
        minor="".join(map(str, sys.version_info[:2])),
    )


def requirements() -> str:
    """What the scripts of the folder import, in the versions that are installed here."""
    return "".join(f"{name}=={metadata.version(name)}\n" for name in PACKAGES)


def ray_version() -> str:
    """The version of Ray that a batch runs on: the installed one, if there is one."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return RAY
