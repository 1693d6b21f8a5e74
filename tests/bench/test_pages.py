"""The figures in README.md and docs/*.md are those of docs/measured, and nothing without a record
is claimed.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paifuser_lab.bench.builds import BuildBench, BuildTime
from paifuser_lab.bench.compress import STAGES, CompressBench, CompressedSeed
from paifuser_lab.bench.experiments import Experiment
from paifuser_lab.bench.flops import FlopsBench, FlopsRow
from paifuser_lab.bench.hessian_peer import HessianBench, TracedModel
from paifuser_lab.bench.pages import blocks_of, differing, pages_of, render
from paifuser_lab.bench.pages.blocks import BLOCKS, COMMANDS
from paifuser_lab.bench.pages.text import number
from paifuser_lab.bench.prune import PruneBench
from paifuser_lab.bench.prune_rows import PruneRow
from paifuser_lab.bench.sensitivity import SensitivityBench
from paifuser_lab.bench.train import TrainBench, TrainLoss, TrainRow
from paifuser_lab.cli.documents import bench as command
from paifuser_lab.errors import FileError
from paifuser_lab.records import (
    AttentionCost,
    AttentionLayer,
    Comparison,
    Measurement,
    Method,
    Reason,
    Sensitivity,
    SideBySide,
)

ROOT = Path(__file__).parent.parent.parent
MEASURED = ROOT / "docs" / "measured"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in pages_of(ROOT)}
ALL = "\n".join(PAGES.values())


def block(name: str, folder: Path) -> str:
    """One block as rendered from a folder, in one line."""
    text = f"<!-- measured:{name} -->\n<!-- /measured -->"
    return " ".join(blocks_of(render(text, folder))[name].split())


def comparison(**metrics: float) -> Comparison:
    """A baseline and rows with a metric, each twice as fast and half as large as the one before."""
    names = ["baseline · 1 thread", *metrics]
    values = [0.99, *metrics.values()]
    rows = [
        Measurement(
            name=name,
            threads=1,
            latency_ms=8.0 / 2**index,
            speedup=2.0**index,
            size_bytes=8000 // 2**index,
            parameters=8000 // 2**index,
            relative_error=0.01 * index,
            metric=value,
        )
        for index, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    return Comparison(
        workload="net",
        machine="here",
        baseline=names[0],
        metric_name="accuracy",
        rounds=3,
        rows=tuple(rows),
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_the_figures_of_the_records(page):
    assert differing(PAGES[page], render(PAGES[page], MEASURED)) == []


def test_every_block_appears_in_one_page():
    names = [name for text in PAGES.values() for name in blocks_of(text)]
    assert sorted(names) == sorted(BLOCKS)


def test_every_record_is_shown_by_a_page():
    shown = {*COMMANDS, "precision_sums", "mobilenetv2_vit-s"}
    assert {path.stem for path in MEASURED.glob("*.json")} <= shown


MEASURED_FIGURE = re.compile(r"\d\s?(?:ms|×|kB|MB|GB/s|GFLOP)(?![\w³²])|\d\.\d+\s?%")
PLAIN = re.compile(r"<!-- measured:.*?<!-- /measured -->|```.*?```|`[^`]*`", re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_no_measured_figure_is_outside_a_block(page):
    assert MEASURED_FIGURE.findall(PLAIN.sub("", PAGES[page])) == []


def test_the_readme_s_section_of_results_has_no_figure_of_its_own():
    section = PAGES["README.md"].split("## Results\n", 1)[1].split("\n## ", 1)[0]
    rest = PLAIN.sub("", section)
    assert rest.strip()
    assert re.findall(r"\d", rest) == []


def test_a_changed_record_changes_its_page(tmp_path):
    for path in MEASURED.glob("*.json"):
        shutil.copy(path, tmp_path)
    changed = json.loads((tmp_path / "widgets.json").read_text(encoding="utf-8"))
    changed["data"]["clicks"] += 70
    (tmp_path / "widgets.json").write_text(json.dumps(changed), encoding="utf-8")
    rendered = render(ALL, tmp_path)
    assert differing(ALL, rendered) == ["widgets"]
    assert f"Of {changed['data']['clicks']} clicks" in " ".join(rendered.split())


def test_a_block_without_a_record_names_its_command(tmp_path):
    bare = blocks_of(render(ALL, tmp_path))
    missing = bare.pop("missing")
    assert all(f"`paifuser-lab {command}`" in missing for command in COMMANDS.values())
    for name, text in bare.items():
        assert re.fullmatch(r"Not measured yet: `paifuser-lab (.*)` measures it\.\n", text), name


def test_the_readme_s_table_has_a_row_a_model_and_a_sentence_a_subject(tmp_path):
    for name in ("fuse", "prune"):
        shutil.copy(MEASURED / f"{name}.json", tmp_path)
    text = block("summary", tmp_path)
    assert "| resnet18 | – | 1.48 × | – | – | – | – |" in text
    assert "on 80 of 80 architectures." in text and "distilled" not in text
    assert "| resnet18 | 1.64 × | 1.48 × | 3.21 × |" in block("summary", MEASURED)


def test_training_has_a_row_a_model_with_what_was_chosen_beside_the_best_way(tmp_path):
    row = lambda way, steps_per_s, ratio: TrainRow(
        model="net", way=way, steps_per_s=steps_per_s, ratio=ratio, interval=(ratio, ratio)
    )
    rows = (row("eager", 10.0, 1.0), row("channels_last", 25.0, 2.5), row("enable()", 24.0, 2.4),
            row("torch.autocast", 15.0, 1.5))  # fmt: skip
    loss = TrainLoss(model="net", plain=(1.0, 2.0), accelerated=(3.0,), judging_share=0.015)
    measured = TrainBench(machine="here", threads=1, rows=rows, losses=(loss,))
    measured.save(tmp_path / "train.json")
    text = block("train", tmp_path)
    assert "| net | 10 | 2.40 (2.40–2.40) | 1.50 (1.50–1.50) | 2.50 (2.50–2.50) | chann" in text
    assert "1.5 (1–2) → 3; judging 1.5 % |" in text
    other = measured.model_copy(update={"machine": "one with AVX2 alone"})
    other.save(tmp_path / "train-avx2.json")
    assert block("train", tmp_path).startswith(text)
    assert "`paifuser-lab bench train` on one with AVX2 alone" in block("train", tmp_path)
    shutil.copy(MEASURED / "fuse.json", tmp_path)
    summary = block("summary", tmp_path)
    assert "autocast by hand: net 2.40 × (2.40–2.40) beside 1.50 ×." in summary.replace("\n", " ")


def test_large_numbers_have_no_exponent():
    assert [number(value) for value in (0.01234, 999.4, 999.6, 1741.0)] == [
        "0.0123", "999", "1,000", "1,741"
    ]  # fmt: skip


def test_an_undefined_block_is_an_error(tmp_path):
    with pytest.raises(FileError, match="a block 'speed-of-light' that is not defined"):
        render("<!-- measured:speed-of-light -->\n<!-- /measured -->", tmp_path)


def test_the_command_finds_a_figure_that_differs_from_the_record_and_corrects_it(tmp_path):
    shutil.copytree(MEASURED, tmp_path / "docs" / "measured")
    for name, text in PAGES.items():
        folder = tmp_path if name == "README.md" else tmp_path / "docs"
        (folder / name).write_text(text, encoding="utf-8")
    page = tmp_path / "docs" / "workbench.md"
    measured = json.loads((MEASURED / "widgets.json").read_text())["data"]
    received = measured["rows"][0]["received_bytes"]
    wrong = PAGES["workbench.md"].replace(f"{received:,}", "103,000")
    assert wrong != PAGES["workbench.md"]
    page.write_text(wrong, encoding="utf-8")
    checked = CliRunner().invoke(command, ["pages", str(tmp_path), "--check"])
    assert checked.exit_code == 1 and "workbench.md differs" in checked.output
    assert "widgets" in checked.output
    assert page.read_text(encoding="utf-8") == wrong
    assert CliRunner().invoke(command, ["pages", str(tmp_path)]).exit_code == 0
    assert page.read_text(encoding="utf-8") == PAGES["workbench.md"]
    assert CliRunner().invoke(command, ["pages", str(tmp_path), "--check"]).exit_code == 0


def test_both_runs_against_the_fastest_direct_call_are_shown():
    text = block("models", MEASURED)
    assert "| 0.95 (0.88–1.00) |" in text and "| 0.94 (0.77–1.06) |" in text
    assert "mobilenetv2, again" in text and "| 0.99 (0.98–1.01) |" in text


def test_build_times_are_shown_with_both_caches(tmp_path):
    rows = (
        BuildTime(model="net", side="fuse", steps=("fuse",), cold_s=(3.0, 9.0, 4.0), warm_s=(2.0,)),
        BuildTime(
            model="net", side="inductor", steps=("inductor frozen",), cold_s=(20.0,), warm_s=(5.0,)
        ),
    )
    BuildBench(machine="here", rounds=3, rows=rows).save(tmp_path / "fuse_builds.json")
    assert "net 4.0 and 2.0 s, Inductor 20.0 and 5.0 s." in block("builds", tmp_path)


def test_flops_are_shown_beside_torch_s_counter(tmp_path):
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    rows = (
        FlopsRow(model="vit", ours=1200, torch=1000, beyond_torch={attention: 150, "gelu": 50}),
        FlopsRow(model="net", ours=1010, torch=1000, beyond_torch={"relu": 20}),
    )
    FlopsBench(machine="here", rows=rows).save(tmp_path / "flops.json")
    text = block("flops", tmp_path)
    assert "both counts agree on 1 of 2 models" in text
    assert "75 % of the difference is attention on a CPU" in text


def test_predicted_savings_and_attention_are_shown(tmp_path):
    reason = Reason(topic="format", sentence="it is fp32", step={"layout": {}}, saves_ms=1.1)
    pair = SideBySide(
        before="net",
        after="channels last",
        before_ms=8.0,
        after_ms=6.5,
        speedup=1.06,
        predicted=reason,
        rows=(),
    )
    layer = AttentionLayer(layer="a", heads=1, queries=1024, keys=1024, errors=(0.0, 0.1))
    cost = AttentionCost(
        workload="net",
        machine="here",
        kind="topk",
        keeps=(1.0, 0.1),
        layers=(layer,),
        errors=(0.0, 0.1),
        latency_ms=(8.0, 4.0),
        dense_ms=8.0,
        metric="mIoU",
        values=(0.94, 0.93),
        dense_value=0.94,
    )
    Experiment(name="promises", machine="here", promises=(pair,)).save(tmp_path / "promises.json")
    Experiment(name="attention", machine="here", attention=(cost,)).save(
        tmp_path / "attention.json"
    )
    assert "channels last −1.1 ms, achieved −1.5 (1.06 ×)" in block("promises", tmp_path)
    text = block("attention", tmp_path)
    assert (
        "10% of the keys made a segmentation of 1,024 tokens 2.00 × as fast (mIoU 0.940 → 0.930)"
        in text
    )


def test_comparisons_of_experiments_are_shown(tmp_path):
    sums = comparison(**{"sums in fp32": 0.9, "sums in int8": 0.9})
    cut = comparison(**{"25%, repaired": 0.98, "25%, as cut": 0.12})
    planned = comparison(int8=0.97, plan_precision=0.99)
    for name, compared in (("sums", sums), ("cut", cut), ("allocation", planned)):
        Experiment(name=name, machine="here", comparisons=(compared,)).save(
            tmp_path / f"{name}.json"
        )
    assert "Of net in ONNX Runtime, one thread: 2.00 × as fast as without." in block(
        "sums", tmp_path
    )
    assert "at 50 % of the parameters 98.0 %, without the refit 12.0 %" in block("cut", tmp_path)
    assert "99.0 % accuracy, output error 2.0e-2, 2 kB. Uniform: int8 97.0 % accuracy" in block(
        "allocation", tmp_path
    )


def test_peers_are_shown_if_they_were_measured(tmp_path):
    ours, theirs = (
        PruneRow(name="net", verdict=verdict, seconds=1.0) for verdict in ("exact", "timed out")
    )
    PruneBench(machine="here", ratio=0.5, rows=(ours,), layers_to_seconds={}).save(
        tmp_path / "prune.json"
    )
    assert "torch-pruning" not in block("prune", tmp_path)
    beside = PruneBench(
        machine="here",
        ratio=0.5,
        rows=(ours,),
        layers_to_seconds={},
        peer="torch-pruning",
        peer_rows=(theirs,),
    )
    beside.save(tmp_path / "prune_peer.json")
    assert "failed on 0, refused on 0, timed out on 1." in block("prune", tmp_path)
    traced = TracedModel(
        workload="net",
        layers=3,
        our_seconds=36.0,
        quadratic_seconds=1.2,
        peer_seconds=54.0,
        peer_probes=9,
        furthest=1.0,
    )
    HessianBench(machine="here", models=(traced,)).save(tmp_path / "hessian.json")
    assert "36 s, PyHessian layer by layer 54 s (1.5 ×)" in block("hessian", tmp_path)


def test_agreement_and_segmentation_are_shown(tmp_path):
    methods = (
        Method(name="quadratic", seconds=1.0, samples=3, agreement={"int8": 0.97}),
        Method(name="ablation", seconds=9.0, samples=3),
    )
    estimated = Sensitivity(
        workload="net",
        machine="here",
        unit="loss",
        formats=("int8",),
        method="quadratic",
        examples=3,
        rows=(),
        methods=methods,
    )
    SensitivityBench(machine="here", records=(estimated,)).save(tmp_path / "sensitivity.json")
    assert "`net`: quadratic 0.97 (int8)." in block("sensitivity", tmp_path)
    run = CompressedSeed(
        seed=0, goal=0.18, measured=comparison(**dict(zip(STAGES, (0.5, 0.7, 0.7), strict=True)))
    )
    CompressBench(machine="here", model="segnet", batch=4, recipe="", runs=(run,)).save(
        tmp_path / "compress_segnet.json"
    )
    text = block("segmentation", tmp_path)
    assert "accuracy 0.990 → 0.700 (0.500 right after one cut, untrained), 4.00 × as fast." in text
    assert text.endswith("One seed.")
