"""A model over a video in one call, and from the command line: its options reach the stages."""

from __future__ import annotations

import json
import pickle
import re
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import paifuser_lab as lab
from paifuser_lab.cli.program import app
from paifuser_lab.errors import StreamError
from paifuser_lab.streaming import Stream
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.model import OpenModel, portable, received
from paifuser_lab.streaming.model_stream import model_stream, source_of
from paifuser_lab.streaming.serving import Limits
from paifuser_lab.streaming.serving.ray_serve import Replica
from paifuser_lab.streaming.sinks import VideoSink
from paifuser_lab.streaming.sources import VideoFile
from paifuser_lab.streaming.stage import FrameError, Result
from paifuser_lab.streaming.stages import Decode, Encode, Infer, Preprocess
from paifuser_lab.streaming.stages.answer import Classes
from paifuser_lab.zoo.streets import boxed_scenes
from tests.support.clips import clip, encoded, pictures


class Means(nn.Module):
    """The mean of each channel."""

    def forward(self, x):
        return x.mean((2, 3))


def work():
    return lab.Workload(Means(), torch.rand(2, 3, 8, 8), name="means")


def folder(path):
    for index, image in enumerate(pictures(3)):
        (path / f"{index}.png").write_bytes(encoded(image))
    return path


def test_every_frame_is_answered_with_the_labels_and_the_normalisation_given(tmp_path):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    names = ("red", "green", "blue")
    options = {"names": names, "mean": mean, "std": std, "how": "crop", "workers": 1}
    results = list(model_stream(folder(tmp_path), work(), **options))
    reference = Preprocess(8, how="crop", mean=mean, std=std)
    for result, image in zip(results, pictures(3), strict=True):
        scores = reference([image])[0].tensor.mean((1, 2)).softmax(0)
        answer = result.value.answer
        assert isinstance(answer, Classes) and answer.label == names[int(scores.argmax())]
        np.testing.assert_allclose(answer.scores, scores.sort(descending=True)[0], rtol=1e-5)
        assert result.value.image is None


def test_a_video_has_the_answers_drawn(tmp_path):
    source = clip(tmp_path / "in.mp4", 6)
    stream = model_stream(source, work(), out=tmp_path / "out.mp4", workers=1)
    assert (stream.run().frames, stream.report.set_aside) == (6, 0)
    groups = zip(
        VideoFile(source, encoded=False).groups(),
        VideoFile(tmp_path / "out.mp4", encoded=False).groups(),
        strict=True,
    )
    for before, after in groups:
        for one, other in zip(before.payload, after.payload, strict=True):
            assert one.seconds == other.seconds
            # a label lies on the upper left corner
            assert np.abs(one.image[:8, :8].astype(int) - other.image[:8, :8]).mean() > 20


def test_a_model_that_is_trained_meanwhile_stays_in_training():
    model = nn.Sequential(nn.Dropout(), nn.Flatten()).train()
    opened = OpenModel(lab.Workload(model, torch.ones(1, 3, 2, 2)))
    (answer,) = opened.answers([(torch.ones(3, 2, 2),)])
    assert model.training and answer.eq(1).all()


def test_an_array_that_is_no_image_is_set_aside_alone():
    image = np.zeros((4, 4, 3), np.uint8)
    frames = Decode()([image, image.astype(float), image])
    assert [type(frame) for frame in frames] == [Frame, FrameError, Frame]


def test_as_many_images_are_sent_together_as_the_model_takes_at_once(tmp_path):
    Image.new("RGB", (16, 8)).save(tmp_path / "black.png")
    assert [source_of(tmp_path, batch).group for batch in (4, 32)] == [8, 32]


def test_what_cannot_be_streamed_is_refused_before_anything_is_read(tmp_path):
    source = clip(tmp_path / "in.mp4", 3)
    with pytest.raises(StreamError, match="is the source; choose another name"):
        model_stream(source, work(), out=tmp_path / "elsewhere" / ".." / "in.mp4")
    words = lab.Workload(nn.Linear(4, 2), torch.rand(2, 4), name="words")
    with pytest.raises(StreamError, match="does not take images"):
        model_stream(source, words)
    with pytest.raises(StreamError, match="neither a video nor a table"):
        model_stream(source, work(), out=tmp_path / "out.gif")
    with pytest.raises(StreamError, match="one for each of 3 channels"):
        model_stream(source, work(), mean=(0.1, 0.2))


