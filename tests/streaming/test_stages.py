"""Stages give what a reference gives: resized images, outputs of a model, boxes in the image."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import StreamError
from paifuser_lab.streaming.frame import Frame, checked_image
from paifuser_lab.streaming.model import split
from paifuser_lab.streaming.stages import (
    Encode,
    Infer,
    Overlay,
    Postprocess,
    Preprocess,
    Preview,
    overlay,
)
from paifuser_lab.streaming.stages.answer import Boxes, Classes, Mask, as_json
from tests.support.clips import pictures

SIDES = st.integers(1, 90)


class Halves(nn.Module):
    """The means of an image's left and right half, of each channel: what it saw where."""

    def forward(self, x):
        return x.unflatten(-1, (2, -1)).mean((2, 4)).flatten(1)


def work(side=8, channels=3):
    return lab.Workload(Halves(), torch.rand(2, channels, side, side))


def test_a_resized_image_is_pillow_s_within_a_level_of_grey():
    image = pictures(1, 90, 60)[0]
    frame = Preprocess((24, 36)).prepared(Frame(image))
    reference = np.asarray(Image.fromarray(image).resize((36, 24), Image.Resampling.BILINEAR))
    difference = frame.tensor.permute(1, 2, 0).numpy() * 255 - reference
    assert np.abs(difference).max() <= 1.001 and frame.tensor.dtype == torch.float32


def test_values_are_normalised_by_channel_and_grey_is_pillow_s():
    image = pictures(1, 32, 32)[0]
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    tensor = Preprocess(32, mean=mean, std=std).prepared(Frame(image)).tensor
    expected = (image / 255 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(tensor.permute(1, 2, 0), expected, atol=1e-5)
    grey = Preprocess(32, channels=1).prepared(Frame(image)).tensor
    reference = np.asarray(Image.fromarray(image).convert("L"))
    assert grey.shape == (1, 32, 32) and np.abs(grey[0].numpy() * 255 - reference).max() <= 1


@settings(max_examples=40, deadline=None)
@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(["letterbox", "stretch", "crop"]))
def test_every_image_fits_every_input_and_boxes_find_their_way_back(
    width, height, to_width, to_height, how
):
    image = np.full((height, width, 3), 200, np.uint8)
    frame = Preprocess((to_height, to_width), how=how).prepared(Frame(image))
    fit = frame.fit
    assert tuple(frame.tensor.shape) == (3, to_height, to_width)
    assert torch.isfinite(frame.tensor).all()
    # the image's own corners, as shares of the input
    corners = torch.tensor(
        [
            fit.left / to_width,
            fit.top / to_height,
            (fit.left + width * fit.scale_x) / to_width,
            (fit.top + height * fit.scale_y) / to_height,
        ]
    )
    output = {"boxes": corners[None], "scores": torch.tensor([[0.9]])}
    answer = Postprocess().answered(frame.with_(output=output)).answer
    np.testing.assert_allclose(answer.boxes, [[0, 0, width, height]], atol=1e-3)
    if how == "letterbox":
        left, right = int(fit.left), to_width - int(fit.left) - round(width * fit.scale_x)
        assert abs(left - right) <= 1 and min(fit.left, fit.top) == 0


def test_a_letterboxed_image_has_a_grey_border_and_its_aspect():
    frame = Preprocess(16, how="letterbox").prepared(Frame(np.full((8, 32, 3), 255, np.uint8)))
    tensor = frame.tensor[0]
    assert (tensor[6:10] == 1).all() and torch.allclose(tensor[:6], torch.tensor(114 / 255))
    assert (frame.fit.left, frame.fit.top, frame.fit.scale_x) == (0, 6, 0.5)


def test_outputs_are_those_of_calls_alone_at_every_batch():
    subject = work()
    frames = Preprocess(8)([Frame(image) for image in pictures(7, 8, 8)])
    for batch in (1, 3, 8):
        stage = Infer(subject, batch=batch)
        stage.open()
        answers = stage(frames)
        for frame, answer in zip(frames, answers, strict=True):
            torch.testing.assert_close(answer.output, subject.model(frame.tensor[None])[0])
            assert answer.tensor is None
        stage.close()


