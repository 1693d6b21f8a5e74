"""The files of a container image: a Dockerfile with a stage for serving and one for batches, the
packages that it installs, pinned, and manifests that run it on Kubernetes.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from string import Template
from typing import Any

import yaml

RAY = "2.60.0"  # where no Ray is installed
DEBIAN = "bookworm"
PACKAGES = ("numpy", "onnxruntime", "pillow")
MANIFESTS = Path(__file__).parent / "manifests"
MAX_RAY_NAME = 47  # KubeRay makes longer names of it
MEMORY_FACTOR, LEAST_MIB = 4, 512  # a container's memory, by the size of the model's files

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


def cluster_name(name: str) -> str:
    """A model's name as Kubernetes takes names: lower case, digits and dashes, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"model-{plain}".rstrip("-")
    return plain[: MAX_RAY_NAME - len("-batch")].rstrip("-")


def manifests(name: str, image: str, batch_image: str, model_bytes: int) -> dict[str, str]:
    """The manifests by file: a RayJob for a batch of files; for serving a Deployment with a Service
    and a network policy, or a RayService. The memory is a guess, to be replaced by what is seen.
    """
    mebibytes = max(LEAST_MIB, -(-MEMORY_FACTOR * model_bytes // 2**20))
    values = {
        "name": cluster_name(name),
        "image": image,
        "batch_image": batch_image,
        "ray": ray_version(),
        "memory": f"{mebibytes}Mi",
        "ray_memory": f"{2 * mebibytes}Mi",
    }
    texts = {}
    for path in sorted(MANIFESTS.glob("*.yaml")):
        objects = _filled(list(yaml.safe_load_all(path.read_text("utf-8"))), values)
        texts[path.name] = yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True)
    return texts


def _filled(part: Any, values: Mapping[str, str]) -> Any:
    """A template with its placeholders replaced inside texts alone, so that no value adds fields;
    what an anchor stands for is written out.
    """
    if isinstance(part, dict):
        return {key: _filled(value, values) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(each, values) for each in part]
    return Template(part).substitute(values) if isinstance(part, str) else part
