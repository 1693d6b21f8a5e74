"""Manifests of a deployment: a RayJob for a batch of files; for serving a Deployment with a Service
and a network policy, or a RayService.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from .manifest_schema import (
    MAX_RAY_NAME,
    DeploymentSpec,
    HeadGroup,
    IngressPort,
    IngressRule,
    KubernetesDeployment,
    Manifest,
    NetworkPolicy,
    NetworkPolicySpec,
    RayClusterSpec,
    RayJob,
    RayJobSpec,
    RayMetadata,
    RayService,
    RayServiceSpec,
    Selector,
    ServeApplication,
    ServeConfig,
    ServeDeployment,
    Service,
    ServicePort,
    ServiceSpec,
    WorkerGroup,
)
from .pods import (
    Capabilities,
    ClaimSource,
    Container,
    ContainerPort,
    HttpGet,
    Metadata,
    PodMetadata,
    PodSpec,
    PodTemplate,
    Probe,
    Resources,
    SecurityContext,
    Volume,
    VolumeMount,
)

PORT, RAY_PORT = 8080, 8000  # of serve.py; of Ray Serve's proxies
WORKERS, MAX_WORKERS = 2, 8
SERVED = "Model"  # the class in ray_serve.py
DEADLINE_S, KEPT_S = 24 * 3600, 600  # of a batch job; of its cluster after the end
MEMORY_FACTOR, LEAST_MIB = 4, 512  # a container's memory, by the size of the model's files


def cluster_name(name: str) -> str:
    """A model's name as Kubernetes takes names: lower case, digits and dashes, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"model-{plain}".rstrip("-")
    return plain[: MAX_RAY_NAME - len("-batch")].rstrip("-")


def as_yaml(objects: Sequence[Manifest]) -> str:
    """The objects as one YAML file."""
    plain = [one.model_dump(by_alias=True, exclude_none=True, mode="json") for one in objects]
    return yaml.safe_dump_all(plain, sort_keys=False, allow_unicode=True)


def batch_job(name: str, image: str, ray_version: str, model_bytes: int) -> list[Manifest]:
    """A RayJob that runs `batch.py` on the files of a volume: /data/in to /data/out."""
    claim = ClaimSource(claim_name=f"{name}-data")
    data = Volume(name="data", persistent_volume_claim=claim)
    spec = RayJobSpec(
        entrypoint="python /model/batch.py /data/in /data/out",
        shutdown_after_job_finishes=True,
        ttl_seconds_after_finished=KEPT_S,
        active_deadline_seconds=DEADLINE_S,
        backoff_limit=1,
        ray_cluster_spec=_cluster(f"{name}-batch", image, ray_version, model_bytes, data=data),
    )
    return [RayJob(metadata=RayMetadata(name=f"{name}-batch", labels=_app(name)), spec=spec)]


def ray_service(name: str, image: str, ray_version: str, model_bytes: int) -> list[Manifest]:
    """A RayService that runs `ray_serve.py`, a copy of the model on each worker."""
    model = ServeDeployment(
        name=SERVED, num_replicas=WORKERS, max_ongoing_requests=8, ray_actor_options={"num_cpus": 1}
    )
    application = ServeApplication(name=name, import_path="ray_serve:app", deployments=[model])
    config = ServeConfig(applications=[application])
    port = ContainerPort(container_port=RAY_PORT, name="serve")
    spec = RayServiceSpec(
        serve_config=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
        ray_cluster_config=_cluster(f"{name}-ray", image, ray_version, model_bytes, port=port),
    )
    return [RayService(metadata=RayMetadata(name=f"{name}-ray", labels=_app(name)), spec=spec)]


def serving(name: str, image: str, model_bytes: int) -> list[Manifest]:
    """Pods that run `serve.py`, the service before them, and a policy that lets nothing out."""
    probe = HttpGet(path="/healthz", port="http")
    container = Container(
        name="model",
        image=image,
        args=["serve.py", "--host", "0.0.0.0", "--port", str(PORT)],
        ports=[ContainerPort(container_port=PORT, name="http")],
        resources=_resources("1", _memory_mib(model_bytes)),
        readiness_probe=Probe(http_get=probe),
        liveness_probe=Probe(http_get=probe, period_seconds=30),
        security_context=_security(read_only=True),
    )
    template = PodTemplate(
        metadata=PodMetadata(labels=_app(name)),
        spec=PodSpec(containers=[container], automount_service_account_token=False),
    )
    chosen, metadata = Selector(match_labels=_app(name)), Metadata(name=name, labels=_app(name))
    ports = [ServicePort(port=80, target_port="http", name="http")]
    policy = NetworkPolicySpec(
        pod_selector=chosen,
        policy_types=["Ingress", "Egress"],
        ingress=[IngressRule(ports=[IngressPort(port=PORT)])],
    )
    return [
        KubernetesDeployment(
            metadata=metadata, spec=DeploymentSpec(replicas=2, selector=chosen, template=template)
        ),
        Service(metadata=metadata, spec=ServiceSpec(selector=_app(name), ports=ports)),
        NetworkPolicy(metadata=metadata, spec=policy),
    ]


def _cluster(
    label: str,
    image: str,
    ray_version: str,
    model_bytes: int,
    *,
    data: Volume | None = None,
    port: ContainerPort | None = None,
) -> RayClusterSpec:
    """A head that runs no work, and workers that do, each with the volume and the port."""

    def pod(container: str, cpus: str) -> PodTemplate:
        box = Container(
            name=container,
            image=image,
            resources=_resources(cpus, 2 * _memory_mib(model_bytes)),
            ports=[port] if port else None,
            security_context=_security(read_only=False),  # Ray writes its sessions into /tmp
            volume_mounts=[VolumeMount(name=data.name, mount_path="/data")] if data else None,
        )
        volumes = [data] if data else None
        spec = PodSpec(containers=[box], volumes=volumes, automount_service_account_token=False)
        return PodTemplate(metadata=PodMetadata(labels=_app(label)), spec=spec)

    workers = WorkerGroup(
        group_name="workers",
        replicas=WORKERS,
        min_replicas=1,
        max_replicas=MAX_WORKERS,
        template=pod("ray-worker", "2"),
    )
    return RayClusterSpec(
        ray_version=ray_version,
        head_group_spec=HeadGroup(
            ray_start_params={"num-cpus": "0"}, template=pod("ray-head", "1")
        ),
        worker_group_specs=[workers],
    )


def _app(name: str) -> dict[str, str]:
    return {"app": name}


def _security(*, read_only: bool) -> SecurityContext:
    return SecurityContext(
        run_as_non_root=True,
        read_only_root_filesystem=read_only,
        allow_privilege_escalation=False,
        capabilities=Capabilities(drop=["ALL"]),
    )


def _resources(cpus: str, mebibytes: int) -> Resources:
    amounts = {"cpu": cpus, "memory": f"{mebibytes}Mi"}
    return Resources(requests=amounts, limits=amounts)


def _memory_mib(model_bytes: int) -> int:
    """A guess of what a container needs: a few times the files, to be replaced by what is seen."""
    return max(LEAST_MIB, -(-MEMORY_FACTOR * model_bytes // 2**20))
