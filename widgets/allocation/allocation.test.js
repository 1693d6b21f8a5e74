import assert from "node:assert/strict";
import { test } from "node:test";
import {
  allocationDots,
  allocationFrame,
  cardSpot,
  lineNames,
  lossLimitText,
  steppedPath,
  uniformNames,
} from "./layout.js";
import { pointRows } from "./prediction.js";
import {
  amountText,
  formatWords,
  layerCount,
  lostQuantity,
  pointFigures,
  shownPoint,
  standingWords,
  unpackedAllocation,
} from "./table.js";
import { errorText } from "../shared/prediction_table.js";
import { overlap } from "../shared/label_space.js";

const floats = (/** @type {number[]} */ ...values) =>
  new DataView(Float32Array.from(values).buffer);
const packed = {
  title: "net on a machine",
  remarks: ["the best", "noted"],
  unit: "loss",
  axis: "latency_ms",
  limits: { latency_ms: 3 },
  baseline_ms: 4,
  baseline_bytes: 4e7,
  frontier: 3,
  planned: 1,
  name: ["point 1", "point 2", "point 3", "all int8", "all fp32"],
  around: ["fp32", "bf16", "fp32", "fp32", "fp32"],
  counts: [{ int8: 3 }, { int8: 2, fp32: 1 }, { fp32: 3 }, { int8: 3 }, { fp32: 3 }],
  numbers: {
    x: floats(2, 3, 4, 2.1, 4),
    loss: floats(0.1, 1e-3, 0, 0.2, 0),
    loss_error: floats(0.05, 1e-4, 0, 0.1, 0),
    latency_ms: floats(2, 3, 4, 2.1, 4),
    size_bytes: floats(1e7, 2e7, 4e7, 1e7, 4e7),
    achieved_x: floats(NaN, 3.2, NaN, NaN, NaN),
    achieved_loss: floats(NaN, -1e-4, NaN, NaN, NaN),
    achieved_loss_error: floats(NaN, 2e-4, NaN, NaN, NaN),
    achieved_latency_ms: floats(NaN, 4, NaN, 3, NaN),
    achieved_baseline_ms: floats(NaN, 5, NaN, 5, NaN),
    achieved_size_bytes: floats(NaN, 2e7, NaN, 1e7, NaN),
    achieved_metric: floats(NaN, 0.98761, NaN, NaN, NaN),
  },
};
const table = unpackedAllocation(packed);
const [first, planned, , allInt8] = table.points;

test("a fresh plan shows the point that was asked for, until another is chosen", () => {
  assert.deepEqual(
    [shownPoint(table, -1)?.name, shownPoint(table, 0)?.name],
    ["point 2", "point 1"],
  );
  assert.equal(shownPoint(unpackedAllocation({}), -1), undefined);
  assert.deepEqual(
    [standingWords(planned, false), standingWords(planned, true)],
    ["best for what was asked", "chosen, and best for what was asked"],
  );
  assert.deepEqual([standingWords(first, false), standingWords(first, true)], ["", "chosen"]);
});

test("a packed allocation is unpacked; an unknown one has no points", () => {
  assert.deepEqual(
    [table.isKnown, unpackedAllocation({}).isKnown, unpackedAllocation(undefined).points],
    [true, false, []],
  );
  assert.deepEqual(
    table.points.map((point) => point.isUniform),
    [false, false, false, true, true],
  );
  assert.deepEqual(
    table.points.map((point) => point.isPlanned),
    [false, true, false, false, false],
  );
  assert.deepEqual([table.reason, table.notes], ["the best", ["noted"]]);
  assert.equal(first.achieved, null);
  assert.equal(allInt8.achieved?.latencyMs, 3);
});

test("a point shows predicted and achieved figures, and no unknown ones", () => {
  assert.deepEqual(pointFigures(table, planned), [
    ["3 ms", "predicted"],
    ["3.2 ms", "achieved"],
    ["1.33 ×", "speed-up, predicted"],
    ["1.25 ×", "speed-up, achieved"],
    ["1e-3 ± 1e-4", "rise of the loss, predicted"],
    ["−1e-4 ± 2e-4", "rise of the loss, achieved"],
    ["20 MB", "size, the baseline 40 MB"],
    ["0.9876", "metric, achieved"],
  ]);
  assert.deepEqual(
    pointFigures(table, table.points[4]).map(([value]) => value),
    ["4 ms", "1.00 ×", "0", "40 MB"],
  );
  assert.deepEqual(
    pointFigures(table, allInt8).filter(([, name]) => name.includes("achieved")).length,
    2,
    "a loss that was not measured is not shown",
  );
});

test("rows have predicted and achieved values, with the error of the prediction", () => {
  const rows = pointRows(table, planned);
  assert.deepEqual(
    rows.map((row) => row.name),
    ["latency", "speed-up", "rise of the loss", "size", "metric"],
  );
  assert.deepEqual(
    rows.map((row) => row.predicted),
    ["3 ms", "1.33 ×", "1e-3 ± 1e-4", "20 MB", ""],
  );
  assert.deepEqual(
    rows.map((row) => row.achieved),
    ["3.2 ms", "1.25 ×", "−1e-4 ± 2e-4", "20 MB", "0.9876"],
    "4 of 5 ms are 3.2 of the plan's 4",
  );
  assert.deepEqual(
    rows.map((row) => row.error),
    ["+6.7%", "−6.3%", "−1.1e-3", "0%", ""],
  );
  assert.ok(pointRows(table, first).every((row) => !row.achieved && !row.error));
  assert.equal(
    pointRows(table, allInt8)[2].achieved,
    "",
    "a loss that was not measured is not shown",
  );
  assert.deepEqual([1, 1.0004, 0.9, 1.5, NaN, Infinity].map(errorText), [
    "0%",
    "0%",
    "−10%",
    "+50%",
    "",
    "",
  ]);
});

