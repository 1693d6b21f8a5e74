"""A model as a folder that runs without this package and without torch.

    lab.deploy(variant, "out", ["openvino"], labels=names, licence="Apache-2.0")

deploying        `lab.deploy`: every target exported, and what stands beside the model
folder           the folder on the disk: replaced whole or not at all, its hashes
preprocessing    what the model expects: shapes, mean and standard deviation, tokens, labels
model_card       where the model comes from, what was measured, what is not known
container        the Dockerfile, the pinned packages, and manifests for Kubernetes and KubeRay
manifests/       the templates of these manifests
templates/       the scripts as they are copied: run, check, serve, batch, ray_serve
"""

from .deploying import DeployOptions, deploy, deployments
from .folder import checked_file

__all__ = ["DeployOptions", "checked_file", "deploy", "deployments"]
