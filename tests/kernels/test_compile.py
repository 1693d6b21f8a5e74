"""Sources compile to machine code without a GPU: within their budgets, and stored where only their
owner has access.
"""

from __future__ import annotations

import stat
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from paifuser_lab.errors import KernelError, MissingExtraError
from paifuser_lab.kernels import KERNELS, compile, driver, nvrtc
from paifuser_lab.kernels.compile import (
    Cubin,
    architecture_of,
    cubin_of,
    headers_of,
    program,
    resources_in,
    shipped,
)
from paifuser_lab.kernels.disassembly import _kind, _parsed, listing_of
from paifuser_lab.kernels.kernel import BUDGETED_BY
from tests.support.cuda_on_cpu.emulator import HERE
from tests.support.kernel_checks import needs_disassembler, needs_nvrtc
from tests.support.kernel_probes import ENTRIES

BUDGETED = [(kernel.name, entry) for kernel in KERNELS.values() for entry in kernel.budgets]
SMALL = (shipped("depthwise"), "depthwise<bfloat16, 3, 1, NONE, 8, 8, 64, 1>", "sm_80")


def instructions_of(cubin: Path) -> Counter[str]:
    """How often each instruction occurs in the machine code; padding is left out."""
    names, _ = _parsed(listing_of(cubin))
    return Counter(kind for kind in map(_kind, names) if kind != "NOP")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    return tmp_path / "kernels"


@pytest.fixture
def compilations(monkeypatch):
    """The entries of every compilation in a test."""
    entries = []
    compile_now = compile.Program.compiled

    def counting(self):
        entries.append(self.entry)
        return compile_now(self)

    monkeypatch.setattr(compile.Program, "compiled", counting)
    return entries


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize(("kernel", "entry"), BUDGETED, ids=lambda name: name.replace(" ", ""))
def test_no_kernel_spills(kernel, entry, architecture):
    resources = cubin_of(program(shipped(kernel), entry, architecture)).resources
    assert resources.spill_bytes == 0
    assert resources.stack_bytes == 0


@needs_nvrtc
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_probes_compile_for_a_gpu_as_they_do_for_the_cpu(entry):
    source = (HERE / "probe.cu").read_text(encoding="utf-8")
    compiled = program(source, entry, "sm_90a").compiled()
    assert resources_in(compiled.log, compiled.entry).spill_bytes == 0


@needs_nvrtc
@needs_disassembler
@pytest.mark.parametrize(("kernel", "entry"), BUDGETED, ids=lambda name: name.replace(" ", ""))
def test_every_kernel_keeps_its_budget(kernel, entry):
    if nvrtc.nvrtc().version != BUDGETED_BY:
        pytest.skip(f"budgets are set for NVRTC {BUDGETED_BY}, and this is {nvrtc.nvrtc().version}")
    budget = KERNELS[kernel].budgets[entry]
    cubin = cubin_of(program(shipped(kernel), entry, "sm_90a"))
    assert cubin.resources.registers <= budget.registers
    assert instructions_of(cubin.path).total() <= budget.instructions


@needs_nvrtc
@needs_disassembler
def test_the_intended_instructions_are_generated():
    entry = "window_attention<bfloat16, 7, 32, 1, 0, 0>"
    cubin = cubin_of(program(shipped("window_attention"), entry, "sm_90a"))
    counts = instructions_of(cubin.path)
    # 7 tiles of keys and 4 × 4 tiles of values by two products each; keys, values and queries by
    # fours; copies that bypass the registers.
    assert counts["HMMA"] == 7 * 2 + 4 * 4
    assert counts["LDSM"] == 7 + 4 * 2 + 2
    assert counts["LDGSTS"] == 2 * 3
    assert not counts["LDL"] + counts["STL"]


@needs_nvrtc
def test_machine_code_is_compiled_once_and_is_its_owners_alone(own_cache, compilations):
    first, again = cubin_of(program(*SMALL)), cubin_of(program(*SMALL))
    assert first == again
    assert len(compilations) == 1
    assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in own_cache.iterdir()} == {0o600}
    assert len(list(own_cache.iterdir())) == 2
    cubin_of(program(*SMALL[:2], "sm_90a"))
    assert len(compilations) == 2


@needs_nvrtc
@pytest.mark.parametrize("damage", ["flip", "cut", "manifest", "gone", "elsewhere"])
def test_damaged_machine_code_is_reported_and_compiled_again(own_cache, compilations, damage):
    cubin = cubin_of(program(*SMALL))
    manifest = cubin.path.with_suffix(".json")
    whole = cubin.path.read_bytes()
    if damage == "flip":
        cubin.path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif damage == "cut":
        cubin.path.write_bytes(whole[:-1])
    elif damage == "manifest":
        manifest.write_text("{")
    elif damage == "gone":
        cubin.path.unlink()
    else:
        manifest.write_text(
            cubin.model_copy(update={"path": cubin.path.with_name("other.cubin")}).model_dump_json()
        )
    with pytest.warns(UserWarning, match="is damaged .* compiled again"):
        assert cubin_of(program(*SMALL)) == cubin
    assert cubin.path.read_bytes() == whole
    assert len(compilations) == 2


@needs_nvrtc
def test_a_cache_that_cannot_be_written_is_not_needed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cached for this run only"):
        cubin = cubin_of(program(*SMALL))
    assert cubin.path.read_bytes()[:4] == b"\x7fELF"
    assert stat.S_IMODE(cubin.path.parent.stat().st_mode) == 0o700


