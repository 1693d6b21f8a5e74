"""The pods of a manifest: containers, ports, probes and volumes, as pydantic models.

Names, patterns and required fields are those of the Kubernetes API reference, core/v1.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

Label = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
PortName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=15)]
Port = Annotated[int, Field(ge=1, le=65535)]
Quantity = Annotated[str, Field(pattern=r"^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
Image = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
Labels = dict[str, Annotated[str, Field(max_length=63)]]


class Part(BaseModel):
    """A part of a manifest: no field that is not declared, names in camel case."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Metadata(Part):
    """The name and labels of an object."""

    name: Label
    labels: Labels = {}


class PodMetadata(Part):
    """The labels of a template's pods."""

    labels: Labels


class EnvVar(Part):
    """A variable of a container's environment."""

    name: str
    value: str


class ContainerPort(Part):
    """A port that a container listens on."""

    container_port: Port
    name: PortName | None = None


class Resources(Part):
    """What a container asks for and may take at most."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Capabilities(Part):
    """Linux capabilities taken from a container."""

    drop: list[str]


class SecurityContext(Part):
    """What a container may do."""

    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None


class HttpGet(Part):
    """A request that a probe makes."""

    path: Annotated[str, Field(pattern="^/")]
    port: PortName | Port


class Probe(Part):
    """How it is told that a container is ready or alive."""

    http_get: HttpGet
    period_seconds: Annotated[int, Field(ge=1)] = 10


class VolumeMount(Part):
    """Where a container sees a volume."""

    name: Label
    mount_path: Annotated[str, Field(pattern="^/")]


class ClaimSource(Part):
    """A claim of a persistent volume."""

    claim_name: Label


class Volume(Part):
    """A volume of a pod."""

    name: Label
    persistent_volume_claim: ClaimSource


class Container(Part):
    """A container of a pod."""

    name: Label
    image: Image
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    resources: Resources | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    security_context: SecurityContext | None = None
    volume_mounts: list[VolumeMount] | None = None


class PodSpec(Part):
    """The containers of a pod, and the volumes that they mount."""

    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[Volume] | None = None
    automount_service_account_token: bool | None = None

    @model_validator(mode="after")
    def _mounts_are_volumes(self) -> Self:
        known = {volume.name for volume in self.volumes or ()}
        for container in self.containers:
            for mount in container.volume_mounts or ():
                if mount.name not in known:
                    raise ValueError(f"'{container.name}' mounts '{mount.name}', no volume of it")
        return self


class PodTemplate(Part):
    """The template of a group's pods."""

    metadata: PodMetadata | None = None
    spec: PodSpec