def test_a_model_travels_to_another_process_with_its_engine(tmp_path):
    subject = lab.load("resnet18-digits-tiny")
    variant = lab.apply(subject, lab.Recipe(["fold"]))
    variant.save(tmp_path / "mine")
    item = subject.inputs.tensors[0][0]
    expected = Infer(variant)([item])[0]
    for model in (variant, str(tmp_path / "mine"), work()):
        stage = pickle.loads(pickle.dumps(Infer(model)))
        if isinstance(model, lab.Workload):
            assert stage([torch.zeros(3, 8, 8)])[0].tolist() == [0.0] * 6
        else:
            torch.testing.assert_close(stage([item])[0], expected)
    shared = copy.copy(Infer(variant))
    torch.testing.assert_close(shared([item])[0], expected)


@dataclass
class Wrapped:
    """An output that torch's trees do not know."""

    scores: torch.Tensor


@pytest.mark.parametrize("is_engine", [False, True])
def test_threads_share_a_model_but_not_an_engine_and_let_go_of_it(monkeypatch, is_engine):
    opened = []

    class Opened:
        def __init__(self, source, *, trust):
            self.is_engine = is_engine
            opened.append(source)

    monkeypatch.setattr("paifuser_lab.streaming.stages.infer.OpenModel", Opened)
    first = Infer("net", opened=Opened("net", trust=False))
    copies = [first, copy.copy(first), copy.copy(first)]
    for stage in copies:
        stage.open()
    assert len(opened) == (3 if is_engine else 1)
    assert len({id(stage._opened) for stage in copies}) == len(opened)
    assert len({id(stage._turn) for stage in copies}) == 3
    for stage in copies:
        stage.close()
        stage.close()
    assert first._shared.opened is None
    copies[1].open()
    assert len(opened) == (4 if is_engine else 2)


def test_what_cannot_be_joined_to_a_batch_is_refused():
    class Whole(nn.Module):
        def forward(self, x):
            return x.sum()

    with pytest.raises(StreamError, match="a Wrapped, which cannot be divided among the examples"):
        split({"a": Wrapped(torch.rand(2))}, 2, "net")
    with pytest.raises(StreamError, match="its first dimension must be the batch"):
        Infer(lab.Workload(Whole(), torch.rand(2, 3)))([torch.rand(3)])
    with pytest.raises(StreamError, match="put Preprocess before Infer"):
        Infer(work())([Frame(pictures(1)[0])])
    with pytest.raises(StreamError, match="batch=0"):
        Infer(work(), batch=0)
    with pytest.raises(StreamError, match=r"std.0=0.0 is no option of an image's preprocessing"):
        Preprocess(8, std=(0.0,))
    with pytest.raises(StreamError, match=r"mean.0=nan is no option"):
        Preprocess(8, mean=float("nan"))
    with pytest.raises(StreamError, match="one for each of 3 channels"):
        Preprocess(8, mean=(0.1, 0.2))
    with pytest.raises(StreamError, match="choose one of letterbox"):
        Preprocess(8, how="zoom")
    with pytest.raises(ValueError, match="uint8"):
        checked_image(np.zeros((4, 4, 3)))


def test_classes_are_the_best_first_with_their_names():
    frame = Frame(None, output=torch.tensor([0.0, 3.0, 1.0]))
    answer = Postprocess(names=["cat", "dog"], top=2).answered(frame).answer
    assert isinstance(answer, Classes) and answer.label == "dog"
    assert as_json(answer)["classes"][1]["label"] == "2"
    assert answer.scores[0] == pytest.approx(torch.tensor([0.0, 3.0, 1.0]).softmax(0)[1].item())


def test_of_boxes_that_overlap_the_best_remains():
    boxes = torch.tensor([[0, 0, 0.5, 0.5], [0.01, 0, 0.5, 0.5], [0.6, 0.6, 1, 1], [0, 0, 1, 1]])
    scores = torch.tensor([[0.8], [0.9], [0.7], [0.1]])
    frame = Frame(np.zeros((100, 200, 3), np.uint8), output={"boxes": boxes, "scores": scores})
    answer = Postprocess(names=("car",)).answered(frame).answer
    assert isinstance(answer, Boxes)
    np.testing.assert_allclose(answer.boxes, [[2, 0, 100, 50], [120, 60, 200, 100]], atol=1e-3)
    assert as_json(answer)["boxes"][0]["label"] == "car"


