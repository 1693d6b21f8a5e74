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

from benchmarks.__main__ import benches as command
from benchmarks.builds import BuildBench, BuildTime
from benchmarks.checkpoints import CheckpointsBench
from benchmarks.compress import STAGES, CompressBench, CompressedSeed
from benchmarks.experiment import Experiment
from benchmarks.fuse import FuseBench
from benchmarks.hessian_peer import HessianBench, TracedModel
from benchmarks.measured import COMMANDS, ROOMS, SOURCES, Records
from benchmarks.memory_peak import MemoryPeakBench, PeakRow
from benchmarks.pages import TEMPLATES, blocks_of, differing, is_long, pages_of, render, rewrite
from benchmarks.pages.sources import records_of
from benchmarks.pages.summary import PLAN, speedups
from benchmarks.precision import PrecisionBench, PrecisionModel, PrecisionRow
from benchmarks.profile import FlopsBench, FlopsRow
from benchmarks.prune import PruneBench, PruneRow
from benchmarks.sensitivity import SensitivityBench
from benchmarks.train import TrainBench, TrainLoss, TrainRow
from paifuser_lab.bench.header import Header, git
from paifuser_lab.bench.models import HandRatio, ModelsBench
from paifuser_lab.bench.text import number
from paifuser_lab.errors import FileError
from paifuser_lab.records import (
    AttentionCost,
    AttentionLayer,
    CheckpointPlan,
    Comparison,
    Measurement,
    Method,
    PeakBytes,
    Reason,
    Record,
    Sensitivity,
    SideBySide,
    StepOptions,
)
from tests.support.drawn import comparison_of

ROOT = Path(__file__).parent.parent.parent
MEASURED = ROOT / "docs" / "measured"
PAGES = {
    page.relative_to(ROOT).as_posix().removeprefix("docs/"): page.read_text(encoding="utf-8")
    for page in pages_of(ROOT)
}
OF_TABLES = {name for name in PAGES if name.startswith("measured/")}
# a block of a page of tables after the same block without them
ALL = "\n".join(PAGES[name] for name in sorted(PAGES, key=lambda name: name in OF_TABLES))


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
    return comparison_of(*rows, machine="here", metric_name="accuracy")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_the_figures_of_the_records(page):
    rendered = render(PAGES[page], MEASURED, whole=page in OF_TABLES)
    assert differing(PAGES[page], rendered) == []


def test_every_block_appears_in_one_page_and_its_long_tables_in_one_of_their_own():
    names = [name for page in PAGES.keys() - OF_TABLES for name in blocks_of(PAGES[page])]
    assert sorted(names) == sorted(TEMPLATES)
    long = {name for name, text in blocks_of(ALL).items() if any(map(is_long, text.split("\n\n")))}
    assert {f"measured/{name}.md" for name in long} == OF_TABLES
    guides = "\n".join(PAGES[page] for page in PAGES.keys() - OF_TABLES)
    assert all(f"]({page})" in guides for page in OF_TABLES)


def test_a_long_table_is_a_link_except_on_its_own_page(tmp_path):
    shutil.copytree(MEASURED, tmp_path / "docs" / "measured")
    for name in ("docs/memory.md", "docs/measured/memory.md"):
        (tmp_path / name).write_text("<!-- measured:memory -->\n<!-- /measured -->\n")
    (tmp_path / "README.md").write_text("")
    rewrite(tmp_path)
    guide, own = (tmp_path / "docs" / "memory.md"), (MEASURED / "memory.md").read_text()
    assert "\n|" not in guide.read_text() and "(measured/memory.md)" in guide.read_text()
    assert own.count("\n| ") == 34 and guide.read_text().count("\n") < 12


def test_every_record_is_shown_by_a_page():
    assert {path.stem for path in MEASURED.glob("*.json")} <= {*SOURCES}


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
    assert all(f"`{command}`" in missing for command in COMMANDS.values())
    for name, text in bare.items():
        assert re.fullmatch(
            r"Not measured yet: `(paifuser-lab bench|python -m benchmarks) .*` measures it\.\n",
            text,
        ), name