test("formats are counted in words", () => {
  assert.deepEqual(
    [formatWords(first), formatWords(planned)],
    ["3 in int8", "2 in int8, 1 in fp32, bf16 between them"],
  );
  assert.deepEqual([layerCount(1), layerCount(2)], ["1 layer", "2 layers"]);
  const bySize = { ...table, axis: "size_bytes", unit: "output error" };
  assert.deepEqual(
    [amountText(table, 2.5), amountText(bySize, 2.5e7), lostQuantity(bySize)],
    ["2.5 ms", "25 MB", "error of the output"],
  );
});

test("marks lie inside the drawing, lower losses lower, losses of zero or less in the band", () => {
  for (const width of [260, 700, 1400]) {
    const frame = allocationFrame(width, table);
    const dots = allocationDots(table, frame);
    for (const dot of dots)
      assert.ok(
        dot.x > frame.left && dot.x < frame.right && dot.y > frame.top && dot.y < frame.bottom,
      );
    assert.deepEqual(
      dots.map((dot) => dot.y > frame.floorY),
      [false, false, true, false, true, true],
    );
    assert.ok(dots[3].y < dots[0].y && dots[0].y < dots[1].y && dots[1].y < frame.floorY);
    assert.deepEqual(
      dots.filter((dot) => dot.isAchieved).map((dot) => dot.index),
      [1],
    );
    assert.equal(frame.bandText, "≤ 0");
    assert.ok(frame.ticksX.length > 0 && frame.ticksY.length > 0);
  }
});

test("the frontier is a line of steps over its own points", () => {
  const dots = allocationDots(table, allocationFrame(700, table));
  const [first, second, third] = dots.map((dot) => ({ x: dot.x.toFixed(1), y: dot.y.toFixed(1) }));
  assert.equal(
    steppedPath(dots),
    `M${first.x} ${first.y}H${second.x}V${second.y}H${third.x}V${third.y}`,
  );
  assert.equal(steppedPath(dots.slice(0, 1)).includes("H"), false);
});

test("a limit near the points is drawn, one far from every point is not", () => {
  const limits = (/** @type {Record<string, number>} */ known) =>
    allocationFrame(700, { ...table, limits: known });
  const near = limits({ latency_ms: 3 });
  assert.ok(near.limitX === near.x(3) && near.limitY === null);
  assert.equal(
    limits({ latency_ms: 4.4 }).limitX,
    limits({ latency_ms: 4.4 }).x(4.4),
    "the axis is extended a little for it",
  );
  assert.equal(limits({ latency_ms: 40 }).limitX, null);
  const some = limits({ loss: 0.01 });
  assert.equal(some.limitY, some.y(0.01));
  assert.equal(
    limits({ loss: 0 }).limitY,
    limits({}).floorY,
    "a limit of zero: all but the band is beyond it",
  );
  assert.equal(limits({ loss: 50 }).limitY, null);
  assert.equal(lossLimitText({ ...table, limits: { loss: 0.01 } }), "at most 0.01");
});

test("losses below the scale are in the band, and its label says so", () => {
  const points = table.points.map((point) => ({
    ...point,
    loss: point.loss * (point.index === 1 ? 1e-9 : 1),
  }));
  const frame = allocationFrame(700, { ...table, points });
  assert.match(frame.bandText, /^< \d/);
  assert.ok(frame.y(1e-12) > frame.floorY);
});

test("one point that loses nothing is still drawn", () => {
  const alone = { ...table, limits: {}, points: [{ ...table.points[2], index: 0, x: 4 }] };
  const frame = allocationFrame(500, alone);
  const [dot] = allocationDots(alone, frame);
  assert.ok(
    dot.x > frame.left && dot.x < frame.right && dot.y > frame.floorY && dot.y < frame.bottom,
  );
});

test("names over the lines do not overlap, nor do those of uniform choices", () => {
  for (const limit of [3.9, 4, 4.1]) {
    const near = { ...table, limits: { latency_ms: limit, loss: 0.15 } };
    const frame = allocationFrame(320, near);
    const [left, right] = lineNames(near, frame);
    assert.ok(
      left.start >= frame.left - 1 &&
        left.start + left.width < right.start &&
        right.start + right.width <= frame.width,
    );
    const names = uniformNames(near, frame, allocationDots(near, frame));
    assert.deepEqual(
      names.map((name) => name.text),
      ["all int8", "all fp32"],
    );
    assert.equal(overlap(names[0].box, names[1].box), false);
  }
});

test("a card is placed beside both marks of its point", () => {
  const frame = allocationFrame(1000, table);
  const dots = allocationDots(table, frame);
  assert.equal(cardSpot(dots, 1, 1000).x, dots[5].x);
  assert.equal(
    cardSpot(dots, 1, dots[5].x + 100).x,
    dots[1].x,
    "without room at the right it goes to the left of both",
  );
  assert.ok(cardSpot(dots, 0, 1000).y < dots[0].y);
});
