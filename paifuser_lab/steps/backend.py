"""Choose what runs the model: eager torch, Inductor, ONNX Runtime or OpenVINO, and with how many threads."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator

from ..engines import build_engine
from ..errors import StepError
from ..workload import changed_buffers, running
from .step import Draft, Step


class Backend(Step):
    """Let an engine answer in the model's stead; it is called as before, keyword arguments and dict answers included."""

    kind: ClassVar[str] = "backend"
    tolerance: ClassVar[float | None] = 1e-3
    is_last: ClassVar[bool] = True
    name: Literal["eager", "inductor", "onnxruntime", "openvino"] = "eager"
    threads: int | None = Field(default=None, ge=1, description="threads of one call; as torch is set where it is left out")
    freeze: bool = Field(default=False, description="Inductor: compile the weights in as constants")

    @model_validator(mode="after")
    def _freeze_needs_inductor(self) -> Backend:
        if self.freeze and self.name != "inductor":
            raise ValueError(f"freeze belongs to inductor, not to {self.name}")
        return self

    @property
    def label(self) -> str:
        frozen = " frozen" if self.freeze else ""
        threads = "" if self.threads is None else f" · {self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.name}{frozen}{threads}"

    def apply(self, draft: Draft) -> None:
        """Build the engine on the example inputs."""
        if self.name in ("onnxruntime", "openvino") and (changed := changed_buffers(draft.work)):
            raise StepError(
                f"the model's forward changes buffer '{changed[0]}', which an exported file would not keep; use eager or inductor."
            )
        draft.threads = self.threads or torch.get_num_threads()
        with running(draft.module):
            engine = build_engine(self.name, draft.module, draft.work.inputs.clone(), draft.threads, freeze=self.freeze)
        draft.engine = engine
        draft.notes.append(f"answers every call from now on, with {draft.threads} thread{'s' if draft.threads > 1 else ''}")
        draft.notes += engine.notes
