"""The manifest for Kubeflow Trainer, checked without a cluster."""

from __future__ import annotations

import pytest
import yaml

from paifuser_lab.errors import ParallelError
from paifuser_lab.parallel import train_job


def job(**options: object):
    return train_job("digits", "/work/train.py", "--epochs", 3, image="lab:1", **options)


def test_the_manifest_runs_the_script_and_is_read_back(tmp_path):
    made = job(nodes=2, processes=4, gpus=4, namespace="lab")
    content = yaml.safe_load(made.save(tmp_path / "job.yaml").read_text())
    assert content == made.content
    assert content["apiVersion"] == "trainer.kubeflow.org/v1alpha1"
    assert content["metadata"] == {"name": "digits", "namespace": "lab"}
    trainer = content["spec"]["trainer"]
    assert trainer["command"] + trainer["args"] == ["torchrun", "/work/train.py", "--epochs", "3"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "4"
    assert trainer["env"] == [{"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}]
    assert "*" not in made.text and "512Ki" in job(memory="512Ki").text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 0}, "nodes=0"),
        ({"processes": 0}, "processes=0"),
        ({"memory": "a lot"}, "memory='a lot'"),
        ({"memory": "16ki"}, "memory='16ki'"),
        ({"namespace": "My Lab"}, "namespace='My Lab'"),
        ({"environment": {"a b": "1"}}, "environment='a b'"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(options, words):
    with pytest.raises(ParallelError, match=words):
        job(**options)
