"""Small data sets: handwritten digits (from scikit-learn), and synthetic streets and maps. Hard
digits are rotated, shifted and scaled, with pieces of other digits and noise, so that small
networks make some errors.
"""

from __future__ import annotations

from functools import lru_cache
from math import pi

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..records import ImagePreprocessing
from . import maps as map_sheets
from . import streets as street_scenes
from .parts import Batches

ROTATION = pi / 6  # at most, in either direction
SHIFT = 0.25  # of half the side
SIZES = (0.7, 1.15)
CLUTTER = 3  # pieces of other digits
NOISE = 0.15


def distorted(small: Tensor, *, side: int, copies: int, generator: torch.Generator) -> Tensor:
    """Every image (N × 1 × h × w, 0 to 1) `copies` times in a row, each with another distortion."""
    images = small.repeat_interleave(copies, dim=0)
    drawn = _moved(images, side, generator) + _clutter(small, len(images), side, generator)
    return drawn.clamp(0, 1) + NOISE * torch.randn(drawn.shape, generator=generator)


def _moved(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift the images."""
    count = len(images)
    angle = ROTATION * _uniform(count, generator)
    size = SIZES[0] + (SIZES[1] - SIZES[0]) * torch.rand(count, generator=generator)
    across, down = (SHIFT * _uniform(count, generator) for _ in range(2))
    turned = _matrices((angle.cos(), -angle.sin(), across), (angle.sin(), angle.cos(), down))
    return _sampled(images, turned / size[:, None, None], side)


def _clutter(small: Tensor, count: int, side: int, generator: torch.Generator) -> Tensor:
    """Draw pieces of other digits, half as dark, around the edge."""
    drawn = torch.zeros(count, 1, side, side)
    for _ in range(CLUTTER):
        others = small[torch.randint(len(small), (count,), generator=generator)]
        angle = 2 * pi * torch.rand(count, generator=generator)
        zoom = torch.full((count,), 2.0)
        zero = torch.zeros(count)
        # The edge of the image in coordinates of the sampling grid: a piece is 0.8 of half a side
        # from the middle.
        placed = _matrices((zoom, zero, -1.6 * angle.cos()), (zero, zoom, -1.6 * angle.sin()))
        drawn = torch.maximum(drawn, 0.5 * _sampled(others, placed, side))
    return drawn


def _matrices(*rows: tuple[Tensor, ...]) -> Tensor:
    """A matrix for each image, of rows of its numbers."""
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


def _sampled(images: Tensor, transform: Tensor, side: int) -> Tensor:
    grid = F.affine_grid(transform, [len(images), 1, side, side], align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def _uniform(count: int, generator: torch.Generator) -> Tensor:
    return 2 * torch.rand(count, generator=generator) - 1


DIGITS = ImagePreprocessing(mean=(0.3,), std=(0.35,), classes=tuple("0123456789"))
STREETS = ImagePreprocessing(mean=(0.45,), std=(0.25,), classes=street_scenes.CLASSES)
BOXED_STREETS = STREETS.model_copy(
    update={"classes": tuple(street_scenes.CLASSES[kind] for kind in street_scenes.BOXED)}
)
MAPS = STREETS.model_copy(update={"classes": map_sheets.CLASSES})

# painting takes seconds, and each model of a kind is built with the same; batches are copies
_scenes, _boxed_scenes, _sheets = (
    lru_cache(maxsize=1)(paint)
    for paint in (street_scenes.scenes, street_scenes.boxed_scenes, map_sheets.sheets)
)


def digits(*, batch: int = 40, side: int = 32, seed: int = 0) -> tuple[Batches, Batches]:
    """1,797 handwritten digits as (train, test) batches: four fifths for training, stratified by
    digit.
    """
    small, classes, tests = _digits(seed)
    pixels = normalised(
        F.interpolate(small, size=(side, side), mode="bilinear", align_corners=False), DIGITS
    )
    return in_batches(pixels[~tests], classes[~tests], batch), in_batches(
        pixels[tests], classes[tests], batch
    )


def hard_digits(
    *, batch: int = 60, side: int = 16, copies: int = 4, seed: int = 0
) -> tuple[Batches, Batches]:
    """The same digits distorted (rotated, shifted, scaled, cluttered, noisy), each `copies` times,
    as (train, test) batches.
    """
    small, classes, tests = _digits(seed)
    generator = torch.Generator().manual_seed(seed)
    train, test = (
        in_batches(
            normalised(
                distorted(small[part], side=side, copies=copies, generator=generator), DIGITS
            ),
            classes[part].repeat_interleave(copies),
            batch,
        )
        for part in (~tests, tests)
    )
    return _shuffled(train, generator), test


def streets(
    *, train: int = 480, test: int = 120, batch: int = 24, side: int = 64, seed: int = 0
) -> tuple[Batches, Batches]:
    """Synthetic street scenes with a class for every pixel, as (train, test) batches;
    `streets.CLASSES` names the classes.

    Every training scene comes twice, the second time mirrored.
    """
    images, labels = _scenes(train + test, side=side, seed=seed)
    pixels, classes = normalised(torch.from_numpy(images), STREETS), torch.tensor(labels)
    train_pixels, train_classes = (
        torch.stack([part[:train], part[:train].flip(-1)], dim=1).flatten(0, 1)
        for part in (pixels, classes)
    )
    return in_batches(train_pixels, train_classes, batch), in_batches(
        pixels[train:], classes[train:], batch
    )


def boxed_streets(
    *, train: int = 960, test: int = 160, batch: int = 16, side: int = 96, seed: int = 0
) -> tuple[Batches, Batches]:
    """Synthetic street scenes with the boxes of cars and pedestrians, as (train, test) batches;
    `streets.boxed_scenes` says what a box is.

    Every training scene comes twice, the second time mirrored.
    """
    images, boxes = _boxed_scenes(train + test, side=side, seed=seed)
    pixels, targets = normalised(torch.from_numpy(images), STREETS), torch.tensor(boxes)
    kind, left, top, right, bottom = targets[:train].unbind(-1)
    mirrored = torch.stack([kind, 1 - right, top, 1 - left, bottom], dim=-1)
    train_pixels = torch.stack([pixels[:train], pixels[:train].flip(-1)], dim=1).flatten(0, 1)
    train_targets = torch.stack([targets[:train], mirrored], dim=1).flatten(0, 1)
    return in_batches(train_pixels, train_targets, batch), in_batches(
        pixels[train:], targets[train:], batch
    )


def maps(
    *, train: int = 64, test: int = 32, batch: int = 8, side: int = 128, seed: int = 0
) -> tuple[Batches, Batches]:
    """Synthetic maps with a class for every pixel, to be read from the map's legend, as (train,
    test) batches.
    """
    images, labels = _sheets(train + test, side=side, seed=seed)
    pixels, classes = normalised(torch.from_numpy(images), MAPS), torch.tensor(labels)
    return in_batches(pixels[:train], classes[:train], batch), in_batches(
        pixels[train:], classes[train:], batch
    )


def normalised(images: torch.Tensor, by: ImagePreprocessing) -> torch.Tensor:
    """Images of 0 to 1 as the models that learn from them take them."""
    (mean,), (std,) = by.mean, by.std
    return (images - mean) / std


def _digits(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The digits as images of 0 to 1, their classes, and a mask of the test examples: one in five,
    stratified by class.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    labels = bunch.target
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[by_class[::5]] = True
    small = torch.from_numpy(bunch.data).float().reshape(-1, 1, 8, 8) / 16
    return small, torch.from_numpy(labels).long(), torch.from_numpy(is_test)


def _shuffled(batches: Batches, generator: torch.Generator) -> Batches:
    """The examples in random order, so that the copies of one do not share a batch."""
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    order = torch.randperm(len(inputs), generator=generator)
    return in_batches(inputs[order], targets[order], len(batches[0][0]))


def in_batches(inputs: torch.Tensor, targets: torch.Tensor, batch: int) -> Batches:
    """Batches of equal size; a smaller last one is left out."""
    whole = len(inputs) - len(inputs) % batch
    return list(
        zip(torch.split(inputs[:whole], batch), torch.split(targets[:whole], batch), strict=True)
    )
