"""Published peak rates of devices that are not present, to plan for them.

Dense figures, never those with 2:4 sparsity; where only sparse ones are printed, half of them. fp32
is that of the vector units (no TF32); fp16 and bf16 are those of the matrix units with fp32
accumulation, as PyTorch uses them. None: the device has no such unit, or no source was found.
Memory is in datasheet gigabytes (10**9 bytes), which errs to the safe side. A model reaches a part
of a published peak. `origin` names the pages and files that quote the datasheets.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..errors import MeasureError
from ..records import Accelerator, Ceiling

MIN_TRITON_CAPABILITY = (7, 0)  # the compute capability that Inductor needs on CUDA


class Published(NamedTuple):
    """A device and the source of its figures."""

    device: Accelerator
    origin: str


def _device(
    name: str,
    origin: str,
    *,
    gigabytes: int,
    bandwidth_gbs: float,
    fp32: float,
    fp16: float,
    bf16: float | None = None,
    int8: float | None = None,
    units: int | None = None,
    capability: tuple[int, int] | None = None,
    kind: Literal["cuda", "npu"] = "cuda",
) -> Published:
    """An entry of the table; speeds in TFLOPS (TOPS), `units` are multiprocessors."""
    ceiling = Ceiling(
        threads=1,
        fp32_gflops=fp32 * 1e3,
        bf16_gflops=bf16 and bf16 * 1e3,
        fp16_gflops=fp16 * 1e3,
        int8_gops=int8 and int8 * 1e3,
        bandwidth_gbs=bandwidth_gbs,
    )
    memory_bytes = gigabytes * 10**9
    device = Accelerator(
        name=name,
        kind=kind,
        memory_bytes=memory_bytes,
        compute_capability=capability,
        multiprocessors=units,
        ceiling=ceiling,
    )
    return Published(device, origin)


DEVICES: dict[str, Published] = {
    "V100": _device(
        "NVIDIA V100 SXM2 32 GB",
        "NVIDIA's V100 datasheet as quoted by Lightning Fabric and, for memory, by ArthurChiao's "
        "GPU data sheets",
        gigabytes=32,
        bandwidth_gbs=900,
        fp32=15.7,
        fp16=125,
        units=80,
        capability=(7, 0),
    ),
    "T4": _device(
        "NVIDIA T4",
        "NVIDIA's T4 datasheet as quoted by Lightning Fabric; memory from SysRqmts (256 bit at 10 "
        "Gbps; others print 300 GB/s)",
        gigabytes=16,
        bandwidth_gbs=320,
        fp32=8.1,
        fp16=65,
        int8=130,
        units=40,
        capability=(7, 5),
    ),
    "A100": _device(
        "NVIDIA A100 SXM4 80 GB",
        "NVIDIA's A100 datasheet as quoted by Glenn Lockwood's notes and PyTorch's device table",
        gigabytes=80,
        bandwidth_gbs=2039,
        fp32=19.5,
        fp16=312,
        bf16=312,
        int8=624,
        units=108,
        capability=(8, 0),
    ),
    "A100-40GB": _device(
        "NVIDIA A100 SXM4 40 GB",
        "Paderborn Center for Parallel Computing, NVIDIA A100 40GB with NVLINK",
        gigabytes=40,
        bandwidth_gbs=1555,
        fp32=19.5,
        fp16=312,
        bf16=312,
        int8=624,
        units=108,
        capability=(8, 0),
    ),
    "A10": _device(
        "NVIDIA A10",
        (
            "NVIDIA's A10 datasheet as quoted by ArthurChiao's GPU data sheets and "
            "astroC86/gpu-datasheet"
        ),
        gigabytes=24,
        bandwidth_gbs=600,
        fp32=31.2,
        fp16=125,
        bf16=125,
        int8=250,
        units=72,
        capability=(8, 6),
    ),
    "RTX3090": _device(
        "NVIDIA GeForce RTX 3090",
        "NVIDIA's GA102 and RTX Blackwell whitepapers as quoted in public notes; fp32 and memory "
        "from Holy Nerdvana",
        gigabytes=24,
        bandwidth_gbs=936,
        fp32=35.6,
        fp16=71,
        bf16=71,
        int8=284,
        units=82,
        capability=(8, 6),
    ),
    "L4": _device(
        "NVIDIA L4",
        ("NVIDIA's L4 datasheet as quoted by ArthurChiao's GPU data sheets, sparse figures halved"),
        gigabytes=24,
        bandwidth_gbs=300,
        fp32=30.3,
        fp16=121,
        bf16=121,
        int8=242.5,
        units=58,
        capability=(8, 9),
    ),
    "L40S": _device(
        "NVIDIA L40S",
        (
            "specification tables of Mullet (L40/L40S product page) and "
            "winston-zhang-orz/gpu-specs (int8)"
        ),
        gigabytes=48,
        bandwidth_gbs=864,
        fp32=91.6,
        fp16=362,
        bf16=362,
        int8=733,
        units=142,
        capability=(8, 9),
    ),
    "RTX4090": _device(
        "NVIDIA GeForce RTX 4090",
        "NVIDIA's Ada whitepaper 2.02, appendix A, as quoted in public repositories; the same at "
        "WareDB",
        gigabytes=24,
        bandwidth_gbs=1008,
        fp32=82.6,
        fp16=165.2,
        bf16=165.2,
        int8=660.6,
        units=128,
        capability=(8, 9),
    ),
    "H100": _device(
        "NVIDIA H100 SXM5 80 GB",
        "HPC Tech's NVIDIA H100 page, sparse figures halved; Lightning Fabric quotes the same "
        "from NVIDIA's datasheet",
        gigabytes=80,
        bandwidth_gbs=3350,
        fp32=67,
        fp16=989.5,
        bf16=989.5,
        int8=1979,
        units=132,
        capability=(9, 0),
    ),
    "H100-PCIE": _device(
        "NVIDIA H100 PCIe 80 GB",
        "HPC Tech's NVIDIA H100 page, sparse figures halved; Lightning Fabric quotes the same "
        "from NVIDIA's datasheet",
        gigabytes=80,
        bandwidth_gbs=2000,
        fp32=51,
        fp16=756.5,
        bf16=756.5,
        int8=1513,
        units=114,
        capability=(9, 0),
    ),
    "H200": _device(
        "NVIDIA H200 SXM5 141 GB",
        "NVIDIA's H200 datasheet as quoted by astroC86/gpu-datasheet, sparse figures halved; fp32 "
        "from HMC Tech",
        gigabytes=141,
        bandwidth_gbs=4800,
        fp32=67,
        fp16=989.5,
        bf16=989.5,
        int8=1979,
        units=132,
        capability=(9, 0),
    ),
    "910B": _device(
        "Huawei Ascend 910B",
        "published figures vary (fp16 246 to 376 TFLOPS, 0.4 to 1.6 TB/s, 32 or 64 GB) and this is "
        "an estimate: the 910B3 of a "
        "public simulator's table, between Gitee AI's page (280) and ArthurChiao's GPU data sheets "
        "(320), with the bandwidth "
        "that an Ascend CANN issue gives for A2; fp32 is a quarter of fp16, inferred from the "
        "limulidae benchmark (87 measured "
        "where bf16 reached 328)",
        gigabytes=64,
        bandwidth_gbs=1600,
        fp32=73.7,
        fp16=294.9,
        bf16=294.9,
        int8=589.8,
        kind="npu",
    ),
}


def find_device(name: str) -> Published:
    """The published device of a name, in any spelling: H100, h100, rtx 4090."""
    normalized = _normalized(name)
    for key, published in DEVICES.items():
        if _normalized(key) == normalized:
            return published
    raise MeasureError(
        f"PAIFUSER_HARDWARE names {name!r}, which is unknown; use one of {', '.join(DEVICES)}, or "
        "unset it."
    )


def inductor_obstacle(device: Accelerator) -> str:
    """Why torch.compile's Inductor cannot compile for a device; '' if it can."""
    if device.kind != "cuda":
        return (
            f"Inductor does not compile for {device.name}, an {device.kind.upper()}: its code is "
            "for CPUs and CUDA; "
            "PyTorch runs it operator by operator, and its maker's compiler takes an exported "
            "ONNX file"
        )
    if device.compute_capability is not None and device.compute_capability < MIN_TRITON_CAPABILITY:
        own, least = (
            ".".join(map(str, version))
            for version in (device.compute_capability, MIN_TRITON_CAPABILITY)
        )
        return (
            f"Inductor does not compile for {device.name} of compute capability {own}: its Triton "
            f"code asks for {least}"
        )
    return ""


def _normalized(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