@needs_nvrtc
def test_a_cache_of_another_user_is_not_used(own_cache, monkeypatch):
    mine = cubin_of(program(*SMALL))
    monkeypatch.setattr(compile.os, "getuid", lambda: own_cache.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert cubin_of(program(*SMALL)).path.parent != mine.path.parent


@needs_nvrtc
def test_a_full_disk_is_tolerated(own_cache, monkeypatch):
    def full(*_):
        raise compile.FileError("Cannot write x: No space left on device.")

    monkeypatch.setattr(compile, "_write", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert cubin_of(program(*SMALL)).path.exists()


@needs_nvrtc
def test_a_compile_error_reports_the_first_error():
    broken = compile.Program(
        "template <int N> __global__ void f() { nonsense; }", {}, "f<1>", ("-arch=sm_80",)
    )
    with pytest.raises(KernelError, match=r"f<1> does not compile .*nonsense"):
        broken.compiled()


@needs_nvrtc
@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_100"),
        ((12, 0), "sm_120"),
    ],
)
def test_each_device_has_its_architecture(capability, architecture):
    assert architecture_of(capability, nvrtc.nvrtc()) == architecture


def test_a_device_without_an_architecture_is_refused():
    class Known:
        version = "13.0"

        def architectures(self):
            return (80, 90, 100)

    assert architecture_of((8, 9), Known()) == "sm_80"
    with pytest.raises(
        KernelError, match=r"need compute capability 8\.0 or later, and this GPU has 7\.5"
    ):
        architecture_of((7, 5), Known())
    with pytest.raises(
        KernelError, match=r"compiles up to sm_100, not for compute capability 12\.0"
    ):
        architecture_of((12, 0), Known())


def test_a_change_of_a_header_is_another_program():
    first = program(*SMALL)
    assert list(first.headers) == ["activation.cuh", "common.cuh"]
    changed = first.headers | {"common.cuh": first.headers["common.cuh"] + "\n"}
    second = compile.Program(first.source, changed, first.entry, first.flags)
    keys = {
        first.key("13.5"),
        second.key("13.5"),
        first.key("13.0"),
        program(*SMALL[:2], "sm_90a").key("13.5"),
    }
    assert len(keys) == 4
    assert headers_of("") == {}


def test_without_nvrtc_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(nvrtc, "_library_paths", lambda: iter(()))
    with pytest.raises(MissingExtraError, match=r"paifuser-lab\[kernels\]"):
        nvrtc.nvrtc.__wrapped__()


@pytest.mark.parametrize(
    ("version", "first"),
    [
        ((12, 8), "nvidia-cuda-nvrtc-cu12"),
        ((13, 1), "nvidia-cuda-nvrtc"),
        (None, "nvidia-cuda-nvrtc"),
    ],
)
def test_the_compiler_of_the_drivers_own_cuda_is_preferred(monkeypatch, tmp_path, version, first):
    library = {
        name: tmp_path / name / "libnvrtc.so"
        for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
    }
    for path in library.values():
        path.parent.mkdir()
        path.touch()
    monkeypatch.setattr(
        nvrtc,
        "files",
        lambda name: [SimpleNamespace(name="libnvrtc.so", locate=lambda: library[name])],
    )
    monkeypatch.setattr(driver, "cuda_version", lambda: version)
    paths = list(islice(nvrtc._library_paths(), 2))
    assert paths[0] == str(library[first]) and set(paths) == {
        str(path) for path in library.values()
    }


def test_without_nvrtc_the_extra_for_an_older_driver_is_named(monkeypatch):
    monkeypatch.setattr(nvrtc, "_library_paths", lambda: iter(()))
    monkeypatch.setattr(driver, "cuda_version", lambda: (12, 8))
    with pytest.raises(MissingExtraError, match=r"nvidia-cuda-nvrtc-cu12, .*paifuser-lab\[gpu12\]"):
        nvrtc.nvrtc.__wrapped__()


def test_the_compilers_builtins_are_loaded_first_and_never_from_the_current_folder(
    monkeypatch, tmp_path
):
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0"):
        (tmp_path / name).touch()
    loaded = []
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", loaded.append)
    monkeypatch.setattr(nvrtc, "Nvrtc", lambda library: library)
    monkeypatch.chdir(tmp_path)
    nvrtc.load(tmp_path / "libnvrtc.so.13")
    nvrtc.load(nvrtc.Path("libnvrtc.so.13"))
    assert loaded == [
        str(tmp_path / "libnvrtc-builtins.so.13.0"),
        str(tmp_path / "libnvrtc.so.13"),
        "libnvrtc.so.13",
    ]


def test_a_library_that_is_not_nvrtc_is_reported(monkeypatch, tmp_path):
    (tmp_path / "libnvrtc.so").write_bytes(b"no library")
    monkeypatch.setattr(nvrtc, "_library_paths", lambda: iter([str(tmp_path / "libnvrtc.so")]))
    with pytest.raises(KernelError, match="does not load"):
        nvrtc.nvrtc.__wrapped__()


def test_a_log_without_resources_is_refused():
    with pytest.raises(KernelError, match="has no resources of kernel"):
        resources_in("ptxas info: nothing", "kernel")


def test_cubins_are_plain_data():
    assert set(Cubin.model_fields) == {"path", "entry", "sha256", "compiler", "resources"}
