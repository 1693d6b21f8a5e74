"""Published peak rates of devices that are not present, to plan for them.

Dense figures, never those with 2:4 sparsity; where only sparse ones are printed, half of them. fp32
is that of the vector units (no TF32); fp16 and bf16 are those of the matrix units with fp32
accumulation, as PyTorch uses them. None: the device has no such unit, or no source was found.
Memory is in datasheet gigabytes (10**9 bytes), which errs to the safe side. A model reaches a part
of a published peak. `origin` names the pages and files that quote the datasheets.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import MeasureError
from ..records import Accelerator, Ceiling

MIN_TRITON_CAPABILITY = (7, 0)  # the compute capability that Inductor needs on CUDA


class Published(NamedTuple):
    """A device and the source of its figures."""

    device: Accelerator
    origin: str


# TFLOPS (int8: TOPS); `units` are multiprocessors, `cc` the compute capability, which an NPU lacks
_TABLE = """
device      GB  GB/s  fp32   fp16   bf16   int8  units   cc  name
V100        32   900  15.7    125      -      -     80  7.0  NVIDIA V100 SXM2 32 GB
T4          16   320   8.1     65      -    130     40  7.5  NVIDIA T4
A100        80  2039  19.5    312    312    624    108  8.0  NVIDIA A100 SXM4 80 GB
A100-40GB   40  1555  19.5    312    312    624    108  8.0  NVIDIA A100 SXM4 40 GB
A10         24   600  31.2    125    125    250     72  8.6  NVIDIA A10
RTX3090     24   936  35.6     71     71    284     82  8.6  NVIDIA GeForce RTX 3090
L4          24   300  30.3    121    121  242.5     58  8.9  NVIDIA L4
L40S        48   864  91.6    362    362    733    142  8.9  NVIDIA L40S
RTX4090     24  1008  82.6  165.2  165.2  660.6    128  8.9  NVIDIA GeForce RTX 4090
H100        80  3350    67  989.5  989.5   1979    132  9.0  NVIDIA H100 SXM5 80 GB
H100-PCIE   80  2000    51  756.5  756.5   1513    114  9.0  NVIDIA H100 PCIe 80 GB
H200       141  4800    67  989.5  989.5   1979    132  9.0  NVIDIA H200 SXM5 141 GB
910B        64  1600  73.7  294.9  294.9  589.8      -    -  Huawei Ascend 910B
"""

_ORIGINS = {
    "V100": "NVIDIA's V100 datasheet as quoted by Lightning Fabric and, for memory, by "
    "ArthurChiao's GPU data sheets",
    "T4": "NVIDIA's T4 datasheet as quoted by Lightning Fabric; memory from SysRqmts (256 bit "
    "at 10 Gbps; others print 300 GB/s)",
    "A100": "NVIDIA's A100 datasheet as quoted by Glenn Lockwood's notes and PyTorch's device "
    "table",
    "A100-40GB": "Paderborn Center for Parallel Computing, NVIDIA A100 40GB with NVLINK",
    "A10": "NVIDIA's A10 datasheet as quoted by ArthurChiao's GPU data sheets and "
    "astroC86/gpu-datasheet",
    "RTX3090": "NVIDIA's GA102 and RTX Blackwell whitepapers as quoted in public notes; fp32 "
    "and memory from Holy Nerdvana",
    "L4": "NVIDIA's L4 datasheet as quoted by ArthurChiao's GPU data sheets, sparse figures halved",
    "L40S": "specification tables of Mullet (L40/L40S product page) and "
    "winston-zhang-orz/gpu-specs (int8)",
    "RTX4090": "NVIDIA's Ada whitepaper 2.02, appendix A, as quoted in public repositories; "
    "the same at WareDB",
    "H100": "HPC Tech's NVIDIA H100 page, sparse figures halved; Lightning Fabric quotes the "
    "same from NVIDIA's datasheet",
    "H100-PCIE": "HPC Tech's NVIDIA H100 page, sparse figures halved; Lightning Fabric quotes "
    "the same from NVIDIA's datasheet",
    "H200": "NVIDIA's H200 datasheet as quoted by astroC86/gpu-datasheet, sparse figures "
    "halved; fp32 from HMC Tech",
    "910B": "published figures vary (fp16 246 to 376 TFLOPS, 0.4 to 1.6 TB/s, 32 or 64 GB) "
    "and this is an estimate: the 910B3 of a public simulator's table, between Gitee "
    "AI's page (280) and ArthurChiao's GPU data sheets (320), with the bandwidth that "
    "an Ascend CANN issue gives for A2; fp32 is a quarter of fp16, inferred from the "
    "limulidae benchmark (87 measured where bf16 reached 328)",
}


def _device(row: str) -> Published:
    """The device of one row of the table."""
    key, gigabytes, bandwidth, fp32, *speeds, units, capability, name = row.split(maxsplit=9)
    fp16, bf16, int8 = (None if speed == "-" else float(speed) * 1e3 for speed in speeds)
    major, _, minor = capability.partition(".")
    device = Accelerator(
        name=name,
        kind="cuda" if minor else "npu",
        memory_bytes=int(gigabytes) * 10**9,
        compute_capability=(int(major), int(minor)) if minor else None,
        multiprocessors=int(units) if minor else None,
        ceiling=Ceiling(
            threads=1,
            fp32_gflops=float(fp32) * 1e3,
            bf16_gflops=bf16,
            fp16_gflops=fp16,
            int8_gops=int8,
            bandwidth_gbs=float(bandwidth),
        ),
    )
    return Published(device, _ORIGINS[key])


DEVICES = {row.split()[0]: _device(row) for row in _TABLE.strip().splitlines()[1:]}


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
