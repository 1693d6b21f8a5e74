"""Manifests hold what Kubernetes and KubeRay accept; a wrong one is refused with the field."""

from __future__ import annotations

import ast
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.deployment.deploying import TEMPLATES
from paifuser_lab.deployment.kubernetes import (
    as_yaml,
    batch_job,
    cluster_name,
    ray_service,
    serving,
)
from paifuser_lab.deployment.manifest_schema import checked_manifests
from paifuser_lab.errors import ExportError

BATCH = as_yaml(batch_job("net", "net-batch:1", "2.60.0", 50_000_000))
SERVING = as_yaml(serving("net", "net:1", 50_000_000))
RAY_SERVING = as_yaml(ray_service("net", "net-batch:1", "2.60.0", 50_000_000))


@settings(max_examples=10)
@given(st.text(max_size=80))
def test_any_name_gives_valid_manifests(name):
    plain = cluster_name(name)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", plain) and len(plain) <= 41
    for objects in (
        batch_job(plain, "a:1", "2.60.0", 1),
        serving(plain, "a:1", 1),
        ray_service(plain, "a:1", "2.60.0", 1),
    ):
        assert checked_manifests(as_yaml(objects)) == objects


def test_serving_pods_can_send_nothing_out_and_have_no_rights():
    deployment, service, policy = yaml.safe_load_all(SERVING)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"] and policy["spec"]["egress"] == []
    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["runAsNonRoot"] is True
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_ray_serves_the_application_of_the_folder_on_the_port_that_kuberay_looks_for():
    (service,) = yaml.safe_load_all(RAY_SERVING)
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = application["import_path"].partition(":")
    tree = ast.parse((TEMPLATES / f"{module}.py").read_text())
    defined = {node.name for node in tree.body if hasattr(node, "name")}
    assert {name, application["deployments"][0]["name"]} <= defined
    cluster = service["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert container["ports"] == [{"containerPort": 8000, "name": "serve"}]


def test_memory_grows_with_the_model():
    def memory(count):
        (deployment, *_) = yaml.safe_load_all(as_yaml(serving("net", "net:1", count)))
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return container["resources"]["limits"]["memory"]

    assert memory(1) == "512Mi" and memory(1 << 30) == "4096Mi"


@pytest.mark.parametrize(
    ("text", "old", "new", "sentence"),
    [
        (BATCH, "name: net-batch\n", f"name: {'n' * 48}\n", "metadata.name"),
        (BATCH, "name: net-batch\n", "name: Net\n", "metadata.name"),
        (BATCH, "entrypoint:", "entryPoint:", "entrypoint"),
        (BATCH, "K8sJobMode", "K8SJobMode", "submissionMode"),
        (BATCH, "minReplicas: 1", "minReplicas: 3", "minReplicas ≤ replicas"),
        (BATCH, "      minReplicas: 1\n", "", "minReplicas"),
        (BATCH, "shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false", "ttlSeconds"),
        (BATCH, "rayVersion: 2.60.0", "rayVersion: latest", "rayVersion"),
        (BATCH, "ray.io/v1", "ray.io/v2", "apiVersion"),
        (BATCH, "kind: RayJob", "kind: RayJobs", "kind"),
        (BATCH, "memory: 1024Mi", "memory: 1024MB", "memory"),
        (BATCH, "image: net-batch:1", "image: net-batch", "image"),
        (BATCH, "mountPath: /data", "mountPath: data", "mountPath"),
        (
            BATCH,
            "- name: data\n              mountPath",
            "- name: dat\n              mountPath",
            "dat",
        ),
        (RAY_SERVING, "serveConfigV2", "serveConfig", "serveConfig"),
        (RAY_SERVING, "ray_serve:app", "ray_serve.app", "applications.0.import_path"),
        (RAY_SERVING, "route_prefix: /", "route_prefix: model", "applications.0.route_prefix"),
        (RAY_SERVING, "num_replicas: 2", "num_replicas: 0", "deployments.0.num_replicas"),
        (RAY_SERVING, "name: net-ray\n", f"name: {'n' * 48}\n", "metadata.name"),
        (SERVING, "targetPort: http", "targetPort: https", "leads to the port https"),
        (
            SERVING,
            "matchLabels:\n      app: net",
            "matchLabels:\n      app: other",
            "selector does not",
        ),
        (SERVING, "containerPort: 8080", "containerPort: 80800", "containerPort"),
        (SERVING, "path: /healthz", "path: healthz", "path"),
        (SERVING, "replicas: 2", "replicas: two", "replicas"),
        (SERVING, "replicas: 2", "replicas: [", "no YAML"),
    ],
)
def test_a_wrong_manifest_is_refused_with_the_field(text, old, new, sentence):
    changed = text.replace(old, new)
    assert changed != text, "the case changes nothing"
    with pytest.raises(ExportError, match=re.escape(sentence)):
        checked_manifests(changed, "serving.yaml")
