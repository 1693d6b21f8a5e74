"""Selects the engine that runs the model, and its number of threads."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator

from ..arguments import MAX_THREADS
from ..engines import build_engine, engine_names
from ..errors import StepError
from ..records import counted
from ..workload import changed_buffers, running
from .step import Draft, Step

OPTION_OF = {
    "freeze": "inductor",
    "spin": "onnxruntime",
    "optimization": "onnxruntime",
    "parallel": "onnxruntime",
    "arena": "onnxruntime",
    "bf16": "openvino",
}


class Backend(Step):
    """Let an engine run the model; it is called as before, with keywords and dict outputs, too."""

    kind: ClassVar[str] = "backend"
    is_single: ClassVar[bool] = True
    main_option: ClassVar[str] = "name"
    tolerance: ClassVar[float | None] = 1e-3
    is_last: ClassVar[bool] = True
    leaves_module: ClassVar[bool] = True
    name: str = Field(
        default="eager",
        description="the engine: eager, replay, inductor, onnxruntime or openvino",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=MAX_THREADS,
        strict=True,
        description="threads of one call; as torch is set where it is left out",
    )
    freeze: bool = Field(default=False, description="inductor: compile the weights in as constants")
    spin: bool = Field(
        default=False,
        description="onnxruntime: threads wait busily, which is faster on an idle machine",
    )
    optimization: Literal["all", "extended", "basic", "none"] = Field(
        default="all", description="onnxruntime: how far it rewrites the graph"
    )
    parallel: bool = Field(
        default=False, description="onnxruntime: independent branches run at the same time"
    )
    arena: bool = Field(
        default=True, description="onnxruntime: memory is kept from one call to the next"
    )
    bf16: bool = Field(
        default=False, description="openvino: compute in bf16 what is in fp32; not exact any more"
    )

    @field_validator("name")
    @classmethod
    def _name_is_known(cls, name: str) -> str:
        if name not in engine_names():
            raise ValueError(f"it should be one of {', '.join(engine_names())}")
        return name

    @model_validator(mode="after")
    def _options_belong_to_the_engine(self) -> Backend:
        for option, engine in OPTION_OF.items():
            if option in self._chosen and self.name != engine:
                raise ValueError(f"{option} belongs to {engine}, not to {self.name}")
        return self

    @property
    def _chosen(self) -> dict[str, Any]:
        """The engines' own options that are not at their defaults."""
        fields = type(self).model_fields
        values = {option: getattr(self, option) for option in OPTION_OF}
        return {name: value for name, value in values.items() if value != fields[name].default}

    @property
    def allowed_error(self) -> float | None:
        """The tolerance of rounding; None if the engine may round to 16 bits."""
        return None if self.bf16 else self.tolerance

    @property
    def label(self) -> str:
        chosen = "".join(
            f" {word}"
            for word, is_on in (
                ("frozen", self.freeze),
                ("spinning", self.spin),
                (f"optimised {self.optimization}", self.optimization != "all"),
                ("parallel", self.parallel),
                ("without arena", not self.arena),
                ("in bf16", self.bf16),
            )
            if is_on
        )
        threads = "" if self.threads is None else f" · {counted(self.threads, 'thread')}"
        return f"{self.name}{chosen}{threads}"

    def apply(self, draft: Draft) -> None:
        """Build the engine on the example inputs."""
        is_apart = self.name in ("replay", "onnxruntime", "openvino")
        if is_apart and (changed := changed_buffers(draft.work)):
            raise StepError(
                f"the model's forward changes buffer '{changed[0]}', which {self.name} would "
                "not keep; use eager or inductor."
            )
        draft.threads = self.threads or torch.get_num_threads()
        with running(draft.module):
            engine = build_engine(
                self.name, draft.module, draft.work.inputs.clone(), draft.threads, **self._chosen
            )
        draft.engine = engine
        draft.notes.append(
            f"outputs every call from now on, with {counted(draft.threads, 'thread')}"
        )
        draft.notes += engine.notes
