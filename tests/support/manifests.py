"""What Kubernetes and KubeRay ask of the parts of a manifest that a deployment uses, without a
cluster: after KubeRay's `ray-operator/apis/ray/v1` and `controllers/ray/utils/validation.go`, Ray's
`serve/schema.py`, and the API reference of core/v1, apps/v1 and networking.k8s.io/v1.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

LABEL = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
QUANTITY = r"\d+(\.\d+)?(m|k|[MGT]|[KMGT]i)?"
IMAGE = r"[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
RAY_NAME = 47  # at most, of a job or a service
# the fields that may be there; those without ? have to be
FIELDS: dict[str, str] = {
    "RayJob": "entrypoint submissionMode? shutdownAfterJobFinishes? ttlSecondsAfterFinished? "
    "backoffLimit? activeDeadlineSeconds? rayClusterSpec",
    "RayService": "serveConfigV2 rayClusterConfig",
    "Deployment": "replicas? selector template",
    "Service": "type? selector ports",
    "NetworkPolicy": "podSelector policyTypes? ingress? egress?",
    "cluster": "rayVersion headGroupSpec workerGroupSpecs?",
    "head": "rayStartParams template",
    "workers": "groupName replicas minReplicas maxReplicas rayStartParams template",
    "pod": "containers volumes? automountServiceAccountToken?",
    "container": "name image args? ports? resources? readinessProbe? livenessProbe? "
    "securityContext? volumeMounts?",
    "application": "name route_prefix import_path deployments?",
}
VERSIONS = {
    "RayJob": "ray.io/v1",
    "RayService": "ray.io/v1",
    "Deployment": "apps/v1",
    "Service": "v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}


def check_manifests(text: str) -> None:
    """Every object of a YAML file is valid by itself, and a service fits the pods before it."""
    objects = list(yaml.safe_load_all(text))
    pods = [one["spec"]["template"] for one in objects if one["kind"] == "Deployment"]
    for one in objects:
        kind, spec, name = one["kind"], one["spec"], one["metadata"]["name"]
        assert one["apiVersion"] == VERSIONS[kind]
        assert re.fullmatch(LABEL, name) and len(name) <= RAY_NAME
        _check_fields(spec, kind)
        {
            "RayJob": _check_job,
            "RayService": _check_ray_service,
            "Deployment": _check_deployment,
            "Service": lambda spec: _check_service(spec, pods),
            "NetworkPolicy": lambda spec: None,
        }[kind](spec)


def _check_fields(part: dict[str, Any], kind: str) -> None:
    names = FIELDS[kind].split()
    needed = {name for name in names if not name.endswith("?")}
    assert needed <= part.keys() <= {name.rstrip("?") for name in names}, kind


def _check_job(spec: dict[str, Any]) -> None:
    assert spec["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
    assert spec["shutdownAfterJobFinishes"] or not spec["ttlSecondsAfterFinished"]
    assert spec["entrypoint"]
    _check_cluster(spec["rayClusterSpec"])


def _check_ray_service(spec: dict[str, Any]) -> None:
    for application in yaml.safe_load(spec["serveConfigV2"])["applications"]:
        _check_fields(application, "application")
        assert isinstance(application["name"], str)
        assert application["route_prefix"].startswith("/")
        assert re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", application["import_path"])
        assert all(one["num_replicas"] >= 1 for one in application["deployments"])
    _check_cluster(spec["rayClusterConfig"])


def _check_cluster(spec: dict[str, Any]) -> None:
    _check_fields(spec, "cluster")
    assert re.fullmatch(r"\d+\.\d+\.\d+", spec["rayVersion"])
    _check_fields(spec["headGroupSpec"], "head")
    _check_pod(spec["headGroupSpec"]["template"])
    for group in spec["workerGroupSpecs"]:
        _check_fields(group, "workers")
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        _check_pod(group["template"])


def _check_deployment(spec: dict[str, Any]) -> None:
    assert type(spec["replicas"]) is int
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    _check_pod(spec["template"])


def _check_service(spec: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    """Its ports are those of the pods that it selects."""
    chosen = [pod for pod in pods if spec["selector"].items() <= pod["metadata"]["labels"].items()]
    boxes = [box for pod in chosen for box in pod["spec"]["containers"]]
    known = {port["name"] for box in boxes for port in box["ports"]}
    assert {port["targetPort"] for port in spec["ports"]} <= known


def _check_pod(template: dict[str, Any]) -> None:
    assert all(type(value) is str for value in template["metadata"]["labels"].values())
    _check_fields(template["spec"], "pod")
    volumes = {volume["name"] for volume in template["spec"].get("volumes", ())}
    for box in template["spec"]["containers"]:
        _check_fields(box, "container")
        assert re.fullmatch(LABEL, box["name"]) and re.fullmatch(IMAGE, box["image"])
        for amounts in box["resources"].values():
            assert all(re.fullmatch(QUANTITY, amount) for amount in amounts.values())
        for mount in box.get("volumeMounts", ()):
            assert mount["name"] in volumes and mount["mountPath"].startswith("/")
        for port in box.get("ports", ()):
            assert 1 <= port["containerPort"] <= 65535
            assert re.fullmatch(LABEL, port["name"]) and len(port["name"]) <= 15
        assert all(type(word) is str for word in box.get("args", ()))
