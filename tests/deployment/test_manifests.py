"""Manifests hold what Kubernetes and KubeRay accept, whatever the model is called."""

from __future__ import annotations

import ast
import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paifuser_lab.deployment.container import cluster_name, manifests
from paifuser_lab.deployment.deploying import TEMPLATES
from tests.support.manifests import check_manifests

TEXTS = manifests("net", "net:1", "net-batch:1", 50_000_000)


@settings(max_examples=10)
@given(st.text(max_size=80))
@example("true")
@example("a: [")
def test_any_name_gives_valid_manifests(name):
    plain = cluster_name(name)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", plain) and len(plain) <= 41
    texts = manifests(plain, "a:1", "a:1", 1)
    assert sorted(texts) == ["batch.yaml", "ray_serving.yaml", "serving.yaml"]
    for text in texts.values():
        check_manifests(text)


def test_serving_pods_can_send_nothing_out_and_have_no_rights():
    deployment, service, policy = yaml.safe_load_all(TEXTS["serving.yaml"])
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"] and policy["spec"]["egress"] == []
    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["runAsNonRoot"] is True
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": 8080}]}]


def test_ray_serves_the_application_of_the_folder_on_the_port_that_kuberay_looks_for():
    (service,) = yaml.safe_load_all(TEXTS["ray_serving.yaml"])
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
        (deployment, *_) = yaml.safe_load_all(manifests("a", "a:1", "a:1", count)["serving.yaml"])
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return container["resources"]["limits"]["memory"]

    assert memory(1) == "512Mi" and memory(1 << 30) == "4096Mi"


def test_a_manifest_has_no_placeholder_and_no_anchor_left():
    for text in TEXTS.values():
        assert not re.search(r"[$&*]", text)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("batch.yaml", "minReplicas: 1", "minReplicas: 3"),
        ("ray_serving.yaml", "ray_serve:app", "ray_serve.app"),
        ("serving.yaml", "targetPort: http", "targetPort: https"),
        ("serving.yaml", "matchLabels:\n      app: net", "matchLabels:\n      app: other"),
    ],
)
def test_the_check_of_these_tests_notices_a_wrong_manifest(file, old, new):
    changed = TEXTS[file].replace(old, new)
    assert changed != TEXTS[file], "the case changes nothing"
    with pytest.raises(AssertionError):
        check_manifests(changed)
