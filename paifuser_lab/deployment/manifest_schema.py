"""The parts of Kubernetes' and KubeRay's manifests that a deployment uses, as pydantic models, and
a check of a manifest against them that needs no cluster.

Sources of the facts: KubeRay's Go types `ray-operator/apis/ray/v1` (fields, required ones, enums)
and its `controllers/ray/utils/validation.go` (a RayJob's name is a DNS-1035 label of at most 47
characters, as a RayService's; a worker group has minReplicas ≤ maxReplicas, a time to live needs
shutdownAfterJobFinishes); Ray's `serve/schema.py` (names and routes of applications are unique, an
import path is `module:application`); the Kubernetes API reference (apps/v1 Deployment: its selector
matches its template; v1 Service; networking.k8s.io/v1 NetworkPolicy; quantities).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from ..errors import ExportError
from .pods import Label, Labels, Metadata, Part, PodTemplate, Port, PortName

MAX_RAY_NAME = 47
RayName = Annotated[Label, Field(max_length=MAX_RAY_NAME)]


class HeadGroup(Part):
    """The head of a Ray cluster."""

    ray_start_params: dict[str, str] = {}
    template: PodTemplate


class WorkerGroup(Part):
    """Workers of a Ray cluster."""

    group_name: Label
    replicas: Annotated[int, Field(ge=0)]
    min_replicas: Annotated[int, Field(ge=0)]
    max_replicas: Annotated[int, Field(ge=0)]
    ray_start_params: dict[str, str] = {}
    template: PodTemplate

    @model_validator(mode="after")
    def _replicas_are_in_order(self) -> Self:
        if not self.min_replicas <= self.replicas <= self.max_replicas:
            raise ValueError(
                f"group '{self.group_name}' needs minReplicas ≤ replicas ≤ maxReplicas, not "
                f"{self.min_replicas}, {self.replicas}, {self.max_replicas}"
            )
        return self


class RayClusterSpec(Part):
    """The Ray cluster of a job or a service."""

    ray_version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup] = []


class RayJobSpec(Part):
    """What a Ray job runs, and on what."""

    entrypoint: Annotated[str, Field(min_length=1)]
    submission_mode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = (
        "K8sJobMode"
    )
    shutdown_after_job_finishes: bool = False
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)] = 0
    backoff_limit: Annotated[int, Field(ge=0)] = 0
    active_deadline_seconds: Annotated[int, Field(gt=0)] | None = None
    ray_cluster_spec: RayClusterSpec

    @model_validator(mode="after")
    def _time_to_live_needs_shutdown(self) -> Self:
        if self.ttl_seconds_after_finished and not self.shutdown_after_job_finishes:
            raise ValueError("ttlSecondsAfterFinished needs shutdownAfterJobFinishes: true")
        return self


class RayMetadata(Metadata):
    """The name of a Ray job or service, from which those of its cluster and pods are made."""

    name: RayName


class RayJob(Part):
    """A batch job on a Ray cluster of its own."""

    api_version: Literal["ray.io/v1"] = "ray.io/v1"
    kind: Literal["RayJob"] = "RayJob"
    metadata: RayMetadata
    spec: RayJobSpec


class ServeDeployment(BaseModel):
    """The options of one deployment of an application, over those in its code."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Annotated[str, Field(min_length=1)]
    num_replicas: Annotated[int, Field(ge=1)]
    max_ongoing_requests: Annotated[int, Field(ge=1)]
    ray_actor_options: dict[Literal["num_cpus"], Annotated[float, Field(ge=0)]]


class ServeApplication(BaseModel):
    """An application of Ray Serve."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Annotated[str, Field(min_length=1)]
    route_prefix: Annotated[str, Field(pattern="^/")] = "/"
    import_path: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    deployments: list[ServeDeployment] = []


class ServeConfig(BaseModel):
    """What Ray Serve runs; a RayService holds it as text."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    applications: Annotated[list[ServeApplication], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_and_routes_are_unique(self) -> Self:
        for field in ("name", "route_prefix"):
            values = [getattr(application, field) for application in self.applications]
            if len(set(values)) < len(values):
                raise ValueError(f"two applications have the same {field}")
        return self


