"""Boxes, a detector's loss and its mean average precision, against cases computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.zoo import boxes as room
from paifuser_lab.zoo import data, metrics, streets
from paifuser_lab.zoo.boxes import complete_iou, iou, suppressed
from paifuser_lab.zoo.yolo import DetectionLoss

edges = st.floats(0.0, 0.9)
sides = st.floats(0.01, 0.5)
boxes = st.tuples(edges, edges, sides, sides).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))

NOTHING = (-1.0, 0.0, 0.0, 0.0, 0.0)


def target(*rows: tuple[float, ...]) -> torch.Tensor:
    """One image's objects, padded to three."""
    return torch.tensor([[*rows, *([NOTHING] * (3 - len(rows)))]])


def wide(overlap: float) -> tuple[float, float, float, float]:
    """A box in the left upper quarter that covers this share of it."""
    return 0.0, 0.0, 0.5 * overlap, 0.5


def average(found: list[tuple[float, tuple[float, ...]]], objects: torch.Tensor) -> float:
    """The mAP of one image with these detections of class 0."""
    output = {
        "boxes": torch.tensor([[box for _, box in found]]),
        "scores": torch.tensor([[[score] for score, _ in found]]),
    }
    return metrics.mean_average_precision(lambda image: output, [(torch.zeros(1), objects)])


@settings(max_examples=60, deadline=None)
@given(boxes, boxes)
def test_overlap_is_symmetric_and_the_complete_one_is_never_more(one, other):
    a, b = torch.tensor(one), torch.tensor(other)
    assert iou(a, b).item() == pytest.approx(iou(b, a).item(), abs=1e-6)
    assert iou(a, a).item() == pytest.approx(1.0, abs=2e-3)
    assert complete_iou(a, b).item() <= iou(a, b).item() + 1e-6


def test_the_complete_overlap_is_that_computed_by_hand():
    """Sides 4 × 2 and 2 × 2 with a common 2 × 2; centres 1 apart in a hull of 4 × 2."""
    value = complete_iou(torch.tensor([0.0, 0, 4, 2]), torch.tensor([0.0, 0, 2, 2])).item()
    unlike = 4 / math.pi**2 * (math.atan(2.0) - math.atan(1.0)) ** 2
    share = unlike / (1 - 0.5 + unlike)
    assert value == pytest.approx(0.5 - 1 / 20 - share * unlike, abs=1e-5)


def test_boxes_that_do_not_overlap_have_a_gradient_towards_each_other():
    box = torch.tensor([0.0, 0.0, 0.2, 0.2], requires_grad=True)
    torch.autograd.backward(complete_iou(box, torch.tensor([0.6, 0.0, 0.8, 0.2])))
    assert box.grad is not None and box.grad[0] + box.grad[2] > 0
    assert (box.grad[1] + box.grad[3]).abs() < 1e-6


def test_of_overlapping_candidates_of_one_class_the_best_remains():
    candidates = torch.tensor([wide(1.0), wide(0.9), wide(0.5), (0.6, 0.6, 0.9, 0.9)])
    scores = torch.tensor([[0.5, 0.0], [0.8, 0.0], [0.4, 0.7], [0.0, 0.0]])
    kept, sure, kind = suppressed(candidates, scores)
    assert sure.tolist() == pytest.approx([0.8, 0.7, 0.4])
    assert kind.tolist() == [0, 1, 0]
    assert kept[0].tolist() == pytest.approx(wide(0.9))
    assert len(suppressed(candidates, scores, limit=2)[0]) == 2


def test_the_overlap_past_which_a_candidate_goes_is_that_given():
    two, scores = torch.tensor([wide(1.0), wide(0.75)]), torch.tensor([[0.9], [0.8]])
    assert len(suppressed(two, scores)[0]) == 1
    assert len(suppressed(two, scores, most_overlap=0.76)[0]) == 2


