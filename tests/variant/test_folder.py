"""Saved folders: a compressed model is restored exactly, by running no code but the original's."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Variant, Workload, steps
from paifuser_lab.errors import FileError, MeasureError, RecipeError, WorkloadError
from paifuser_lab.model.weights import answer_hash, load_weights, save_weights, weights_hash
from paifuser_lab.pruning.groups import removal
from paifuser_lab.records import SavedModel
from paifuser_lab.steps import Draft, Step
from paifuser_lab.variant import folder, trial
from paifuser_lab.workload import running
from tests.support.models import Counting, Mapped, Small, Tied, ids, images, small
from tests.support.saved_folders import rewrite_manifest

pytestmark = pytest.mark.usefixtures("one_thread")


class Attending(nn.Module):
    """torch's attention and a linear pair, whose heads and features can go."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.wide = nn.Linear(32, 64)
        self.narrow = nn.Linear(64, 5)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = self.norm(rows + self.attention(rows, rows, rows, need_weights=False)[0])
        return self.narrow(self.wide(rows).relu()).mean(1)


class Viewing(nn.Module):
    """Heads by the user's own numbers, which have to follow a cut; half of its rows are scaled by a
    non-persistent buffer.
    """

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.heads, self.size, self.shape = 3, width // 3, (3, width // 3)
        self.into = nn.Linear(width, width)
        self.out = nn.Linear(width, 4)
        self.register_buffer("weighed", torch.linspace(0, 1, width), persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        split = (self.into(rows) * self.weighed).view(-1, self.heads, self.size).tanh()
        return self.out(split.flatten(1))


def attending() -> Workload:
    return Workload(Attending(), torch.randn(2, 6, 32), name="attending")


def viewing() -> Workload:
    return Workload(Viewing(), torch.randn(6, 24), name="viewing")


def taught() -> Workload:
    """A workload with train data."""
    data = [(images(4), torch.randint(5, (4,))) for _ in range(3)]
    return Workload(Small(), images(), name="taught", loss=nn.functional.cross_entropy, train=data)


def mapped() -> Workload:
    return Workload(Mapped(), {"ids": ids()}, name="mapped")


def tied() -> Workload:
    return Workload(Tied(), ids(), name="tied")


def gpt() -> Workload:
    pytest.importorskip("transformers")
    return lab.load("hf:gpt2", n_layer=2, n_embd=32, n_head=2, vocab_size=120, n_positions=32)


def of_zoo(name: str) -> Any:
    return lambda: lab.load(name)


HALF = {"prune": {"ratio": 0.5}}
CASES: dict[str, tuple[Any, list[Any]]] = {
    "nothing": (small, []),
    "fold": (small, ["fold"]),
    "prune": (of_zoo("resnet18-tiny"), [HALF]),
    "prune, globally, what is folded": (
        of_zoo("mobilenetv2-tiny"),
        ["fold", {"prune": {"ratio": 0.4, "scope": "global"}}],
    ),
    "prune twice": (
        of_zoo("resnet18-tiny"),
        [
            {"prune": {"ratio": 0.3, "round_to": 1}},
            "layout",
            {"prune": {"layers": {"layer4.0.*": 0.5}}},
        ],
    ),
    "heads": (attending, [{"prune": {"ratio": 0.5, "round_to": 1}}]),
    "heads by the user's own numbers": (viewing, [{"prune": {"ratio": 0.4, "round_to": 1}}]),
    "bf16": (
        of_zoo("resnet18-tiny"),
        ["layout", {"precision": {"default": "bf16", "layers": {"fc": "fp32"}}}],
    ),
    "int8": (small, [{"precision": {"default": "int8"}}]),
    "int8 that is made up for": (
        of_zoo("resnet18-tiny"),
        [{"precision": {"default": "int8", "compensate": ["equalise", "rounding", "bias"]}}],
    ),
    "int8 between layers, smoothed": (
        attending,
        [{"precision": {"default": "int8", "compensate": ["smooth"]}}],
    ),
    "sums in int8": (of_zoo("resnet18-tiny"), [{"precision": {"default": "int8", "sums": "int8"}}]),
    "prune, repaired and taught": (
        taught,
        [
            {"prune": {"ratio": 0.5, "round_to": 1, "repair": ["batch-norm", "least-squares"]}},
            {"distill": {"epochs": 1}},
        ],
    ),
    "taught while it is rounded": (
        taught,
        ["fold", {"qat": {"epochs": 1, "layers": {"head": "int4-weights"}}}],
    ),
    "int4": (mapped, [{"precision": {"default": "int4-weights", "compensate": ["bias"]}}]),
    "bf16 around int8": (
        small,
        [{"precision": {"default": "bf16", "layers": {"head": "int8"}}}, "fold"],
    ),
    "tied weights": (tied, [{"precision": {"default": "fp16"}}]),
    "prune and int8": (of_zoo("resnet18-tiny"), ["fold", HALF, {"precision": {"default": "int8"}}]),
    "shorter, then narrower": (
        of_zoo("resnet18-tiny"),
        [{"shorten": {"layers": ["layer1.1", "layer3.1"]}}, HALF],
    ),
    "shorter by blocks that answer in tuples": (
        gpt,
        [{"shorten": {"ratio": 0.5}}],
    ),
    "prune, int8 and an engine": (
        small,
        [
            {"prune": {"ratio": 0.5, "round_to": 1}},
            {"precision": {"default": "int8"}},
            {"backend": {"name": "onnxruntime"}},
        ],
    ),
}


def output_hash(work: Workload, model: nn.Module) -> str:
    with running(model):
        return answer_hash(work.inputs.clone()(model))


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_equals_the_saved_one_exactly(case: str, tmp_path: Path) -> None:
    make, chosen = CASES[case]
    work = make()
    variant = lab.apply(work, Recipe(chosen))
    variant.save(tmp_path / "saved")
    if work.origin is None:  # the same code with other weights
        torch.manual_seed(1)
        other = make()
        other.inputs = work.inputs
    else:
        other = None
    loaded = lab.load(tmp_path / "saved", work=other)
    assert output_hash(work, loaded.model) == output_hash(work, variant.model)
    again = Variant.load(tmp_path / "saved", other or work)
    assert weights_hash(again.module) == weights_hash(variant.module)
    assert str(again.module) == str(variant.module)
    assert (again.recipe, again.reports, again.remembered) == (
        variant.recipe,
        variant.reports,
        variant.remembered,
    )
    again.save(tmp_path / "twice")
    assert output_hash(work, Variant.load(tmp_path / "twice", other or work).model) == output_hash(
        work, variant.model
    )


@settings(max_examples=10, deadline=None)
@given(
    ratio=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
    default=st.sampled_from(["fp32", "bf16", "int8", "int8-weights", "int4-weights"]),
    compensate=st.sets(st.sampled_from(["equalise", "rounding", "bias"])),
)
def test_any_pruned_and_quantized_model_is_restored(
    ratio: float,
    seed: int,
    default: str,
    compensate: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    prune = {
        "ratio": ratio,
        "importance": "random",
        "seed": seed,
        "round_to": 1,
        "layers": {"wide": 0.25},
    }
    work = attending()
    variant = lab.apply(
        work,
        Recipe(
            [
                {"prune": prune},
                {"precision": {"default": default, "compensate": sorted(compensate)}},
            ]
        ),
    )
    path = variant.save(tmp_path_factory.mktemp("any") / "saved")
    loaded = lab.load(path, work=Workload(Attending(), work.inputs))
    assert weights_hash(loaded.model) == weights_hash(variant.module)
    assert output_hash(work, loaded.model) == output_hash(work, variant.model)


@given(st.sets(st.integers(0, 40), min_size=1))
def test_channel_indices_are_stored_compactly(indices: set[int]) -> None:
    text = removal._as_text(sorted(indices))
    assert removal._from_text(text) == sorted(indices)
    assert text.count(",") <= len(indices)


def test_a_layer_that_has_run_uses_newly_loaded_weights(
    tmp_path: Path,
) -> None:
    recipe = Recipe([{"precision": {"default": "int8"}}])
    work, other = (Workload(nn.Sequential(nn.Linear(8, 8)), torch.randn(3, 8)) for _ in range(2))
    first, second = lab.apply(work, recipe), lab.apply(other, recipe)
    second.module[0].span = first.module[0].span  # type: ignore[index, union-attr]
    assert output_hash(work, second.module) != output_hash(work, first.module)
    load_weights(second.module, save_weights(first.module, tmp_path / "weights.safetensors"))
    assert output_hash(work, second.module) == output_hash(work, first.module)


@pytest.fixture(scope="module")
def pruned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pruned model of the zoo."""
    work = lab.load("resnet18-tiny", batch=2, seed=3)
    return lab.apply(work, Recipe([HALF], workload="resnet18-tiny")).save(
        tmp_path_factory.mktemp("kept") / "saved"
    )


@pytest.fixture
def on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is not measured."""
    monkeypatch.setattr(trial, "machine_label", lambda: "paper")
    monkeypatch.setattr(trial, "faster_threads", lambda work: 1)


@pytest.fixture
def saved(pruned_folder: Path, tmp_path: Path) -> Path:
    """A copy of the pruned folder, which a test may damage."""
    return Path(shutil.copytree(pruned_folder, tmp_path / "saved"))


@pytest.mark.parametrize("name", [None, "exp 3: wide", "resnet18-tiny · int8 · fc: bf16 + bias"])
def test_saving_a_model_without_a_name_logs_how_to_load_it(
    name: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = Workload(Small(), images(), name="my own")
    recipe = Recipe([{"precision": "bf16"}], workload=name)
    variant = lab.apply(work, recipe)
    variant.save(tmp_path / "mine")
    (record,) = caplog.records
    assert record.name == "paifuser_lab.variant.variant" and record.levelname == "WARNING"
    advice = f"lab.load('{tmp_path / 'mine'}', work=original)"
    assert "the code of 'my own'" in record.getMessage() and advice in record.getMessage()
    loaded = lab.load(tmp_path / "mine", work=work)
    assert weights_hash(loaded.model) == variant.weights_hash


@pytest.mark.parametrize("name", ["resnet18-tiny", "package.module:function"])
def test_saving_a_model_with_a_name_logs_nothing(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = Workload(Small(), images())
    lab.apply(work, Recipe([{"precision": "bf16"}], workload=name)).save(tmp_path / "mine")
    assert not caplog.records


def test_a_folder_holds_recipe_structure_weights_report_and_their_hashes(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {
        "recipe.yaml",
        "structure.json",
        "weights.safetensors",
        "report.json",
        "manifest.json",
    }
    manifest = lab.Record.load(saved / "manifest.json")
    assert set(manifest.files) == {path.name for path in saved.iterdir()} - {"manifest.json"}
    loaded = lab.load(saved)
    assert loaded.name == "resnet18-tiny · prune 50%" and loaded.inputs.tensors[0].shape[0] == 2
    report = lab.Measurement.load(saved / "report.json")
    assert report.weights_hash == weights_hash(loaded.model)
    assert report.parameters == sum(weight.numel() for weight in loaded.model.parameters())


def test_a_loaded_model_is_a_workload_like_any_other(saved: Path) -> None:
    loaded = lab.load(saved, batch=3)
    assert loaded.output().shape[0] == 3
    further = lab.apply(loaded, Recipe(["fold"]))
    assert "folded 20 batch-norm layers" in further.notes
    further.save(saved / "further")
    with pytest.raises(
        FileError, match=r"has no name to load it by .*give it: load\(folder, work=original\)"
    ):
        lab.load(saved / "further")
    assert (
        weights_hash(lab.load(saved / "further", work=lab.load(saved)).model)
        == further.weights_hash
    )


def test_a_variant_from_a_folder_is_compared_with_its_original(saved: Path, on_paper: None) -> None:
    variant = Variant.load(saved)
    table = lab.compare(variant.work, variant, rounds=1, seconds=0.1)
    assert variant.work.name == "resnet18-tiny"
    assert table.rows[-1].weights_hash == variant.weights_hash
    with pytest.raises(MeasureError, match="is a workload, not a variant"):
        lab.compare(variant.work, lab.load(saved))  # type: ignore[arg-type]


def test_commands_accept_a_folder_as_a_name(saved: Path, command: Any) -> None:
    code, out, _ = command("profile", saved, "--seconds", 0.1, "--depth", 0)
    assert code == 0 and "resnet18-tiny · prune 50%" in out
    assert command("plan", saved, "--seconds", 0)[0] == 0


def test_a_variant_of_other_weights_has_no_baseline_here(tmp_path: Path) -> None:
    work = lab.load("resnet18-tiny")
    with torch.no_grad():
        work.model.fc.bias += 1  # type: ignore[operator, union-attr]
    variant = lab.apply(work, Recipe(["fold"]))
    variant.save(tmp_path / "saved")
    with pytest.raises(
        FileError, match="made from other weights than resnet18-tiny has here; give the original"
    ):
        Variant.load(tmp_path / "saved")
    assert weights_hash(lab.load(tmp_path / "saved").model) == variant.weights_hash


def test_loading_does_not_train_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = lab.load("resnet18-digits-tiny", seed=1, trained=False)
    lab.apply(work, Recipe([{"prune": {"ratio": 0.5, "importance": "magnitude"}}])).save(
        tmp_path / "saved"
    )
    text = (tmp_path / "saved" / "structure.json").read_text().replace('"trained": false', "")
    (tmp_path / "saved" / "structure.json").write_text(text)
    rewrite_manifest(tmp_path / "saved")
    monkeypatch.setattr(
        "paifuser_lab.zoo.trained.train", lambda *_, **__: pytest.fail("it trained")
    )
    assert lab.load(tmp_path / "saved").evaluate() is not None


@pytest.mark.parametrize(
    "name", ["resnet18-tiny", Path("resnet18-tiny"), "./resnet18-tiny", "mine"]
)
def test_a_name_of_the_zoo_is_never_a_folder(
    name: Any, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(saved, saved.parent / "resnet18-tiny")
    shutil.copytree(saved, saved.parent / "mine")
    monkeypatch.chdir(saved.parent)
    assert ("prune" in lab.load(name).name) == (name != "resnet18-tiny")


def edited(path: Path, file: str, old: str, new: str, *, is_signed: bool = True) -> None:
    text = (path / file).read_text()
    assert old in text
    (path / file).write_text(text.replace(old, new, 1))
    if is_signed:
        rewrite_manifest(path)


def gone(file: str) -> Any:
    return lambda path: (path / file).unlink()


def edit(*edits: str, is_signed: bool = True) -> Any:
    return lambda path: edited(path, *edits, is_signed=is_signed)


def other_weights(path: Path) -> None:
    save_weights(Small(), path / "weights.safetensors")
    rewrite_manifest(path)


FROM_PRUNE, FROM_NAME = (
    '"kind": "prune",\n    "package": "paifuser_lab"',
    '"name": "resnet18-tiny",\n   "batch"',
)
DAMAGES: dict[str, tuple[Any, str]] = {
    "no manifest": (
        gone("manifest.json"),
        "has no manifest.json, so it is no saved model, or saving it was interrupted",
    ),
    "no weights": (
        gone("weights.safetensors"),
        "no longer has weights.safetensors; copy the whole folder again",
    ),
    "weights cut short": (
        lambda path: os.truncate(path / "weights.safetensors", 999),
        "is not the file that was saved: it was changed or cut",
    ),
    "an edited recipe": (
        edit("recipe.yaml", "0.5", "0.6", is_signed=False),
        "recipe.yaml is not the file that was saved",
    ),
    "another version": (
        edit("manifest.json", '"version": 1', '"version": 2', is_signed=False),
        "is a saved model of version 2; this program reads version 1",
    ),
    "no structure": (edit("structure.json", '"steps"', '"stops"'), "not a valid SavedModel"),
    "nothing remembered": (
        edit("structure.json", '"remembered"', '"forgotten"'),
        "not a valid SavedModel",
    ),
    "nothing of what the step needs": (
        edit("structure.json", '"attributes"', '"numbers"'),
        "cannot be repeated: KeyError",
    ),
    "other steps": (
        edit("recipe.yaml", "steps:", "steps:\n  - fold: {}"),
        "recipe.yaml and structure.json list different steps",
    ),
    "another width": (
        edit("structure.json", '"of": 8', '"of": 9'),
        r"step 'prune 50%': 'conv1.weight' has shape \(8, 3, 7, 7\); before it was cut, dimension "
        r"0 .* had 9. Load it with the code",
    ),
    "a weight that is not there": (
        edit("structure.json", '"bn1.weight"', '"bn9.weight"'),
        "there is no weight 'bn9.weight'",
    ),
    "weights of another model": (
        other_weights,
        "does not fit resnet18-tiny: weights.safetensors has no weights for 'conv1.weight'",
    ),
    "a step of another package": (
        edit("structure.json", FROM_PRUNE, '"kind": "squeeze", "package": "acme"'),
        "needs step 'squeeze', which comes with the package 'acme'; install that first",
    ),
    "a step of a notebook": (
        edit("structure.json", FROM_PRUNE, '"kind": "squeeze", "package": "__main__"'),
        "needs step 'squeeze', which a notebook or script has defined; define it here first",
    ),
    "an original that is not there": (
        edit("structure.json", FROM_NAME, FROM_NAME.replace("18-tiny", "19")),
        "was made from 'resnet19', which cannot be loaded here: There is no model named "
        "'resnet19'.*give it: load",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_reported_in_one_sentence(damage: str, saved: Path) -> None:
    spoil, message = DAMAGES[damage]
    spoil(saved)
    with pytest.raises((FileError, RecipeError), match=message) as caught:
        lab.load(saved)
    assert "\n" not in str(caught.value)


def test_a_damaged_number_of_an_int8_layer_is_reported_in_one_sentence(tmp_path: Path) -> None:
    work = Workload(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.ones(2, 4))
    folder = tmp_path / "saved"
    lab.apply(work, Recipe([{"precision": "int8"}])).save(folder)
    text = (folder / "structure.json").read_text()
    layers = json.loads(text)["data"]["steps"][0]["remembered"]["layers"]
    assert layers["0"]["clamp"] == [0, None]
    for field in layers["0"]:
        for value in ([], [[]], [[], None], "x"):
            edited_text = json.loads(text)
            remembered = edited_text["data"]["steps"][0]["remembered"]
            remembered["layers"]["0"][field] = value
            (folder / "structure.json").write_text(json.dumps(edited_text))
            rewrite_manifest(folder)
            with suppress(FileError):  # what is left of the output may still be near enough
                lab.load(folder, work=work)


def test_a_missing_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="There is no folder"):
        lab.load(tmp_path / "missing")
    with pytest.raises(FileError, match=r"has no manifest\.json"):
        lab.load("empty")
    with pytest.raises(WorkloadError, match="There is no model named 'resnet19'"):
        lab.load("resnet19")


def test_options_that_would_be_lost_are_refused(saved: Path) -> None:
    with pytest.raises(FileError, match="has weights of its own"):
        lab.load(saved, weights="w.safetensors")
    with pytest.raises(FileError, match="has weights of its own; leave `trained` out"):
        lab.load(saved, trained=True)
    with pytest.raises(WorkloadError, match="batch belongs to the original, which was given"):
        lab.load(saved, work=small(), batch=2)
    with pytest.raises(WorkloadError, match="'resnet18-tiny' is no folder"):
        lab.load("resnet18-tiny", work=small())


BUILDER = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(4, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.two(self.one(x).{after}())

def build(width=16):
    torch.manual_seed(0)
    return Net(width), torch.ones(2, 4)
"""


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Code of the user's that a test may change."""
    monkeypatch.chdir(tmp_path)

    def write(after: str) -> None:
        sys.modules.pop("own_net", None)
        (tmp_path / "own_net.py").write_text(BUILDER.format(after=after))
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)

    yield write
    sys.modules.pop("own_net", None)


def test_changed_code_is_reported_even_if_the_weights_fit(builder: Any, tmp_path: Path) -> None:
    builder("relu")
    lab.apply(lab.load("own_net:build"), Recipe([{"prune": {"ratio": 0.5}}])).save(
        tmp_path / "saved"
    )
    assert lab.load(tmp_path / "saved").model.one.out_features == 8  # type: ignore[union-attr]
    builder("sigmoid")
    with pytest.raises(
        FileError,
        match=r"loads, but its output for the example inputs differs by .* Load it with the code",
    ):
        lab.load(tmp_path / "saved", trust=True)


@pytest.mark.parametrize(
    ("step", "is_loaded"), [("fold", False), ({"precision": "amp-bf16"}, True)], ids=str
)
def test_what_computes_in_16_bits_may_differ_by_more(
    step: Any, is_loaded: bool, tmp_path: Path
) -> None:
    work, structure = small(), tmp_path / "structure.json"
    lab.apply(work, Recipe([step])).save(tmp_path)
    saved = SavedModel.load(structure)
    assert saved.sketch is not None
    moved = tuple(number + 2e-2 * saved.sketch.norms[0] for number in saved.sketch.shadows[0])
    sketch = saved.sketch.model_copy(update={"answer": "another", "shadows": (moved,)})
    saved.model_copy(update={"sketch": sketch}).save(structure)
    rewrite_manifest(tmp_path)
    with nullcontext() if is_loaded else pytest.raises(FileError, match=r"differs by 2\.0e-02"):
        lab.load(tmp_path, work=work)


def test_options_of_a_function_are_not_taken_from_a_file(builder: Any, tmp_path: Path) -> None:
    builder("relu")
    lab.apply(lab.load("own_net:build", width=24), Recipe([{"prune": {"ratio": 0.5}}])).save(
        tmp_path / "saved"
    )
    with pytest.raises(
        FileError,
        match=(
            r"a function's options are not taken from a file, so give them: load\(folder, "
            r"width=24\)"
        ),
    ):
        lab.load("saved")
    assert lab.load("saved", width=24).model.one.out_features == 16  # type: ignore[union-attr]
    with pytest.raises(FileError, match=r"'one\.weight' has shape"):
        lab.load("saved", width=20)


def test_options_of_a_transformers_config_are_taken_from_a_file(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 120,
    }
    variant = lab.apply(
        lab.load("hf:bert", **sizes), Recipe([{"prune": {"ratio": 0.5, "round_to": 1}}])
    )
    variant.save(tmp_path / "saved")
    assert weights_hash(lab.load(tmp_path / "saved").model) == variant.weights_hash


class Sparsify(Step):
    """A step of another package without `rebuild`: it is applied again."""

    kind: ClassVar[str] = "sparsify"

    def apply(self, draft: Draft) -> None:
        draft.module.head = nn.Sequential(nn.Linear(8, 5), nn.Softmax(1))


class Sampling(nn.Module):
    """A model with a random output."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x) + torch.rand(1)


def test_a_step_without_rebuild_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "BUILT_IN", steps.BUILT_IN | {"sparsify": ".sparsify:Sparsify"})
    monkeypatch.setitem(
        sys.modules, "paifuser_lab.steps.sparsify", type("Module", (), {"Sparsify": Sparsify})
    )  # type: ignore[arg-type]
    variant = lab.apply(small(), Recipe(["sparsify"]))
    variant.save(tmp_path / "saved")
    assert weights_hash(lab.load(tmp_path / "saved", work=small()).model) == variant.weights_hash


@pytest.mark.parametrize(
    "make",
    [
        lambda: Workload(Sampling(), torch.ones(2, 4)),
        lambda: Workload(Counting(), torch.ones(2, 4)),
    ],
)
def test_a_model_with_random_output_or_a_counter_is_saved(make: Any, tmp_path: Path) -> None:
    variant = lab.apply(make(), Recipe([{"precision": {"default": "int8-weights"}}]))
    variant.save(tmp_path / "saved")
    assert weights_hash(lab.load(tmp_path / "saved", work=make()).model) == variant.weights_hash


def test_the_report_is_the_given_one_or_describes_these_weights(
    tmp_path: Path, on_paper: None
) -> None:
    work = small()
    first, second = (
        lab.apply(work, Recipe(chosen))
        for chosen in (["fold"], ["fold", {"precision": {"default": "bf16"}}])
    )
    table = lab.compare(work, first, rounds=1, seconds=0.1)
    first.save(tmp_path, report=table)
    assert lab.Record.load(tmp_path / "report.json") == table
    first.save(tmp_path)
    assert lab.Record.load(tmp_path / "report.json") == table, "it is about these weights"
    second.save(tmp_path)
    assert lab.Record.load(tmp_path / "report.json").name == second.recipe.label, (
        "the other was about other weights"
    )
    (tmp_path / "report.json").write_text("of my own")
    second.save(tmp_path)
    assert (tmp_path / "report.json").read_text() == "of my own"
    assert weights_hash(lab.load(tmp_path, work=work).model) == second.weights_hash


@pytest.mark.parametrize("has_links", [True, False])
def test_a_folder_is_replaced_in_one_step_and_keeps_what_is_no_save_s(
    saved: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    (saved / "notes").mkdir()
    (saved / "notes" / "mine.txt").write_text("kept")
    (saved / "link").symlink_to("notes")
    if not has_links:
        monkeypatch.setattr("os.link", lambda *_, **__: (_ for _ in ()).throw(OSError(1, "none")))
    before = lab.Recipe.load(saved / "recipe.yaml").label
    variant = lab.apply(small(), Recipe(["fold"]))
    with monkeypatch.context() as patch:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(folder, "replace_folder", full)
        with pytest.raises(FileError, match="No space left on device"):
            variant.save(saved)
    assert lab.load(saved).name.endswith(before)
    variant.save(saved)
    assert lab.Recipe.load(saved / "recipe.yaml").label == variant.recipe.label
    assert (saved / "notes" / "mine.txt").read_text() == "kept" and (saved / "link").is_symlink()
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_a_folder_keeps_how_a_picture_becomes_the_input(tmp_path: Path) -> None:
    stated = {"mean": 0.4, "std": 0.2, "classes": ("a", "b")}
    original = Workload(Small().eval(), images())
    given = Workload(original.model, original.inputs, preprocessing=stated)
    lab.apply(given, Recipe(["fold"])).save(tmp_path / "mine")
    loaded = lab.load(tmp_path / "mine", work=original)
    assert loaded.preprocessing == given.preprocessing is not None
    assert original.preprocessing is None, "what the user gave stays as it is"
    again = Variant.load(tmp_path / "mine", original)
    assert not lab.compare(original, again, rounds=1, seconds=0.1).rows[-1].failure
    given.preprocessing = {"mean": 0.1}
    own = lab.load(tmp_path / "mine", work=given).preprocessing
    assert own is not None and own.mean == (0.1,)


def test_a_sketch_estimates_the_distance_of_outputs() -> None:
    work = small()
    original = folder.sketch_of(work, work.model)
    for scale in (1e-4, 1e-2, 1.0):
        other = Small()
        other.load_state_dict(work.model.state_dict())
        with torch.no_grad():
            other.eval().head.weight += scale * torch.randn_like(other.head.weight)
            expected = float(
                (work.output() - other(work.inputs.tensors[0])).norm() / work.output().norm()
            )
        estimate = folder.difference(original, folder.sketch_of(work, other))
        assert estimate == pytest.approx(expected, rel=0.6)
    longer = {"answer": "another", "shadows": ((*original.shadows[0], 0.0),)}
    assert folder.difference(original.model_copy(update=longer), original) == math.inf


def test_a_sketch_of_infinities_estimates_the_distance_of_the_other_numbers() -> None:
    class Masked(Small):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images).masked_fill(torch.arange(5) == 1, -math.inf)

    work = Workload(Masked(), images())
    original = folder.sketch_of(work, work.model)
    with torch.no_grad():
        work.model.head.weight.mul_(1.001)
    changed = folder.sketch_of(work, work.model)
    assert 0 < folder.difference(original, changed) < 1e-2
    earlier = original.model_copy(update={"norms": (math.inf,)})
    assert folder.difference(earlier, changed) is None
