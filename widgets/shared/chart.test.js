import assert from "node:assert/strict";
import { test } from "node:test";

import { cardPlace, indexAfterKey, onWidth } from "./chart.js";
import { textWidth, withoutMiddle } from "./lettering.js";

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

test("what a chart was given while it was hidden is drawn once it is seen", () => {
  /** @type {(width: number) => void} */
  let resize = () => {};
  class Observer {
    /** @param {(entries: any[]) => void} tell */
    constructor(tell) {
      resize = (width) => tell([{ contentRect: { width } }]);
    }
    observe() {}
  }
  Object.assign(globalThis, {
    ResizeObserver: Observer,
    requestAnimationFrame: (/** @type {() => void} */ draw) => draw(),
    cancelAnimationFrame() {},
  });
  /** @type {number[]} */
  const drawn = [];
  onWidth(/** @type {any} */ ({}), (width) => drawn.push(width));
  for (const width of [300, 300, 0, 300]) resize(width);
  assert.deepEqual(drawn, [300, 300]);
});
