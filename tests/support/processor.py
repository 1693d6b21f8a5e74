"""What a test wants of the processor: pretended where that can be, else required."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy
import pytest
import torch

from paifuser_lab.machine.host import host_facts
from paifuser_lab.model import formats

BF16_UNITS = {"avx512_bf16", "amx_bf16", "bf16"}


class Processor:
    """The processor that a test runs on, as the package sees it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.saturates = patch, formats.saturates()

    def lacks_vnni(self) -> None:
        """It adds pairs of int8 products in 16 bits; pretended on one that does not."""
        self.patch.setattr(formats, "saturates", lambda: True)

    def has_vnni(self) -> None:
        """It adds int8 products in 32 bits, which no other can pretend."""
        if self.saturates:
            pytest.skip("this processor adds pairs of int8 products in 16 bits")
        self.patch.setattr(formats, "saturates", lambda: False)

    def counts_as_with_vnni(self) -> None:
        """Weights are quantized as on one with VNNI, whatever this one makes of them."""
        self.patch.setattr(formats, "saturates", lambda: False)

    def is_of(self, capability: str) -> None:
        """torch's kernels are those of AVX512, AVX2 or DEFAULT; pretended, for what predicts."""
        self.patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    def needs_bf16_units(self) -> None:
        """It multiplies bf16 itself, which no other can pretend."""
        if BF16_UNITS.isdisjoint(host_facts().isa):
            pytest.skip("this processor has no bf16 units")


def start_openvino_unmasked() -> None:
    """OpenVINO reads ONEDNN_MAX_CPU_ISA once, with the first model: it is gone for that long."""
    if not find_spec("openvino"):
        return
    from openvino import Core, Model, opset13

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        given = opset13.parameter([1, 8], numpy.float32)
        Core().compile_model(Model([opset13.matmul(given, given, False, True)], [given]), "CPU")


def emulate_fp8() -> None:
    """torch asks the processor itself whether oneDNN multiplies fp8, which it does with AMX: under
    the mask of an older one it is to do so without oneDNN, as it does there.
    """
    product = torch._scaled_mm

    def without_onednn(*args: Any, **options: Any) -> torch.Tensor:
        torch._C._set_mkldnn_enabled(False)
        try:
            return product(*args, **options)
        finally:
            torch._C._set_mkldnn_enabled(True)

    torch._scaled_mm = without_onednn