def test_candidates_past_a_block_are_compared_with_those_kept_before_it(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(200, 2, generator=generator)
    candidates = torch.cat([corner, corner + 0.3 * torch.rand(200, 2, generator=generator)], 1)
    scores = torch.rand(200, 2, generator=generator)
    whole = suppressed(candidates, scores, most_overlap=0.3, limit=1000)
    cut = suppressed(candidates, scores, most_overlap=0.3, limit=20)
    pairs = []

    def counted(some, others):
        pairs.append(len(some) * others.shape[1])
        return iou(some, others)

    monkeypatch.setattr(room, "BLOCK", 16)
    monkeypatch.setattr(room, "iou", counted)
    in_blocks = suppressed(candidates, scores, most_overlap=0.3, limit=1000)
    assert max(pairs) <= 16 * max(16, len(whole[0]))
    for one, other, limited in zip(whole, in_blocks, cut, strict=True):
        assert torch.equal(one, other) and torch.equal(one[:20], limited)
    limited = suppressed(candidates, scores, most_overlap=0.3, limit=20)
    assert torch.equal(limited[0], cut[0])


def test_nothing_above_the_least_score_gives_no_boxes():
    kept, sure, kind = suppressed(torch.rand(5, 4), torch.zeros(5, 2))
    assert kept.shape == (0, 4) and len(sure) == len(kind) == 0


def test_average_precision_is_that_of_the_case_computed_by_hand():
    """Right, wrong, right at overlaps up to 0.6; right, wrong, wrong up to 0.8; then all wrong."""
    objects = target((0, 0.0, 0.0, 0.5, 0.5), (0, 0.5, 0.5, 1.0, 1.0))
    found = [
        (0.9, wide(0.82)),
        (0.8, (0.6, 0.0, 0.9, 0.2)),
        (0.7, (0.5, 0.5, 1.0, 0.5 + 0.5 * 0.62)),
    ]
    to_06, to_08 = (51 * 1 + 50 * 2 / 3) / 101, 51 / 101
    assert average(found, objects) == pytest.approx((3 * to_06 + 4 * to_08) / 10, abs=1e-6)


def test_a_second_detection_of_one_object_is_wrong():
    objects = target((0, 0.0, 0.0, 0.5, 0.5), (0, 0.5, 0.5, 1.0, 1.0))
    right = (0.7, (0.5, 0.5, 1.0, 1.0))
    once = average([(0.9, wide(1.0)), right], objects)
    twice = average([(0.9, wide(1.0)), (0.8, wide(0.62)), right], objects)
    assert once == pytest.approx(1.0)
    assert twice == pytest.approx((51 + 50 * 2 / 3) / 101, abs=1e-6)


def test_a_class_that_does_not_occur_does_not_count_and_no_object_gives_zero():
    assert average([(0.9, wide(1.0))], target()) == 0.0
    assert average([(0.9, wide(1.0))], target((0, *wide(1.0)))) == pytest.approx(1.0)
    assert average([(0.9, wide(1.0))], target((1, *wide(1.0)))) == 0.0


def test_a_precision_that_rises_later_counts_from_the_beginning():
    objects = target((0, 0.5, 0.5, 1.0, 1.0))
    assert average([(0.9, wide(1.0)), (0.8, (0.5, 0.5, 1.0, 1.0))], objects) == pytest.approx(0.5)


def candidates_on(objects: torch.Tensor, score: float) -> dict[str, torch.Tensor]:
    """All candidates of a 64² image lie on the first object, with one score for its class."""
    count = 8 * 8 + 4 * 4 + 2 * 2
    scores = torch.full((1, count, 2), 1e-4)
    scores[0, :, int(objects[0, 0, 0])] = score
    return {"boxes": objects[:, :1, 1:].expand(1, count, 4).clone(), "scores": scores}


def test_the_loss_falls_with_a_better_box_a_surer_score_and_the_right_class():
    loss = DetectionLoss(side=64)
    objects = target((1, 0.25, 0.25, 0.75, 0.75))

    def of(shift: float, score: float, kind: float = 1.0) -> float:
        output = candidates_on(target((kind, 0.25, 0.25, 0.75, 0.75)), 1e-4)
        near = loss._is_near(objects[..., 1:])[0, 0].nonzero()[:7, 0]
        output["scores"][0, near, int(kind)] = score
        output["boxes"] = output["boxes"] + shift
        return loss(output, objects).item()

    assert of(0.0, 0.9) < of(0.05, 0.9) < of(0.1, 0.9)
    assert of(0.0, 0.9) < of(0.0, 0.5)
    assert of(0.0, 0.9) < of(0.0, 0.9, kind=0.0)


def test_padding_and_the_order_of_objects_do_not_change_the_loss():
    torch.manual_seed(0)
    loss = DetectionLoss(side=64)
    corners = torch.rand(1, 84, 4) * 0.4
    output = {
        "boxes": torch.cat([corners[..., :2], corners[..., :2] + corners[..., 2:]], -1),
        "scores": torch.rand(1, 84, 2),
    }
    first, second = (0, 0.1, 0.1, 0.4, 0.3), (1, 0.5, 0.5, 0.8, 0.9)
    value = loss(output, target(first, second))
    assert loss(output, target(second, first)).item() == pytest.approx(value.item())
    assert loss(output, target(first, second)[:, :2]).item() == pytest.approx(value.item())


def test_the_best_candidates_near_an_object_answer_for_it_and_the_best_by_its_overlap():
    torch.manual_seed(0)
    loss = DetectionLoss(side=64, per_object=3)
    objects = target((1, 0.3, 0.3, 0.8, 0.7), (-1, 0.3, 0.3, 0.8, 0.7))
    spread = 0.05 * torch.randn(1, 84, 4)
    candidates, scores = objects[:, :1, 1:] + spread, 0.2 + 0.6 * torch.rand(1, 84, 2)
    kind, edges = objects[..., 0].long(), objects[..., 1:]
    answers = loss._answers(candidates, scores, kind, edges)[0]
    chosen = answers[0].nonzero()[:, 0]
    assert len(chosen) == 3 and loss._is_near(edges)[0, 0][chosen].all()
    overlap = iou(candidates[0, chosen], edges[0, 0])
    assert answers[0].max().item() == pytest.approx(overlap.max().item())
    assert not answers[1:].any(), "padding asks for nothing"


def test_a_batch_twice_has_the_loss_of_it_once():
    torch.manual_seed(0)
    loss, objects = DetectionLoss(side=64, per_object=3), target((1, 0.25, 0.25, 0.75, 0.75))
    once = candidates_on(objects, 0.6)
    once["boxes"] = once["boxes"] + 0.02 * torch.randn(1, 84, 4)
    twice = {name: torch.cat([value, value]) for name, value in once.items()}
    assert loss(twice, torch.cat([objects, objects])).item() == pytest.approx(
        loss(once, objects).item()
    )


def test_a_scene_without_objects_asks_for_low_scores_alone():
    loss = DetectionLoss(side=64)
    low, high = (candidates_on(target((0, 0.2, 0.2, 0.4, 0.4)), score) for score in (0.01, 0.5))
    high["boxes"].requires_grad_()
    value = loss(high, target())
    torch.autograd.backward(value)
    assert loss(low, target()) < value
    assert high["boxes"].grad is not None and not high["boxes"].grad.any()


def test_every_object_has_candidates_even_one_between_all_centres():
    loss = DetectionLoss(side=64)
    small = torch.tensor([[[0.149, 0.149, 0.151, 0.151]]])
    assert loss._is_near(small).sum() >= 1


def test_boxes_close_around_what_is_seen_of_an_object():
    images, found = streets.boxed_scenes(12, side=64, seed=3)
    plain, labels = streets.scenes(12, side=64, seed=3)
    np.testing.assert_array_equal(images, plain)
    assert found.shape == (12, streets.MAX_OBJECTS, 5) and (found[..., 0] >= 0).sum() > 12
    for classes, rows in zip(labels, found, strict=True):
        for kind, *box in rows[rows[:, 0] >= 0]:
            left, top, right, bottom = (round(edge * 64) for edge in box)
            is_kind = classes == streets.BOXED[int(kind)]
            assert is_kind[top:bottom, left].any() and is_kind[top:bottom, right - 1].any()
            assert is_kind[top, left:right].any() and is_kind[bottom - 1, left:right].any()


def test_a_box_reaches_to_the_far_edge_of_its_last_pixel():
    canvas = streets._Canvas(np.random.default_rng(0), 32)
    canvas.objects[...] = 0
    canvas.objects[4:12, 8:16] = 1
    canvas.labels[4:12, 8:16] = streets.CAR
    kind, *box = streets._boxes(canvas)[0].tolist()
    assert streets.BOXED[int(kind)] == streets.CAR
    assert box == [8 / 32, 4 / 32, 16 / 32, 12 / 32]


def test_a_mirrored_scene_has_mirrored_boxes():
    train, _ = data.boxed_streets(train=4, test=2, batch=2, side=64)
    (images, found), *_ = train
    assert torch.equal(images[0].flip(-1), images[1])
    (_, left, top, right, bottom), (kind, *mirrored) = found[0, 0].tolist(), found[1, 0].tolist()
    assert kind in (0, 1) or not any(mirrored[1::2])
    assert mirrored == pytest.approx([1 - right, top, 1 - left, bottom])
