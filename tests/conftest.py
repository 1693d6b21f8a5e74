"""Shared fixtures: one cache for the run, no progress bars, a seed, restored threads."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch.onnx._internal.exporter._registration import ONNXRegistry

import paifuser_lab as lab
from paifuser_lab.attention import evaluate as attention_evaluate
from paifuser_lab.fusion import evaluate
from paifuser_lab.jobs import measuring
from paifuser_lab.measure import MachineWatch, timing
from paifuser_lab.pruning.targets import target
from paifuser_lab.records import Quality
from tests.support import skipped
from tests.support.bench import emptied, opened
from tests.support.durations import SECONDS
from tests.support.models import Small, images
from tests.support.processor import Processor, emulate_fp8, start_openvino_unmasked

# CI draws the same examples each time; a manual run draws new ones.
if os.environ.get("PAIFUSER_REQUIRE"):
    settings.register_profile("landing", derandomize=True)
    settings.load_profile("landing")


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, which tests send to themselves; fp8 does not follow
    the mask of an older processor.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("PAIFUSER_CPU") == "avx2":
        emulate_fp8()  # before modules of tests ask for it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first, so that parallel workers end at the same time."""
    items.sort(key=lambda item: -SECONDS.get(item.nodeid.partition("::")[0], 0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what was skipped; in `make test`, also by the runs before this one."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = {report.nodeid: report.longrepr[2] for report in reports}
    file = os.environ.get("PAIFUSER_SKIPPED")
    for line in skipped.lines(skipped.gather(reasons, Path(file) if file else None)):
        terminalreporter.write_line(line)


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for all tests and all their processes: the hardware is measured once and a
    model is trained once. `PAIFUSER_RUN_CACHE` names it where notebooks and browser share it too.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder = Path(os.environ.get("PAIFUSER_RUN_CACHE") or root / "paifuser-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIFUSER_CACHE", str(folder))
        patch.setenv("PAIFUSER_PROGRESS", "none")
        patch.delenv("PAIFUSER_HARDWARE", raising=False)
        patch.delenv("PAIFUSER_STATIC", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def the_mask_of_an_older_processor_is_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    """ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY and PAIFUSER_CPU make this processor an older one for
    torch and this package. OpenVINO's own oneDNN would follow the first by halves, and crash: it
    starts without. Inductor follows none, and mixes vectors of 512 bits with torch's of 256; its
    cache does not ask for which a kernel is, and one for the other corrupts memory.
    """
    if os.environ.get("PAIFUSER_CPU") == "avx2":
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("inductor"))
        from torch._inductor import config

        config.cpp.simdlen = 256
        start_openvino_unmasked()


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    """What the test wants of the processor, the one place where a test asks for a feature of it."""
    return Processor(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def brief_measurements() -> Iterator[None]:
    """Measurements are brief, since no test judges what they find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "TURN_S", 0.002)
        patch.setattr(timing, "SLEEP_S", 0.001)
        patch.setattr(measuring, "PROFILE_S", 0.05)
        patch.setattr(target, "TIMING_SECONDS", 0.2)
        yield


@pytest.fixture(scope="session", autouse=True)
def onnx_functions_are_parsed_once() -> Iterator[None]:
    """torch's exporter parses its library of 500 ONNX functions for each file, which takes most of
    the time of a small model's export; the tests parse it once for each opset.
    """
    parsed = cache(ONNXRegistry.from_torchlib)

    def copied(**options: Any) -> ONNXRegistry:
        registry = copy(parsed(**options))
        registry.functions = {name: [*found] for name, found in registry.functions.items()}
        return registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(copied))
        yield


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements count as taken on a quiet machine: the tests beside this one keep it busy."""

    def quality(watch: MachineWatch, **figures: Any) -> Quality:
        return Quality(others_share=0.0)

    monkeypatch.setattr(MachineWatch, "quality", quality)


@pytest.fixture(autouse=True)
def same_seed_and_threads() -> Iterator[None]:
    """Each test starts from the same seed and must restore torch's number of threads."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before, (
        "a test or the code it ran changed torch's number of threads"
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny models run on one thread: a second one only costs them time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Any, str, str]]:
    """Runs `paifuser-lab …` in this process: exit code, standard output and standard error."""
    from paifuser_lab.cli import program

    def run(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["paifuser-lab", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            program.main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def always_quicker() -> Iterator[list[Any]]:
    """Replace timing: fused layers are twice as fast. Yields the devices of all timings."""
    counted: list[Any] = []

    def timed(calls: dict[str, Any], device: torch.device) -> dict[str, float]:
        counted.extend([device] if evaluate.AS_ONE not in calls else [])
        return dict.fromkeys(calls, 1.0) | {evaluate.APART: 2.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "timed", timed)
        yield counted


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The milliseconds that timing attention gives, before and after the change."""
    milliseconds = {"before": 2.0, "after": 1.0}
    monkeypatch.setattr(attention_evaluate, "compare_ms", lambda *_: tuple(milliseconds.values()))
    return milliseconds


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Workbench]:
    """A workbench of a small model, its first queries answered; `as_it_was` resets it."""
    work = lab.Workload(Small(), images(), name="small")
    with opened(work, tmp_path_factory.mktemp("bench")) as workbench:
        yield workbench


@pytest.fixture
def as_it_was(request: pytest.FixtureRequest) -> None:
    """The workbench is shared by a file; each test gets it with an empty recipe."""
    if "bench" in request.fixturenames:
        workbench = emptied(request.getfixturevalue("bench"))
        workbench.sensitivity = workbench.importance = workbench.allocation = None


@pytest.fixture(autouse=True)
def gradients_stay_enabled():
    """A test or what it calls must not leave gradients disabled for the tests after it."""
    yield
    is_enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    torch.set_grad_enabled(True)
    assert is_enabled, "this test left gradients disabled"