class RayServiceSpec(Part):
    """An application of Ray Serve, and the cluster that it runs on."""

    # KubeRay's own name, which no alias of camel case gives
    serve_config: Annotated[str, Field(alias="serveConfigV2")]
    ray_cluster_config: RayClusterSpec

    @field_validator("serve_config")
    @classmethod
    def _is_a_serve_config(cls, text: str) -> str:
        try:
            ServeConfig.model_validate(yaml.safe_load(text))
        except ValidationError as error:
            path, message = first_of(error)
            raise ValueError(f"{path}: {message}") from error
        return text


class RayService(Part):
    """Serving by Ray Serve on a Ray cluster of its own."""

    api_version: Literal["ray.io/v1"] = "ray.io/v1"
    kind: Literal["RayService"] = "RayService"
    metadata: RayMetadata
    spec: RayServiceSpec


class Selector(Part):
    """Which pods an object is about."""

    match_labels: Annotated[Labels, Field(min_length=1)]


class DeploymentSpec(Part):
    """Pods that serve."""

    replicas: Annotated[int, Field(ge=0)] = 1
    selector: Selector
    template: PodTemplate

    @model_validator(mode="after")
    def _selector_matches_template(self) -> Self:
        labels = self.template.metadata.labels if self.template.metadata else {}
        if not self.selector.match_labels.items() <= labels.items():
            raise ValueError("the selector does not match the labels of the template")
        return self


class KubernetesDeployment(Part):
    """A Deployment of apps/v1."""

    api_version: Literal["apps/v1"] = "apps/v1"
    kind: Literal["Deployment"] = "Deployment"
    metadata: Metadata
    spec: DeploymentSpec


class ServicePort(Part):
    """A port of a service, and that of the pods behind it."""

    port: Port
    target_port: PortName | Port
    name: PortName | None = None


class ServiceSpec(Part):
    """How pods are reached."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    selector: Annotated[Labels, Field(min_length=1)]
    ports: Annotated[list[ServicePort], Field(min_length=1)]


class Service(Part):
    """A Service of v1."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Service"] = "Service"
    metadata: Metadata
    spec: ServiceSpec


class IngressPort(Part):
    """A port that may be reached."""

    port: PortName | Port


class IngressRule(Part):
    """What may come in."""

    ports: list[IngressPort]


class NetworkPolicySpec(Part):
    """What may come in and go out; an empty list of egress lets nothing out."""

    pod_selector: Selector
    policy_types: list[Literal["Ingress", "Egress"]]
    ingress: list[IngressRule] = []
    egress: list[dict[str, Any]] = []


class NetworkPolicy(Part):
    """A NetworkPolicy of networking.k8s.io/v1."""

    api_version: Literal["networking.k8s.io/v1"] = "networking.k8s.io/v1"
    kind: Literal["NetworkPolicy"] = "NetworkPolicy"
    metadata: Metadata
    spec: NetworkPolicySpec


Manifest = RayJob | RayService | KubernetesDeployment | Service | NetworkPolicy
_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Annotated[Manifest, Field(discriminator="kind")])


def checked_manifests(text: str, name: str = "the manifest") -> list[Manifest]:
    """The objects of a YAML file, each valid and fitting the others; raise one sentence if not."""
    try:
        documents = list(yaml.safe_load_all(text))
        objects = [_MANIFEST.validate_python(document) for document in documents]
    except yaml.YAMLError as error:
        raise ExportError(f"{name} is no YAML: {error}.") from error
    except ValidationError as error:
        path, message = first_of(error)
        raise ExportError(f"{name}: {path}: {message}.") from error
    _check_services(objects, name)
    return objects


def first_of(error: ValidationError) -> tuple[str, str]:
    """The path of the first wrong field, and what is wrong with it."""
    first = error.errors()[0]
    return ".".join(str(part) for part in first["loc"]), first["msg"]


def _check_services(objects: list[Manifest], name: str) -> None:
    """A service selects the pods of a deployment here, and each of its ports is one of theirs."""
    for service in (one for one in objects if isinstance(one, Service)):
        templates = [one.spec.template for one in objects if isinstance(one, KubernetesDeployment)]
        chosen = [
            template
            for template in templates
            if template.metadata
            and service.spec.selector.items() <= template.metadata.labels.items()
        ]
        ports = [port for one in chosen for box in one.spec.containers for port in box.ports or ()]
        open_ports = {port.container_port for port in ports} | {port.name for port in ports}
        for port in service.spec.ports:
            if port.target_port not in open_ports:
                raise ExportError(
                    f"{name}: the service '{service.metadata.name}' leads to the port "
                    f"{port.target_port}, which no pod that it selects opens."
                )
