"""The manifest for Kubeflow Trainer, checked without a cluster."""

from __future__ import annotations

import pytest
import yaml

from paifuser_lab.errors import ParallelError
from paifuser_lab.parallel.kubeflow import TrainJob, checked, train_job


def job(**options: object) -> TrainJob:
    return train_job("digits", "/work/train.py", "--epochs", "3", image="lab:1", **options)


def test_the_manifest_runs_the_script_and_is_read_back(tmp_path):
    path = job(nodes=2, processes=4, gpus=4, namespace="lab").save(tmp_path / "job.yaml")
    content = yaml.safe_load(path.read_text())
    assert content["apiVersion"] == "trainer.kubeflow.org/v1alpha1"
    trainer = content["spec"]["trainer"]
    assert trainer["command"] + trainer["args"] == ["torchrun", "/work/train.py", "--epochs", "3"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "4"
    assert job(memory="512Ki").spec.trainer.resourcesPerNode.limits["memory"] == "512Ki"
    assert trainer["env"] == [{"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}]
    assert checked(content) == job(nodes=2, processes=4, gpus=4, namespace="lab")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 0}, "spec.trainer.numNodes: Input should be greater than or equal to 1"),
        ({"memory": "a lot"}, "memory='a lot' is no quantity of Kubernetes"),
        ({"memory": "16ki"}, "memory='16ki' is no quantity of Kubernetes"),
        ({"namespace": "My Lab"}, "metadata.namespace: String should match"),
        ({"environment": {"a b": "1"}}, "spec.trainer.env.1.name: String should match"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(options, words):
    with pytest.raises(ParallelError, match=words):
        job(**options)


def test_a_field_that_a_train_job_does_not_have_is_refused():
    content = job().model_dump(exclude_none=True)
    content["spec"]["trainer"]["gpus"] = 4
    with pytest.raises(ParallelError, match=r"spec\.trainer\.gpus: Extra inputs are"):
        checked(content)