@pytest.mark.parametrize("how", ["letterbox", "crop", "stretch"])
def test_a_mask_has_the_image_s_size_and_no_border(how):
    image = np.zeros((20, 40, 3), np.uint8)
    image[:, 20:] = 255
    frame = Preprocess(32, how=how).prepared(Frame(image))
    bright = frame.tensor[0]
    output = torch.stack([0.72 - bright, bright - 0.72])  # above the grey of a border
    answer = Postprocess().answered(frame.with_(output=output)).answer
    assert isinstance(answer, Mask) and answer.classes.shape == (20, 40)
    assert (answer.classes == (image[..., 0] > 0)).mean() > 0.94
    assert as_json(answer)["shares"]["0"] == pytest.approx(0.5, abs=0.06)


def test_an_output_of_no_known_form_needs_a_function():
    with pytest.raises(StreamError, match=r"shape \(2, 2\) is neither classes, boxes nor a mask"):
        Postprocess().answered(Frame(None, output=torch.zeros(2, 2)))
    with pytest.raises(StreamError, match="put Infer before"):
        Postprocess().answered(Frame(None))


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (torch.tensor([1.0, np.nan]), "not finite"),
        ({"boxes": torch.rand(2, 4), "scores": torch.tensor([[np.inf], [1]])}, "not finite"),
        # as torchvision's detectors have it
        (
            {"boxes": torch.rand(2, 4), "labels": torch.ones(2), "scores": torch.rand(2)},
            r"scores of shape \(2,\) are not \(candidates, 4\), as shares",
        ),
        (torch.rand(257, 2, 2), "at most 256 classes, and the output has 257"),
    ],
)
def test_an_output_that_has_no_answer_is_refused(output, sentence):
    with pytest.raises(StreamError, match=sentence):
        Postprocess().answered(Frame(np.zeros((4, 4, 3), np.uint8), output=output))


def test_a_class_may_be_left_out_by_a_score_of_minus_infinity():
    frame = Frame(None, output=torch.tensor([0.0, -np.inf]))
    assert Postprocess().answered(frame).answer.scores.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), torch.tensor([np.nan])])
def test_json_has_no_value_that_is_not_finite(value):
    with pytest.raises(ValueError, match="not finite"):
        as_json({"a": [value]})
    with pytest.raises(TypeError, match="complex64 has no form in JSON"):
        as_json(torch.ones(2, dtype=torch.complex64))


def test_answers_are_drawn_on_a_copy():
    image = np.zeros((60, 80, 3), np.uint8)
    boxes = Boxes(np.float32([[10, 20, 50, 55]]), np.float32([0.9]), np.array([0]), ("car",))
    drawn = Overlay()([Frame(image, answer=boxes)])[0].image
    assert not image.any() and drawn[55, 30].any() and drawn[40, 10].any()
    assert not drawn[40, 30].any() and not drawn[58:].any()
    mask = Mask(np.repeat(np.uint8([[0, 1]]), 40, 1).repeat(60, 0))
    halves = Overlay()([Frame(image, answer=mask)])[0].image
    assert len({tuple(pixel) for pixel in halves.reshape(-1, 3)}) == 2
    classes = Classes(np.array([0]), np.float32([0.5]), ("<b>",))
    assert Overlay()([Frame(image, answer=classes)])[0].image.any()
    assert Overlay()([Frame(image)])[0].image is image


def test_a_few_frames_a_second_have_a_preview(monkeypatch):
    now = iter([1.0, 1.1, 1.3])
    monkeypatch.setattr(overlay, "time", SimpleNamespace(monotonic=lambda: next(now)))
    frames = Preview(width=32, rate=5)([Frame(image) for image in pictures(3)])
    assert [bool(frame.preview) for frame in frames] == [True, False, True]
    assert Image.open(__import__("io").BytesIO(frames[0].preview)).size == (32, 24)


def test_frames_of_another_size_are_not_encoded():
    frames = [Frame(pictures(1)[0]), Frame(pictures(1, 32, 32)[0], time=40)]
    with pytest.raises(StreamError, match="64×48 cannot take a frame with 32×32"):
        Encode()(frames)
