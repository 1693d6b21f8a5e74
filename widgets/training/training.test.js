import assert from "node:assert/strict";
import { test } from "node:test";

import {
  BAR_WIDTH,
  bandsOf,
  barsOf,
  cellsOf,
  countsOf,
  HEAT_HEIGHT,
  heatStep,
  indexOfStep,
  pathOf,
  rangeOf,
  rangeWords,
  sizeY,
  unpackedTraining,
} from "./layout.js";

const view = (/** @type {ArrayLike<number>} */ values, Kind = Float32Array) =>
  new DataView(new Kind(values).buffer);
const RANGES = [
  [
    [1, 2, 0, 1],
    [4, 0, 0, 0],
  ],
  [
    [0, 0, 4, 0],
    [3, 0, 0, 1],
  ],
];
const DATA = {
  title: "net",
  facts: [],
  notes: [],
  precision: "bf16",
  is_running: false,
  done: 4,
  steps: 8,
  every: 1,
  columns: {
    loss: view([4, NaN, 2, 1]),
    rate: view([0.1, 0.2, 0.2, 0.1]),
    norm: view([1, 1, 1, 1]),
    scale: view([1, 1, 1, 1]),
    underflow: view([0, 0, 0, 0]),
    ms: view([5, 5, 5, 5]),
  },
  lower: [[2, 4]],
  skipped: [1],
  events: [{ step: 2, what: "bf16 from here" }],
  epochs: [],
  ranks_title: "2 ranks",
  ranks: [
    { cells: { rank: "0" }, computed: 3, waited: 1 },
    { cells: { rank: "1" }, computed: 1, waited: 1 },
  ],
  layers: ["a", "b"],
  dead: [],
  range_steps: view([0, 2], Int32Array),
  ranges: view(RANGES.flat(2), Int32Array),
  lowest_exponent: -40,
  bin_width: 2,
};

test("nothing is drawn before the first step", () => {
  assert.equal(unpackedTraining({}), null);
  assert.equal(unpackedTraining({ ...DATA, done: 0 }), null);
});

test("the loss scale has a band only where the loss is scaled", () => {
  const names = (/** @type {any} */ data) => unpackedTraining(data)?.curves.map(({ name }) => name);
  assert.deepEqual(names(DATA), ["loss", "learning rate", "gradient norm", "ms a step"]);
  const scaled = { ...DATA, columns: { ...DATA.columns, scale: view([1, 2, 2, 2]) } };
  assert.equal(names(scaled)?.[3], "loss scale");
});

test("a curve is broken at a step whose loss is not known and stays inside its band", () => {
  const training = unpackedTraining(DATA);
  assert.ok(training);
  for (const width of [320, 900, 1600]) {
    const { bands, height } = bandsOf(width, training);
    assert.equal(pathOf(bands[0], 1).match(/M/g)?.length, 2);
    assert.ok(bands.every((band) => band.bottom <= height && band.right <= width));
    for (const [, y] of pathOf(bands[0], 1).matchAll(/[ML][\d.]+ ([\d.]+)/g))
      assert.ok(Number(y) >= bands[0].top && Number(y) <= bands[0].bottom);
  }
});

test("a training that runs leaves room for the steps to come", () => {
  const ends = [false, true].map((isRunning) => {
    const training = unpackedTraining({ ...DATA, is_running: isRunning });
    assert.ok(training);
    const { bands } = bandsOf(800, training);
    return bands[0].x(3) / bands[0].right;
  });
  assert.equal(ends[0], 1);
  assert.ok(ends[1] < 0.6);
});

test("one step far above the others does not flatten the curve", () => {
  const values = new Float32Array(1000).fill(1);
  values[7] = 1e6;
  assert.ok(rangeOf({ name: "loss", values, isLog: false })[1] < 2);
  assert.deepEqual(rangeOf({ name: "x", values: new Float32Array([NaN]), isLog: true }), [1, 10]);
});

test("sizes are those of one layer or of all", () => {
  const training = unpackedTraining(DATA);
  assert.ok(training);
  assert.deepEqual(countsOf(training, 0), [
    [1, 2, 0, 1],
    [0, 0, 4, 0],
  ]);
  assert.deepEqual(countsOf(training, -1)[0], [5, 2, 0, 1]);
  assert.equal(rangeWords(training, 0), "sizes from 2^-38 to 2^-36, 0% zero");
  assert.equal(rangeWords(training, 1), "sizes from 2^-36 to 2^-34, 75% zero");
});

test("each cell has a place inside the map, and larger sizes are higher", () => {
  const training = unpackedTraining(DATA);
  assert.ok(training);
  const cells = cellsOf(training, 0, (step) => 10 * step);
  assert.deepEqual(
    cells.map((cell) => [cell.step, cell.bin, cell.share]),
    [
      [0, 0, 0.5],
      [0, 2, 0.25],
      [2, 1, 1],
    ],
  );
  assert.ok(cells[1].y < cells[0].y);
  assert.ok(cells.every((cell) => cell.y >= -1e-9 && cell.y + cell.height <= HEAT_HEIGHT + 1e-9));
  assert.equal(cells[0].width, 20);
  assert.ok(sizeY(training, -40) === HEAT_HEIGHT);
});

test("a share's colour deepens by thirds", () => {
  assert.deepEqual([1, 0.5, 0.1, 1e-9].map(heatStep), [8, 8, 6, 0]);
});

test("each rank has a bar, on the scale of the longest", () => {
  const bars = barsOf(unpackedTraining(DATA)?.ranks ?? []);
  assert.deepEqual(bars[0], { computed: (BAR_WIDTH * 3) / 4, waited: BAR_WIDTH / 4 });
  assert.deepEqual(bars[1], { computed: BAR_WIDTH / 4, waited: BAR_WIDTH / 4 });
  assert.deepEqual(barsOf([{ cells: {}, computed: 0, waited: 0 }]), [{ computed: 0, waited: 0 }]);
});

test("a step is found in thinned curves", () => {
  const training = unpackedTraining({ ...DATA, every: 3, done: 12 });
  assert.ok(training);
  assert.deepEqual(
    [0, 4, 99].map((step) => indexOfStep(training, step)),
    [0, 1, 3],
  );
});