def headed(
    folder: Path,
    name: str,
    record: Record,
    processor: str = "CPU · AVX2 · 2 cores",
    commit: str = "abc1234",
) -> None:
    """Save a record with a header of this processor and commit."""
    known = Header(
        processor=processor,
        model="CPU",
        isa=("avx2",),
        cores=2,
        date="2026-11-25",
        commit=commit,
        versions={"torch": "2.13.0", "nncf": "3.0"},
    )
    path = record.save(folder / f"{name}.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({"measured": known.model_dump(mode="json"), **content}))


HAND = HandRatio(
    plan="openvino",
    best_by_hand="by hand: openvino · 1",
    plan_ms=5.0,
    by_hand_ms=5.0,
    ratio=1.0,
    interval=(0.9, 1.1),
    all_ms={
        "plan": 5.0,
        "by hand: eager · 1": 10.0,
        "by hand: eager · 2": 8.0,
        "by hand: openvino · 1": 5.0,
    },
)
MODELS = ModelsBench(machine="here", comparisons=(comparison(),), by_hand={"net": HAND})


def fused() -> FuseBench:
    """A model twice as fast with `fuse`, and four times frozen by Inductor."""
    compared = comparison(fuse=0.9, **{"inductor frozen": 0.9})
    base, fuse, frozen = compared.rows
    replayed = {"name": "fuse → replay", "steps": ("fuse", "replay"), "speedup": 3.0}
    rows = (
        base,
        fuse.model_copy(update={"steps": ("fuse",)}),
        fuse.model_copy(update=replayed),
        frozen,
    )
    other = compared.model_copy(update={"rows": rows, "workload": "other"})
    return FuseBench(
        machine="here", comparisons=(compared.model_copy(update={"rows": rows}), other)
    )


def quantized() -> PrecisionBench:
    """A model in int8, in int8 in bf16, and by NNCF."""
    ways = {
        "by hand: eager · 1": (10.0, 0.0),
        "by hand: eager · 2": (12.0, 0.0),
        "by hand: openvino · 1": (5.0, 1e-7),
        "int8 · 1": (4.0, 0.01),
        "int8 → openvino · 1 thread": (2.0, 0.01),
        "int8 → openvino in bf16 · 1 thread": (1.0, 0.02),
        "OpenVINO NNCF int8 · 2": (1.6, 0.03),
    }
    rows = [
        PrecisionRow(name=name, is_ours="→" in name, ms=ms, error=error)
        for name, (ms, error) in ways.items()
    ]
    models = (PrecisionModel(workload="net", rows=tuple(rows)),)
    return PrecisionBench(machine="here", models=models)


def test_the_readme_s_table_has_a_row_a_model_and_a_sentence_a_subject(tmp_path):
    headed(tmp_path, "models", MODELS)
    headed(tmp_path, "fuse", fused())
    headed(tmp_path, "precision", quantized())
    shutil.copy(MEASURED / "prune.json", tmp_path)
    text = block("summary", tmp_path)
    peers = "2.00 × | 3.00 × | 4.00 × | 2.00 ×"
    int8 = "2.50 × | 5.00 × (1.0e-2) | 6.25 × (3.0e-2)"
    assert f"| net | 1.60 × | {peers} | {int8} |" in text, "int8 is not int8 in bf16"
    assert "All on CPU · AVX2 · 2 cores, batch 1" in text and "left out" not in text
    assert "on 80 of 80 architectures." in text and "distilled" not in text


def test_the_plan_is_compared_with_eager_in_the_same_rounds(tmp_path):
    hand = HAND.model_copy(update={"all_ms": {**HAND.all_ms, "plan": 4.0}})
    headed(tmp_path, "models", MODELS.model_copy(update={"by_hand": {"net": hand}}), "CPU")
    (row,) = speedups(Records(tmp_path)).rows
    assert row[PLAN].startswith("2.0"), "8 ms by 4, not by the 5 of other rounds"


def test_the_readme_s_table_leaves_out_what_another_processor_measured(tmp_path):
    other = "CPU · AVX-512 · 2 cores"
    headed(tmp_path, "models", MODELS)
    headed(tmp_path, "precision", quantized())
    headed(tmp_path, "fuse", fused(), processor=other)
    headed(tmp_path, "memory", Record.load(MEASURED / "memory.json"))
    headed(tmp_path, "profile", Record.load(MEASURED / "profile.json"), processor=other)
    text = block("summary", tmp_path)
    assert "| net | 1.60 × | – | – | – | 2.00 × |" in text and "| other |" not in text
    assert f"left out: `fuse` and Inductor on {other}." in text
    assert f"of the latency (on {other})." in text
    assert "(on CPU · AVX2" not in text, "the pools are of the table's processor"


def test_a_record_from_before_headers_is_of_the_machine_that_it_names(tmp_path):
    MODELS.save(tmp_path / "models.json")
    fused().save(tmp_path / "fuse.json")
    quantized().model_copy(update={"machine": "there"}).save(tmp_path / "precision.json")
    text = block("summary", tmp_path)
    assert "All on here, batch 1" in text
    assert (
        "| net | 1.60 × | 2.00 × | 3.00 × | 4.00 × | – |" in text and "OpenVINO on there." in text
    )


def test_a_block_says_when_and_with_what_it_was_measured(tmp_path):
    headed(tmp_path, "precision", quantized())
    assert block("precision", tmp_path).endswith(
        "| Measured on 2026-11-25 at abc1234 with torch 2.13.0, nncf 3.0."
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_block_says_how_many_commits_have_changed_what_it_measures(tmp_path):
    measured = tmp_path / "docs" / "measured"
    measured.mkdir(parents=True)
    page = tmp_path / "README.md"
    page.write_text("<!-- measured:trust -->\n<!-- /measured -->\n", encoding="utf-8")
    commit(tmp_path, "measure")
    headed(measured, "trust", Record.load(MEASURED / "trust.json"))
    rewrite(tmp_path)
    assert "Measured before" not in page.read_text(), "git does not know the commit"
    Record.load(MEASURED / "trust.json").save(measured / "trust.json")
    first = commit(tmp_path, "docs")
    rewrite(tmp_path)
    assert "Measured before" not in page.read_text(), "nothing has changed since the record"
    commit(tmp_path, "variant", "zoo")
    commit(tmp_path, "zoo")
    rewrite(tmp_path)
    sentence = "_Measured before 1 commit to `variant`._\n<!-- /measured -->"
    assert sentence in page.read_text()
    commit(tmp_path, "measure", "variant")
    assert rewrite(tmp_path, check=True) == {}, "the check does not follow later commits"
    headed(measured, "trust", Record.load(MEASURED / "trust.json"), commit=f"{first}+")
    rewrite(tmp_path)
    sentence = "_Measured before 2 commits to `measure` and `variant`._\n<!-- /measured -->"
    assert sentence in page.read_text(), "counted from the record's own commit"
    shutil.rmtree(tmp_path / ".git")
    rewrite(tmp_path)
    assert sentence in page.read_text(), "without git it stays"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_training_of_both_processors_is_dated_and_followed(tmp_path):
    measured = tmp_path / "docs" / "measured"
    measured.mkdir(parents=True)
    commits = {name: commit(tmp_path, "accelerate") for name in ("train", "train-avx2")}
    for name, since in commits.items():
        headed(measured, name, Record.load(MEASURED / "train.json"), commit=since)
    commit(tmp_path, "accelerate")
    text = "<!-- measured:train -->\n<!-- /measured -->\n"
    rendered = " ".join(render(text, measured, tmp_path).split())
    assert "_Measured before 2 commits to `accelerate`._" in rendered
    assert f"at {' and '.join(commits.values())} with" in rendered


def commit(root: Path, *rooms: str) -> str:
    """Commit a change of these rooms; returns the commit."""
    for room in rooms:
        file = root / "paifuser_lab" / room / "code.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{file.read_text() if file.exists() else ''}#\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "change"]):
        assert git(root, *words) is not None
    return git(root, "rev-parse", "--short", "HEAD") or ""


def test_every_record_names_rooms_that_it_measures():
    assert ROOMS.keys() == {
        *COMMANDS,
        *(name for block in TEMPLATES for name in records_of(block)),
    } - {"missing"}
    missing = {room for rooms in ROOMS.values() for room in rooms} - {
        path.relative_to(ROOT / "paifuser_lab").as_posix()
        for path in (ROOT / "paifuser_lab").rglob("*")
        if path.is_dir()
    }
    assert not missing


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
    assert "`python -m benchmarks train` on one with AVX2 alone" in block("train", tmp_path)
    shutil.copy(MEASURED / "models.json", tmp_path)
    summary = block("summary", tmp_path)
    assert "net 2.40 × (2.40–2.40) beside 1.50 × (on here)." in summary.replace("\n", " ")


def test_large_numbers_have_no_exponent():
    assert [number(value) for value in (0.01234, 999.4, 999.6, 1741.0)] == [
        "0.0123", "999", "1,000", "1,741"
    ]  # fmt: skip


def test_an_undefined_block_is_an_error(tmp_path):
    with pytest.raises(FileError, match="a block 'speed-of-light' that is not defined"):
        render("<!-- measured:speed-of-light -->\n<!-- /measured -->", tmp_path)


def test_the_command_finds_a_figure_that_differs_from_the_record_and_corrects_it(tmp_path):
    (tmp_path / "docs" / "measured").mkdir(parents=True)
    for name in ("trust", "widgets"):
        shutil.copy(MEASURED / f"{name}.json", tmp_path / "docs" / "measured")
    (tmp_path / "README.md").write_text("")
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
    assert "net 2.00 × as fast on integers" in block("sums", tmp_path)
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


def test_a_step_that_stays_past_its_limit_is_named(tmp_path):
    plan = CheckpointPlan(
        workload="net",
        machine="here",
        limit_bytes=600,
        plain_bytes=1000,
        predicted_bytes=590,
        measured_plain_bytes=1000,
        measured_bytes=910,
    )
    within = plan.model_copy(update={"workload": "small", "measured_bytes": 590})
    measured = CheckpointsBench(machine="here", share=0.6, plans=(plan, within))
    measured.save(tmp_path / "checkpoints.json")
    text = block("checkpoints", tmp_path)
    assert "with a limit of 60 % of its peak" in text
    assert "chooses; net stays at 91 %, past that limit. Peaks" in text


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        (["fp32"] * 4, "Formats by layer kept fp32 everywhere in 4 of 4 models."),
        (
            ["fp32", "fp32", "autocast bf16", "fp32"],
            "Of 4 models, chosen was fp32 in 3 and autocast bf16 in 1.",
        ),
    ],
)
def test_which_formats_were_chosen_is_said_first(tmp_path, ways, said):
    measured = json.loads((MEASURED / "formats.json").read_text(encoding="utf-8"))
    for row, way in zip(measured["data"]["rows"], ways, strict=True):
        row["plan"]["way"] = way
    (tmp_path / "formats.json").write_text(json.dumps(measured), encoding="utf-8")
    assert block("formats", tmp_path).startswith(f"**{said}**")


