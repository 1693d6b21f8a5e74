"""Data sets without downloads, and models trained on them and cached."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from paifuser_lab import zoo
from paifuser_lab.errors import FileError
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.training import Trained
from paifuser_lab.training.run import Run
from paifuser_lab.zoo import data, maps, metrics, streets
from paifuser_lab.zoo import trained as zoo_trained
from paifuser_lab.zoo.trained import SETUPS, cross_entropy, main
from tests.support.processes import python

QUICK = "resnet18-digits-tiny"


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def nothing_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "learn", lambda *_: pytest.fail("it trained"))


def recorded(patch: pytest.MonkeyPatch) -> list[Trained]:
    """The results of the zoo's trainings from now on."""
    results: list[Trained] = []
    train = zoo_trained.train

    def recording(*args: Any, **options: Any) -> Trained:
        results.append(train(*args, **options))
        return results[-1]

    patch.setattr(zoo_trained, "train", recording)
    return results


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[zoo.Parts, Trained]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIFUSER_CACHE", str(tmp_path_factory.mktemp("zoo")))
        results = recorded(patch)
        parts = zoo.build(QUICK, seed=1)
        yield parts, results[0]


class Interrupted:
    """The cross-entropy; interrupts a training at one of its steps."""

    def __init__(self) -> None:
        self.at = -1

    def __call__(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.at -= torch.is_grad_enabled()
        if self.at == 0:
            raise KeyboardInterrupt
        return cross_entropy(scores, target)


@pytest.fixture
def quick(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    """A quick training, which `at` interrupts."""
    train, test = data.digits()
    loss = Interrupted()
    setup = replace(SETUPS[QUICK], data=lambda: (train[:4], test[:1]), epochs=2, loss=loss)
    monkeypatch.setitem(SETUPS, QUICK, setup)
    return loss


def score(parts: zoo.Parts) -> float:
    assert parts.metric is not None
    assert parts.test is not None
    return parts.metric(parts.model, parts.test)


def test_the_tiny_digits_model_learns(trained: tuple[zoo.Parts, Trained]) -> None:
    parts, result = trained
    assert score(parts) > 0.93
    assert result.last_loss < 0.1 * result.first_loss and not result.is_kept
    assert not parts.model.training


def test_a_second_build_reads_the_cache_to_the_bit(
    trained: tuple[zoo.Parts, Trained], nothing_trains: None
) -> None:
    again = zoo.build(QUICK, seed=1)
    assert weights_hash(trained[0].model) == weights_hash(again.model)


def test_an_interrupted_training_of_the_zoo_goes_on_to_the_same_weights(
    quick: Interrupted, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, state = recorded(monkeypatch), torch.get_rng_state()
    whole = zoo.build(QUICK, seed=1).model
    next(cache_folder.rglob("*.safetensors")).unlink()
    quick.at = 6  # the second step of the second epoch
    with pytest.raises(KeyboardInterrupt, match=r"start it again to go on from there"):
        zoo.build(QUICK, seed=1)
    quick.at = -1
    assert weights_hash(zoo.build(QUICK, seed=1).model) == weights_hash(whole)
    assert [result.began_at for result in results] == [0, 4]
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_that_were_kept_are_those_of_the_seed_and_the_data(
    quick: Interrupted, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = recorded(monkeypatch)
    first, other = (zoo.build(QUICK, seed=seed).model for seed in (1, 2))
    assert not torch.equal(first.conv1.weight, other.conv1.weight)
    train, test = data.digits()
    relabelled = [*train[:3], (train[3][0], train[3][1].flip(0))]
    setup = replace(SETUPS[QUICK], data=lambda: (relabelled, test[:1]))
    monkeypatch.setitem(SETUPS, QUICK, setup)
    zoo.build(QUICK, seed=1)
    monkeypatch.setitem(SETUPS, QUICK, replace(setup, learning_rate=1e-3))
    zoo.build(QUICK, seed=1)
    zoo.build(QUICK, seed=1)
    assert [result.is_kept for result in results] == [False, False, False, False, True]


def test_kept_weights_that_are_damaged_are_trained_again(
    quick: Interrupted, cache_folder: Path
) -> None:
    whole = zoo.build(QUICK, seed=1).model
    path = next(cache_folder.rglob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.warns(UserWarning, match=f"{QUICK}: the checkpoint of an earlier run is damaged"):
        again = zoo.build(QUICK, seed=1).model
    assert weights_hash(again) == weights_hash(whole)


def test_a_cache_that_cannot_be_written_warns_and_works(
    quick: Interrupted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "file" / "below"))
    with pytest.warns(UserWarning, match="set PAIFUSER_CACHE to a folder that can be written"):
        assert zoo.build(QUICK, seed=1).model.training is False


def test_a_model_can_be_built_untrained(nothing_trains: None) -> None:
    parts = zoo.build(QUICK, trained=False, batch=5)
    assert score(parts) < 0.5
    assert isinstance(parts.inputs, torch.Tensor)
    assert parts.inputs.shape == (5, 1, 32, 32)


@pytest.mark.parametrize("name", sorted(zoo_trained.manifest()))
def test_the_weights_in_the_package_are_as_good_as_their_record_and_nothing_trains(
    name: str, cache_folder: Path, nothing_trains: None
) -> None:
    parts = zoo.build(name)
    assert score(parts) == pytest.approx(zoo_trained.manifest()[name]["metric"], abs=0.01)
    assert not list(cache_folder.iterdir())


def test_the_trained_models_come_with_weights_that_are_small_and_good() -> None:
    known = zoo_trained.manifest()
    assert known.keys() == {name for name, setup in SETUPS.items() if not setup.weights}
    assert known["resnet18-digits"]["metric"] > 0.97
    assert min(known[name]["metric"] for name in ("segnet-streets", "unet-streets")) > 0.6
    assert sum(zoo_trained.path_of(name).stat().st_size for name in known) < 5_000_000


def test_damaged_weights_in_the_package_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(zoo_trained.FOLDER, tmp_path / "pretrained")
    monkeypatch.setattr(zoo_trained, "FOLDER", tmp_path / "pretrained")
    path = zoo_trained.path_of(QUICK)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(
        FileError, match=r"tiny.safetensors is damaged .* install the package again"
    ):
        zoo.build(QUICK)
    path.unlink()
    with pytest.raises(FileError, match="Cannot read"):
        zoo.build(QUICK)


def test_weights_are_trained_again_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = data.digits()
    setup = replace(SETUPS[QUICK], data=lambda: (train[:8], test), epochs=1)
    monkeypatch.setitem(SETUPS, QUICK, setup)
    monkeypatch.setattr(zoo_trained, "FOLDER", tmp_path)
    assert zoo_trained.read_weights(QUICK, 0) is None
    learn = Run.learn
    main([QUICK])
    (record,) = zoo_trained.manifest().values()
    assert f"metric {record['metric']:.4f}" in capsys.readouterr().out
    weights = zoo_trained.read_weights(QUICK, 0)
    assert weights is not None and zoo_trained.read_weights(QUICK, 1) is None
    monkeypatch.setattr(Run, "learn", lambda *_: pytest.fail("it trained again"))
    parts = zoo.build(QUICK)
    state = parts.model.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in state.items())
    untrained = zoo.build(QUICK, trained=False).model.state_dict()
    assert not torch.equal(weights["fc.weight"], untrained["fc.weight"])
    assert score(parts) == pytest.approx(record["metric"], abs=1e-4)
    monkeypatch.setattr(zoo_trained, "MAX_BYTES", 1000)
    monkeypatch.setattr(Run, "learn", learn)
    zoo_trained.path_of(QUICK).unlink()
    main([QUICK])
    assert "left out" in capsys.readouterr().out and not zoo_trained.path_of(QUICK).exists()


@pytest.mark.slow
def test_the_model_of_maps_learns_long_range_attention_and_works_on_larger_maps() -> None:
    parts = zoo.build("segvit-maps")
    right = score(parts)
    assert right > 0.85
    assert score_with_near_attention(parts) < right / 2
    larger = zoo.build("segvit-maps-256")
    assert weights_hash(parts.model) == weights_hash(larger.model)
    assert score(larger) > 0.85


def score_with_near_attention(parts: zoo.Parts, reach: int = 64) -> float:
    """The metric when tokens only attend to others at most `reach` positions away."""

    class Near(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                position = torch.arange(args[0].shape[2])
                return func(*args, attn_mask=(position[:, None] - position).abs() <= reach)
            return func(*args, **(kwargs or {}))

    with Near():
        return score(parts)


def test_digits_are_split_in_equal_shares_of_every_digit() -> None:
    train, test = data.digits(batch=1)
    assert (len(train), len(test)) == (1437, 360)
    counts = torch.bincount(torch.cat([target for _, target in test]))
    assert counts.min() >= 34
    assert counts.max() <= 38
    seen = {inputs.numpy().tobytes() for inputs, _ in train}
    assert not any(inputs.numpy().tobytes() in seen for inputs, _ in test)


def test_batches_are_of_equal_size() -> None:
    for part in data.digits(batch=50):
        assert {inputs.shape for inputs, _ in part} == {(50, 1, 32, 32)}
    for part in data.maps(train=4, test=8, batch=4, side=32):
        assert {target.shape for _, target in part} == {(4, 32, 32)}
    for part in data.streets(train=10, test=8, batch=4, side=32):
        assert {inputs.shape for inputs, _ in part} == {(4, 3, 32, 32)}
        assert {target.shape for _, target in part} == {(4, 32, 32)}


def test_streets_are_the_same_every_time_and_show_every_class() -> None:
    images, labels = streets.scenes(20, seed=3)
    again, _ = streets.scenes(20, seed=3)
    assert (images == again).all()
    assert set(labels.ravel().tolist()) == set(range(len(streets.CLASSES)))
    assert not (images == streets.scenes(20, seed=4)[0]).all()


@pytest.mark.parametrize("paint", [data.streets, data.boxed_streets, data.maps])
def test_batches_that_are_written_to_do_not_change_those_made_later(paint):
    first, again = (paint(train=2, test=2, batch=2, side=64) for _ in range(2))
    before = [tensor.clone() for half in again for batch in half for tensor in batch]
    for half in first:
        for batch in half:
            for tensor in batch:
                tensor.zero_()
    later = paint(train=2, test=2, batch=2, side=64)
    kept = [tensor for half in (*again, *later) for batch in half for tensor in batch]
    assert all(map(torch.equal, before + before, kept))


def test_maps_are_the_same_every_time_and_show_every_class() -> None:
    images, labels = maps.sheets(20, side=32, seed=3)
    assert (images == maps.sheets(20, side=32, seed=3)[0]).all()
    assert set(labels.ravel().tolist()) == set(range(len(maps.CLASSES)))
    assert not (images == maps.sheets(20, side=32, seed=4)[0]).all()


@pytest.mark.parametrize("side", [32, 64, 100])
def test_the_legend_of_a_map_determines_every_pixel(side: int) -> None:
    for image, labels in zip(*maps.sheets(12, side=side, seed=1), strict=True):
        is_land = labels != maps.LEGEND
        far = np.abs(image[:, None] - read_legend(image, labels)[..., None, None]).sum(axis=0)
        assert (far.argmin(axis=0) == labels)[is_land].mean() > 0.93


def test_colour_alone_does_not_determine_the_class_on_a_map() -> None:
    images, labels = maps.sheets(400, side=32, seed=2)
    is_land = labels != maps.LEGEND
    bins = (images * 3.999).astype(int).transpose(0, 2, 3, 1)[is_land] @ (16, 4, 1)
    table = np.zeros((64, len(maps.KINDS)))
    np.add.at(table, (bins, labels[is_land]), 1)
    assert table.max(axis=1).sum() / table.sum() < 0.35


def read_legend(image: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The colour of each kind, (channels, kinds), with the pattern of each swatch detected from its
    brightness.
    """
    rows, columns = (np.flatnonzero((labels == maps.LEGEND).any(axis=axis)) for axis in (1, 0))
    side = len(rows)
    colours = np.zeros((3, len(maps.KINDS)))
    for start in columns[::side]:
        swatch = image[:, rows[0] : rows[0] + side, start : start + side]
        light = swatch.sum(axis=0)
        inks = [maps.pattern(kind, side) for kind in range(len(maps.KINDS))]
        kind = int(np.argmax([light[~ink].mean() - light[ink].mean() for ink in inks]))
        colours[:, kind] = swatch[:, ~inks[kind]].mean(axis=1)
    return colours


def test_mean_iou_of_a_small_example() -> None:
    target = torch.tensor([[[0, 0, 1, 1]]])
    predicted = torch.tensor([[[0, 1, 1, 1]]])
    one_hot = torch.nn.functional.one_hot(predicted, 4).permute(0, 3, 1, 2).float()
    # class 0: 1 of 2; class 1: 2 of 3; classes 2 and 3 do not occur
    assert metrics.mean_iou(lambda _: one_hot, [(target, target)]) == pytest.approx(
        (1 / 2 + 2 / 3) / 2
    )


def test_mean_iou_adds_up_areas_over_batches() -> None:
    target = torch.tensor([[[0, 1]], [[1, 1]]])
    right = torch.nn.functional.one_hot(target, 2).permute(0, 3, 1, 2).float()
    assert (
        metrics.mean_iou(lambda inputs: inputs, [(right[:1], target[:1]), (right[1:], target[1:])])
        == 1.0
    )


def test_accuracy_counts_over_all_batches() -> None:
    scores = torch.eye(4)
    batches = [(scores[:2], torch.tensor([0, 1])), (scores[2:], torch.tensor([2, 0]))]
    assert metrics.accuracy(lambda inputs: inputs, batches) == 0.75


def test_hard_digits_have_different_distortions_and_are_reproducible() -> None:
    (train, test), (again, _) = data.hard_digits(copies=2), data.hard_digits(copies=2)
    assert train[0][0].shape == (60, 1, 16, 16) and len(test) == 12
    assert all(torch.equal(first, second) for first, second in zip(train[3], again[3], strict=True))
    images, classes = test[0]
    assert torch.equal(classes[::2], classes[1::2])  # two of each
    assert (images[::2] - images[1::2]).abs().flatten(1).mean(1).min() > 0.1


def test_importing_the_zoo_imports_no_model() -> None:
    code = (
        "import sys, paifuser_lab.zoo; print([name for name in sys.modules if "
        "name.startswith('paifuser_lab.zoo.')])"
    )
    loaded = python("-c", code).stdout
    assert "resnet" not in loaded
    assert "sklearn" not in loaded
