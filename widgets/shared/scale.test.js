import assert from "node:assert/strict";
import { test } from "node:test";

import { linearScale, logScale } from "./scale.js";

test("a linear scale meets its ends and its middle", () => {
  const scale = linearScale(0, 10, 100, 200);
  assert.deepEqual([0, 5, 10].map(scale), [100, 150, 200]);
});

test("a linear scale over nothing stays finite", () => {
  assert.ok(Number.isFinite(linearScale(3, 3, 0, 10)(3)));
});

test("a logarithmic scale makes equal ratios equal distances", () => {
  const scale = logScale(1, 100, 0, 20);
  assert.ok(Math.abs(scale(10) - 10) < 1e-9);
  assert.ok(Math.abs(scale(20) - scale(10) - (scale(2) - scale(1))) < 1e-9);
  assert.equal(scale(0), 0);
  assert.equal(scale(-3), 0);
});
