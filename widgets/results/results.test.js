import assert from "node:assert/strict";
import { test } from "node:test";
import { marksAfter, marksWith } from "./marks.js";

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
