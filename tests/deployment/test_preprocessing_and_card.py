"""What a model expects, and its card: derived where that is possible, stated where it is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.converter import Exportable
from paifuser_lab.deployment.model_card import UNKNOWN, _known_licence, model_card
from paifuser_lab.deployment.preprocessing import _spec, preprocessing_of
from paifuser_lab.errors import PaifuserError
from paifuser_lab.records import Comparison, Deployment, Measurement
from tests.support.models import Small


def exportable_of(model, inputs, name="net"):
    return Exportable.of(lab.Workload(model.eval(), inputs, name=name))


@pytest.fixture(scope="module")
def small():
    return exportable_of(Small(), torch.rand(1, 3, 8, 8))


def spec_of(exportable, **more):
    return preprocessing_of(exportable, **({"stated": {}, "labels": ()} | more))


def test_images_tokens_and_other_arrays_are_told_apart(small):
    image = spec_of(small).inputs[0]
    assert (image.kind, image.mode, image.size, image.mean) == ("image", "RGB", (8, 8), None)
    assert spec_of(small, is_dynamic=True).inputs[0].shape == (None, 3, 8, 8)
    embedding = nn.Sequential(nn.Embedding(11, 4), nn.Flatten())
    tokens = spec_of(exportable_of(embedding, torch.ones(1, 6, dtype=torch.long))).inputs[0]
    assert (tokens.kind, tokens.vocabulary, tokens.dtype) == ("tokens", 11, "int64")
    array = spec_of(exportable_of(nn.Linear(3, 2), torch.rand(2, 3))).inputs[0]
    assert (array.kind, array.shape, array.layout) == ("array", (2, 3), "")
    gray = spec_of(exportable_of(nn.Conv2d(1, 2, 3), torch.rand(1, 1, 8, 8))).inputs[0]
    assert gray.mode == "L"


def test_a_tensor_on_a_gpu_is_described_as_one_of_the_cpu():
    elsewhere = torch.empty(1, 3, 8, 8, dtype=torch.float16, device="meta")  # as a GPU: no numpy
    spec = _spec("images", elsewhere, nn.ReLU(), is_dynamic=False)
    assert (spec.kind, spec.size, spec.dtype) == ("image", (8, 8), "float16")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"stated": {"mean": [0.5] * 2, "std": [0.5] * 3}}, "mean has 2 numbers"),
        ({"stated": {"mean": [0.5] * 3, "std": [0.5, 0.5]}}, "std has 2 numbers"),
        ({"stated": {"mean": [0.5] * 3, "std": [0.5, 0.0, 1.0]}}, "std"),
        ({"stated": {"size": [9, 8]}}, r"has \(8, 8\)"),
        ({"stated": {"crop": 3}}, "crop"),
        ({"labels": ["one"]}, "1 labels, and the output 'output' of net has 5 numbers"),
        ({"labels": "abcde"}, "not a single text"),
    ],
)
def test_what_was_stated_has_to_fit_the_model(small, more, sentence):
    with pytest.raises(PaifuserError, match=sentence):
        spec_of(small, **more)


class Finder(nn.Module):
    """Boxes, and scores of two classes, for seven places."""

    def forward(self, places):
        return {"boxes": places[..., :4], "scores": places[..., 4:].sigmoid()}


def test_labels_are_counted_in_the_channels_of_a_mask_and_in_the_scores_of_boxes():
    mask = exportable_of(nn.Conv2d(3, 6, 1), torch.rand(1, 3, 8, 8))
    assert spec_of(mask, labels=list("abcdef")).labels == tuple("abcdef")
    with pytest.raises(PaifuserError, match="8 labels, and the output 'output' of net has 6"):
        spec_of(mask, labels=list("abcdefgh"))
    finder = exportable_of(Finder(), torch.rand(1, 7, 6))
    assert spec_of(finder, labels=["car", "bus"]).labels == ("car", "bus")
    with pytest.raises(PaifuserError, match="4 labels, and the output 'scores' of net has 2"):
        spec_of(finder, labels=list("abcd"))


def test_a_model_without_images_takes_no_mean():
    linear = exportable_of(nn.Linear(3, 2), torch.rand(2, 3))
    with pytest.raises(PaifuserError, match="takes no images"):
        spec_of(linear, stated={"mean": [0.5], "std": [0.5]})


def card_of(exportable, **more):
    deployment = Deployment(workload=exportable.name, recipe="fold", machine="here")
    options = {"licence": "", "notes": (), "comparison": None} | more
    recipe = options.pop("recipe", "version: 1\n")
    return model_card(exportable, deployment, spec_of(exportable), recipe, **options)


def test_the_card_says_what_nobody_knows(small):
    card = card_of(small)
    assert "unknown: state it with licence=" in card and "nobody stated them" in card
    assert "No comparison with the original was given." in card
    assert small.weights_hash in card
    assert "Licence of the original: Apache-2.0" in card_of(small, licence="Apache-2.0")


def test_the_card_promises_an_image_file_only_where_one_can_be_run(small):
    image, why = "`python run.py image.png`", "the model takes 2 at a time"
    assert image in card_of(small) and "as `--how stretch`" in card_of(small)
    several = card_of(exportable_of(Small(), torch.rand(2, 3, 8, 8)))
    assert image not in several and why in several and "`dynamic=True`" in several
    array = card_of(exportable_of(nn.Linear(3, 2), torch.rand(2, 3)))
    assert image not in array and why not in array


def test_a_model_of_the_zoo_has_a_known_licence():
    assert "MIT, as PAIFuser Lab" in card_of(Exportable.of(lab.load("resnet18-tiny")))


def test_the_licence_of_a_package_s_network_is_not_ours(monkeypatch):
    monkeypatch.setattr("paifuser_lab.variant.load.installed_names", lambda: ("net-imagenet",))
    work = SimpleNamespace(origin=SimpleNamespace(name="net-imagenet"))
    assert _known_licence(work) == UNKNOWN


@pytest.mark.parametrize(("count", "known"), [(2, 0), (5, 5)])
def test_labels_of_a_config_are_taken_where_there_is_one_for_each_score(count, known):
    model = Small()
    model.config = SimpleNamespace(id2label={at: f"LABEL_{at}" for at in range(count)})
    exportable = exportable_of(model, torch.rand(1, 3, 8, 8))
    assert len(exportable.labels) == len(spec_of(exportable).labels) == known


def test_the_card_has_the_measured_table(small):
    rows = (
        Measurement(name="baseline", threads=1, latency_ms=8.25),
        Measurement(name="fold", threads=1, latency_ms=4.125, speedup=2.0),
    )
    compared = Comparison(workload="net", machine="here", baseline="baseline", rounds=5, rows=rows)
    card = card_of(small, comparison=compared)
    assert "| baseline | 1 | 8.25 |" in card and "2.00 ×" in card


def test_names_are_text_in_the_card():
    name = "<img src=x onerror=alert(1)> | [a](b) `c`"
    exportable = exportable_of(nn.Linear(3, 2), torch.rand(2, 3), name=name)
    card = card_of(exportable, licence="<b>", notes=("a\n# b",), recipe="a: ```` \n# x\n")
    assert "<img" not in card and "<b>" not in card and r"\[a\](b)" in card
    assert "\n# b" not in card and "`````yaml\n" in card
