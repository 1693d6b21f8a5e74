import assert from "node:assert/strict";
import { test } from "node:test";

import { cardPlace, indexAfterKey } from "./chart.js";
import { textWidth, withoutMiddle } from "./lettering.js";
import { clusters, leaderOf, overlap, LabelSpace } from "./label_space.js";

const INSIDE = { x: 0, y: 0, width: 600, height: 300 };

test("labels of dots in one place cover neither each other nor what was there", () => {
  const dots = Array.from({ length: 6 }, (_, index) => ({ x: 300 + index * 15, y: 150 }));
  const taken = [{ x: 260, y: 100, width: 140, height: 30 }];
  const room = new LabelSpace(INSIDE, taken, [], dots);
  const boxes = dots.map((dot) => room.place(110, 15, dot, 5)).filter((box) => box !== null);
  assert.ok(boxes.length >= 4);
  for (const box of boxes) {
    assert.ok(box.x >= 0 && box.x + box.width <= 600 && box.y >= 0 && box.y + box.height <= 300);
    assert.ok(!overlap(box, taken[0]));
    assert.ok(boxes.every((other) => other === box || !overlap(box, other)));
  }
});

test("a label that fits nowhere is left out", () => {
  const room = new LabelSpace({ x: 0, y: 0, width: 80, height: 40 }, [], [], []);
  assert.equal(room.place(200, 15, { x: 40, y: 20 }, 4), null);
});

test("dots that stand together share the name of the first", () => {
  const dots = [
    { x: 0, y: 0 },
    { x: 5, y: 0 },
    { x: 100, y: 0 },
    { x: 0, y: 6 },
  ];
  assert.deepEqual(clusters(dots, 12), [
    { index: 0, others: 2 },
    { index: 2, others: 0 },
  ]);
  assert.deepEqual(clusters([], 12), []);
});

test("a leader joins the rim of a dot and the border of its label unless they touch", () => {
  const box = { x: 50, y: -5, width: 40, height: 10 };
  assert.deepEqual(leaderOf(box, { x: 0, y: 0 }, 10), [
    { x: 10, y: 0 },
    { x: 50, y: 0 },
  ]);
  assert.equal(leaderOf(box, { x: 48, y: 0 }, 10), null);
});

test("a long name gives up its middle, by letters and not by halves of them", () => {
  const short = withoutMiddle("stages.0.layers.1.layer.1.convolution", 20);
  assert.equal([...short].length, 20);
  assert.ok(short.startsWith("stages") && short.endsWith("convolution") && short.includes("…"));
  assert.equal(withoutMiddle("conv1", 20), "conv1");
  assert.ok(!withoutMiddle("😀".repeat(30), 10).includes("\ufffd"));
});

test("wide letters are taken for wider", () => {
  assert.ok(textWidth("MMMM", 11) > textWidth("nnnn", 11));
  assert.ok(textWidth("nnnn", 11) > textWidth("iiii", 11));
  assert.ok(textWidth("層層", 11) > textWidth("nn", 11));
});

test("a card stays inside its box, on the side where there is room", () => {
  const box = { width: 300, height: 200 };
  const card = { width: 100, height: 80 };
  for (const spot of [
    { x: 0, y: 0 },
    { x: 299, y: 199 },
    { x: 150, y: 100 },
    { x: 150, y: 199 },
  ]) {
    const place = cardPlace(spot, card, box);
    assert.ok(
      place.x >= 0 &&
        place.x + card.width <= box.width &&
        place.y >= 0 &&
        place.y + card.height <= box.height,
    );
  }
  assert.ok(cardPlace({ x: 290, y: 100 }, card, box).x < 200);
});

test("keys lead through a list and no further than its ends", () => {
  assert.equal(indexAfterKey("ArrowRight", -1, 3), 0);
  assert.equal(indexAfterKey("ArrowDown", 2, 3), 2);
  assert.equal(indexAfterKey("ArrowLeft", 0, 3), 0);
  assert.equal(indexAfterKey("End", 0, 3), 2);
  assert.equal(indexAfterKey("Home", 2, 3), 0);
  assert.equal(indexAfterKey("x", 1, 3), 1);
  assert.equal(indexAfterKey("ArrowRight", -1, 0), -1);
});
