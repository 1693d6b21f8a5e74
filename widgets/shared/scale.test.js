import assert from "node:assert/strict";
import { test } from "node:test";

import { linearScale, linearTicks, logScale, logTicks, roundedText, tickText } from "./scale.js";

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

test("linear ticks are round, inside, and no more than asked for and one", () => {
  assert.deepEqual(linearTicks(0, 63, 4), [0, 20, 40, 60]);
  assert.deepEqual(linearTicks(0, 0.3, 3), [0, 0.1, 0.2, 0.3]);
  assert.deepEqual(linearTicks(5, 5, 3), [5]);
  for (const high of [0.0123, 0.9, 7, 99, 12345]) {
    const ticks = linearTicks(0, high, 5);
    assert.ok(ticks.length >= 2 && ticks.length <= 6, `${high}: ${ticks}`);
    assert.ok(ticks.every((tick) => tick >= 0 && tick <= high * (1 + 1e-9)));
  }
});

test("logarithmic ticks are powers of ten if there are many, with 2 and 5 if there are few", () => {
  assert.deepEqual(logTicks(0.9, 30, 6), [1, 2, 5, 10, 20]);
  assert.deepEqual(logTicks(0.05, 2000, 5), [0.1, 1, 10, 100, 1000]);
  assert.deepEqual(logTicks(1e-6, 1e6, 5), [1e-6, 1e-3, 1, 1e3, 1e6]);
});

test("figures are written without an exponent", () => {
  assert.equal(tickText(0.01), "0.01");
  assert.equal(tickText(10000), "10,000");
  assert.equal(roundedText(1234), "1,230");
  assert.equal(roundedText(0.05678), "0.0568");
});