def test_the_command_writes_a_table_of_the_answers_with_their_labels(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(
        "import torch, paifuser_lab as lab\n"
        "class Means(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.mean((2, 3))\n"
        "def make():\n"
        "    return lab.Workload(Means(), torch.rand(2, 3, 8, 8), name='means')\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (16, 8), (255, 0, 0)).save(tmp_path / "photos" / "red.png")
    command = ["stream", "photos", "--model", "model:make", "--labels", "red, green,blue"]
    more = ["--mean", "0.5,0.5,0.5", "--std", "0.1", "--out", "out.parquet", "--how", "stretch"]
    result = CliRunner().invoke(app, [*command, *more])
    assert result.exit_code == 0, result.output
    assert "finished: 1 frame" in result.output and "in out.parquet" in result.output
    (row,) = pyarrow.parquet.read_table("out.parquet").to_pylist()
    best, second, _ = json.loads(row["answer"])["classes"]
    assert (row["name"], best["label"]) == ("red.png", "red")
    # logits of 5 and -5
    assert second["score"] == pytest.approx(float(np.exp(-10)), abs=1e-6)
    refused = CliRunner().invoke(app, [*command, "--mean", "half"])
    assert "--mean 'half' is no number" in str(refused.exception)


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    """A video of a new street scene each frame."""
    images, _ = boxed_scenes(12, seed=7)
    scenes = (np.uint8(255 * image.transpose(1, 2, 0)) for image in images)
    frames = [Frame(scene.repeat(2, 0).repeat(2, 1), at, Fraction(1, 25)) for at, scene in
              enumerate(scenes)]  # fmt: skip
    path = tmp_path_factory.mktemp("streets") / "in.mp4"
    sink = VideoSink(path, rate=25)
    sink.open(None)
    sink.write([Result(at, frame, 0.0) for at, frame in enumerate(Encode(rate=25)(frames))])
    sink.close()
    return path


def test_a_detector_finds_its_boxes_in_a_video_without_being_told_its_preprocessing(streets):
    stream = partial(model_stream, streets, "yolo-streets", workers=1)
    answers = [result.value.answer for result in stream()]
    assert sum(len(answer) > 0 for answer in answers) >= 9
    assert answers[0].names == ("car", "pedestrian")
    assert not any(len(result.value.answer) for result in stream(mean=0.0, std=1.0))
    assert next(iter(stream(names=("a", "b")))).value.answer.names == ("a", "b")


def test_the_command_says_how_many_boxes_it_found(streets):
    result = CliRunner().invoke(app, ["stream", str(streets), "--model", "yolo-streets"])
    count, frames = re.search(r"(\d+) boxes in (\d+) of 12 frames", result.output).groups()
    assert int(count) >= int(frames) >= 9


def test_a_model_keeps_its_preprocessing_on_its_way_to_another_process():
    stated = {"mean": (0.1, 0.2, 0.3), "std": 0.5, "order": "BGR", "classes": ("a", "b", "c")}
    means = lab.Workload(Means(), torch.rand(2, 3, 8, 8), preprocessing=stated)
    opened = OpenModel(received(pickle.loads(pickle.dumps(portable(means)))))
    assert opened.work.preprocessing == means.preprocessing and opened.classes == ("a", "b", "c")
    image = np.full((8, 8, 3), (255, 0, 51), np.uint8)
    tensor = Preprocess.of(opened).prepared(Frame(image)).tensor
    # blue first
    torch.testing.assert_close(tensor[:, 0, 0], torch.tensor([0.2, -0.4, 1.4]))


def test_a_variant_s_code_is_trusted_in_another_process_as_it_was_here(monkeypatch):
    variant = lab.apply(lab.load("resnet18-tiny"), lab.Recipe(["fold"]))
    stages = [pickle.dumps(Infer(variant, trust=trust)) for trust in (True, False)]
    sent, given = portable(variant), []

    def load(folder, *args, trust=False, **options):
        given.append(trust)
        return variant

    monkeypatch.setattr(lab.Variant, "load", load)
    for stage in stages:
        pickle.loads(stage).open()
    assert given == [True, False]
    Replica(sent, {"trust": True}, Limits()).close()
    assert given == [True, False, True]


def test_a_model_that_does_not_state_its_preprocessing_is_named(caplog):
    opened = OpenModel(work())
    Preprocess.of(opened, mean=0.5)
    assert not caplog.messages
    Preprocess.of(opened)
    assert "means does not state its preprocessing: pixels are 0 to 1." in caplog.text
    with pytest.raises(StreamError, match=r"order='GBR' is no option"):
        Preprocess(8, order="GBR")


def test_a_source_of_packets_needs_a_stage_that_decodes_them(tmp_path):
    with pytest.raises(StreamError, match="put a stage that decodes them, such as Decode, first"):
        Stream(VideoFile(clip(tmp_path / "in.mp4", 9)), abs, workers=1).run()


def test_the_command_says_why_frames_were_set_aside_and_fails_if_all_were(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    result = CliRunner().invoke(app, ["stream", str(tmp_path), "--model", "resnet18-tiny"])
    assert result.exit_code == 1
    assert "frame 0 was set aside by decode: broken.png: This is no image" in result.output
