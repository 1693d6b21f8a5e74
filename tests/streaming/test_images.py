"""Folders of images, cameras and Parquet files are sources; damaged images are set aside."""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from paifuser_lab.errors import DataError, FileError, StreamError
from paifuser_lab.streaming import FrameError
from paifuser_lab.streaming.sources import Camera, ImageFolder, ParquetImages
from paifuser_lab.streaming.stages import Decode, decode
from paifuser_lab.streaming.stages.decode import decoded_image
from tests.support.clips import encoded, pictures


def frames_of(source, start=0):
    return [frame for group in source.groups(start) for frame in Decode()(group.payload)]


def test_a_folder_s_images_come_in_the_order_of_their_names(tmp_path):
    images = pictures(5)
    for index, image in enumerate(images):
        (tmp_path / f"{index}.png").write_bytes(encoded(image))
    (tmp_path / "notes.txt").write_text("no image")
    source = ImageFolder(tmp_path, group=2, rate=10)
    frames = frames_of(source)
    assert source.frames == 5 and [frame.seconds for frame in frames] == [0, 0.1, 0.2, 0.3, 0.4]
    for frame, image in zip(frames, images, strict=True):
        np.testing.assert_array_equal(frame.image, image)
    assert [frame.name for frame in frames_of(source, 1)] == ["2.png", "3.png", "4.png"]


def test_a_damaged_image_is_set_aside_by_its_name(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(pictures(1)[0])[:60])
    (tmp_path / "b.jpg").write_bytes(encoded(pictures(1)[0], "JPEG"))
    bad, good = frames_of(ImageFolder(tmp_path))
    assert isinstance(bad, FrameError) and "a.png: This is no image" in bad.message
    assert good.image.shape == (48, 64, 3)


def test_an_image_is_turned_as_its_exif_data_says_and_refused_past_the_limit_of_pixels(
    monkeypatch,
):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held sideways
    image = decoded_image(encoded(pictures(1)[0], "JPEG", exif=exif, quality=95))
    assert image.shape == (64, 48, 3)
    with pytest.raises(DataError, match="no image that can be read"):
        decoded_image(encoded(pictures(1)[0], "GIF"))
    monkeypatch.setattr(decode, "MAX_PIXELS", 3000)
    with pytest.raises(DataError, match="64 × 48 pixels, past the limit of 3,000"):
        decoded_image(encoded(pictures(1)[0]))


@pytest.mark.parametrize("is_struct", [False, True])
def test_parquet_is_streamed_by_rows_and_can_go_on_from_a_group(tmp_path, is_struct):
    images = [encoded(image) for image in pictures(7)]
    column = [{"bytes": image, "path": None} for image in images] if is_struct else images
    table = pyarrow.table({"image": column, "name": [f"n{index}" for index in range(7)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    source = ParquetImages(tmp_path / "a.parquet", group=2)
    assert source.frames == 7
    frames = frames_of(source)
    for frame, image in zip(frames, pictures(7), strict=True):
        np.testing.assert_array_equal(frame.image, image)
    groups = list(source.groups())
    assert list(source.groups(2)) == groups[2:] and [f.name for f in frames][-1] == "n6"


def test_what_is_no_table_of_images_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no table")
    with pytest.raises(FileError, match=r"Cannot read a\.parquet as Parquet"):
        ParquetImages(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(FileError, match=r"no column 'image', only x"):
        ParquetImages(tmp_path / "b.parquet")
    with pytest.raises(FileError, match=r"Column 'x' of b\.parquet has int64"):
        ParquetImages(tmp_path / "b.parquet", column="x")
    with pytest.raises(FileError, match="no image"):
        ImageFolder(tmp_path)
    with pytest.raises(FileError, match="There is no folder"):
        ImageFolder(tmp_path / "missing")
    with pytest.raises(StreamError, match="group=0"):
        ParquetImages(tmp_path / "b.parquet", group=0)


def test_a_camera_s_images_have_their_times_and_end_where_it_ends():
    images = pictures(5)
    camera = Camera(lambda index: images[index] if index < 5 else None, rate=1000)
    frames = [frame for group in camera.groups() for frame in group.payload]
    assert [frame.seconds for frame in frames] == [0, 0.001, 0.002, 0.003, 0.004]
    assert not camera.can_reopen
    np.testing.assert_array_equal(frames[3].image, images[3])
