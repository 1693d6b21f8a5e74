import assert from "node:assert/strict";
import { test } from "node:test";

import {
  bestBatch,
  curvePanels,
  nearestBatch,
  readableRate,
  rowsThatRan,
  shownBatches,
} from "./layout.js";

const ROWS = [1, 2, 4, 8].map((batch) => ({
  batch,
  latency_ms: 10 * batch,
  throughput_per_s: 50 + batch,
  peak_bytes: 1e8 * batch,
  is_timed_in_turn: batch < 8,
}));
const SWEEP = {
  rows: [...ROWS, { batch: 16, failure: "over the limit", predicted_bytes: 1.6e9 }],
  knee: 4,
  plateau: 0.85,
  memory_limit_bytes: 1e9,
};

test("the best batch is looked for among those timed in turn", () => {
  assert.equal(bestBatch(ROWS).batch, 4);
  assert.equal(bestBatch(ROWS.map((row) => ({ ...row, is_timed_in_turn: false }))).batch, 8);
  assert.equal(bestBatch([]), undefined);
});

test("failed rows are not on the curve; the memory panel shows what they would have needed", () => {
  assert.equal(rowsThatRan(SWEEP.rows).length, 4);
  const [throughput, latency, memory] = curvePanels(1000, SWEEP).panels;
  assert.deepEqual(
    [throughput, latency, memory].map((panel) => panel.spots.length),
    [4, 4, 4],
  );
  assert.deepEqual(
    memory.refused.map((spot) => spot.batch),
    [16],
  );
});

test("every spot and the limit lie inside their panels, at each width", () => {
  for (const width of [360, 619, 620, 1240, 1600]) {
    const { height, panels } = curvePanels(width, SWEEP);
    for (const panel of panels) {
      assert.ok(panel.right <= width && panel.bottom <= height);
      for (const spot of [...panel.spots, ...panel.refused]) {
        assert.ok(
          spot.x >= panel.left &&
            spot.x <= panel.right &&
            spot.y >= panel.top &&
            spot.y <= panel.bottom,
        );
      }
    }
    const memory = panels[2];
    assert.ok(memory.y(1e9) > memory.top && memory.y(1e9) < memory.bottom);
  }
});

test("one batch alone can be drawn", () => {
  const [panel] = curvePanels(500, { ...SWEEP, rows: [ROWS[0]] }).panels;
  assert.ok(Number.isFinite(panel.spots[0].x) && Number.isFinite(panel.spots[0].y));
});

test("doublings stand equally far apart", () => {
  const xs = curvePanels(1000, SWEEP).panels[0].spots.map((spot) => spot.x);
  assert.ok(Math.abs(xs[1] - xs[0] - (xs[3] - xs[2])) < 1e-9);
  assert.equal(nearestBatch([{ x: 0 }, { x: 10 }, { x: 20 }], 14), 1);
});

test("powers of two are written, as many as have room", () => {
  assert.deepEqual(shownBatches([1, 2, 3, 4, 6, 8], 500), [1, 2, 4, 8]);
  assert.deepEqual(shownBatches([1, 2, 4, 8, 16, 32], 110), [1, 4, 16]);
  assert.deepEqual(shownBatches([3, 5], 300), [3, 5]);
});

test("rates are written like the record's", () => {
  assert.equal(readableRate(1234.5), "1,235");
  assert.equal(readableRate(9.876), "9.88");
});
