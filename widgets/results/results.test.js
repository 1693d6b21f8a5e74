import assert from "node:assert/strict";
import { test } from "node:test";

import {
  barScale,
  changeText,
  frontierPath,
  marksAfter,
  marksWith,
  pairFigures,
  pointsText,
  scatterLayout,
  toneOf,
  worthText,
} from "./rows.js";

const row = (number, ms, worth, more = {}) => ({
  number,
  ms,
  ms_text: String(ms),
  worth,
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
  frontier: [2, 1],
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

test("the scatter holds every row within its limit; faster is left, more accurate is up", () => {
  for (const width of [260, 400, 900]) {
    const { dots, edges } = scatterLayout(width, 250, DATA);
    assert.equal(dots.length, 3);
    for (const dot of dots) {
      assert.ok(dot.x > edges.left && dot.x < edges.right);
      assert.ok(dot.y >= edges.top && dot.y <= edges.bottom);
    }
    assert.ok(dots[2].x < dots[1].x && dots[1].x < dots[0].x && dots[2].y > dots[1].y);
  }
});

test("dots on one spot have labels beside each other", () => {
  const { dots } = scatterLayout(400, 250, { ...DATA, rows: [row(0, 10, 0.9), row(1, 10, 0.9)] });
  assert.notDeepEqual(dots[0].label, dots[1].label);
});

test("equal accuracies are on one line, without a scale of rounding errors", () => {
  const rows = [row(0, 10, 1), row(1, 5, 1 - 1e-9)];
  const { dots } = scatterLayout(400, 250, { ...DATA, rows });
  assert.ok(Math.abs(dots[0].y - dots[1].y) < 0.5);
});

test("the line goes from the fastest up along the rows that nothing beats", () => {
  const spots = [
    { x: 10, y: 90, row: row(2, 2, 0.8) },
    { x: 50, y: 20, row: row(1, 5, 0.9) },
  ];
  const edges = { right: 100, bottom: 120 };
  assert.equal(frontierPath(spots, [2, 1], edges), "M10.0 120H10.0V90.0H50.0V20.0H100");
  assert.equal(frontierPath(spots, [], edges), "");
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
