import assert from "node:assert/strict";
import { test } from "node:test";

import {
  barScale,
  changeText,
  marksAfter,
  marksWith,
  pairFigures,
  pointsText,
  toneOf,
  worthText,
} from "./rows.js";

const row = (number, ms, worth, more = {}) => ({
  number,
  ms,
  ms_text: String(ms),
  metric: worth,
  error: 0,
  likely: [ms * 0.9, ms * 1.1],
  tone: "good",
  failure: "",
  size: 1e6,
  peak: 2e6,
  ...more,
});
const DATA = {
  metric: "accuracy",
  current: 2,
  rows: [
    row(0, 10, 0.9),
    row(1, 5, 0.9),
    row(2, 2, 0.8),
    row(3, null, null, { failure: "no" }),
    row(4, 1, 0.1, { refused: "too much was lost" }),
  ],
};

test("A is marked, then B; a third takes the place of B, and a marked one is unmarked", () => {
  assert.deepEqual(marksAfter([], 4), [4]);
  assert.deepEqual(marksAfter([4], 2), [4, 2]);
  assert.deepEqual(marksAfter([4, 2], 7), [4, 7]);
  assert.deepEqual(marksAfter([4, 2], 4), [2]);
});

test("marks follow the pair that is compared, and go when it was unmarked elsewhere", () => {
  const pair = /** @type {any} */ ({ first: 4, second: 2 });
  assert.deepEqual(marksWith([], pair, false), [4, 2]);
  assert.deepEqual(marksWith([4, 2], null, false), []);
  assert.deepEqual(marksWith([4, 2], null, true), [4, 2], "it is on its way to Python");
  assert.deepEqual(marksWith([4, 7], pair, true), [4, 7]);
  assert.deepEqual(marksWith([4], null, false), [4]);
  assert.deepEqual(marksWith([4], pair, false), [4]);
});

test("a row has its verdict's tone, and the unchanged model its own", () => {
  assert.equal(toneOf(row(1, 5, 0.9)), "good");
  assert.equal(toneOf(row(1, 5, 0.9, { tone: "untold" })), "untold");
  assert.equal(toneOf(row(1, 5, 0.9, { tone: "even" })), "even");
  assert.equal(toneOf(row(0, 5, 0.9)), "before");
});

test("every bar and likely range is on the scale", () => {
  const scale = barScale(DATA.rows);
  assert.equal(scale(0), 0);
  assert.ok(Math.abs(scale(11) - 1) < 1e-9);
  assert.ok(Number.isFinite(barScale([row(0, null, null, { likely: null })])(1)));
});

test("changes are signed, and nothing is said where there is none", () => {
  assert.equal(changeText(100, 18), "−82 %");
  assert.equal(changeText(100, 130), "+30 %");
  assert.equal(changeText(100, 100), "");
  assert.equal(changeText(null, 100), "");
  assert.equal(pointsText(0.987, 0.984), "−0.3");
  assert.equal(pointsText(0.9, 0.9), "");
});

test("two rows are shown with what B changes", () => {
  const [, first, second] = DATA.rows;
  assert.equal(pairFigures(first, first, "accuracy").sizeChange, "");
  const figures = pairFigures({ ...second, size: 5e5 }, first, "accuracy");
  assert.deepEqual(
    [figures.latency, figures.worth, figures.worthChange, figures.sizeChange],
    ["2 ms", "80 %", "−10", "−50 %"],
  );
  assert.equal(worthText(row(1, 5, 1, { error: 3e-6 }), false), "3e−6");
});