def test_a_compressed_model_has_one_figure_of_speed_with_its_range(tmp_path):
    runs = [
        CompressedSeed(seed=seed, goal=0.1, measured=comparison(**dict.fromkeys(STAGES, 0.9)))
        for seed in range(2)
    ]
    slow = runs[1].measured.rows[-1].model_copy(update={"speedup": 6.0})
    rows = (*runs[1].measured.rows[:-1], slow)
    measured = runs[1].measured.model_copy(update={"rows": rows})
    runs[1] = runs[1].model_copy(update={"measured": measured})
    CompressBench(machine="here", model="net", batch=4, recipe="", runs=tuple(runs)).save(
        tmp_path / "compress.json"
    )
    text = block("compress", tmp_path)
    assert "| 12.5 % | 7.00 × (6.00–8.00) |" in text and "latency" not in text


def test_the_process_stands_beside_what_torch_allocates(tmp_path):
    row = PeakRow(
        model="net",
        options=StepOptions(train=True),
        batch=8,
        held=PeakBytes(weights_bytes=10_000_000),
        measured_bytes=10_000_000,
        resident_bytes=85_000_000,
    )
    MemoryPeakBench(machine="here", threads=1, rows=(row,)).save(tmp_path / "memory_peak.json")
    text = block("memory_peak", tmp_path)
    assert "1 of 1 within 10% of what torch's allocator gave out" in text
    assert (
        "A process of its own took 8.50 to 8.50 × for a step of training; 1 of 1 took at most"
        in text
    )
    assert "| net | 8, training | 10 | 10 | 1.000 | 85 | 8.50 |" in text
