import assert from "node:assert/strict";
import { test } from "node:test";
import { movedBy } from "./grid_keys.js";
import { steppedBy } from "./roving_tabindex.js";
import { scrolledTo, windowOf } from "./row_window.js";

test("only what is to be seen is needed, with some to spare", () => {
  assert.deepEqual(windowOf(0, 440, 22, 2000, 8), { first: 0, last: 28 });
  assert.deepEqual(windowOf(22000, 440, 22, 2000, 8), { first: 992, last: 1028 });
  assert.deepEqual(windowOf(43560, 440, 22, 2000, 8), { first: 1972, last: 2000 });
});

test("a list that became shorter than where it was scrolled to needs nothing", () => {
  assert.deepEqual(windowOf(22000, 440, 22, 10, 8), { first: 10, last: 10 });
  assert.deepEqual(windowOf(0, 440, 22, 0), { first: 0, last: 0 });
});

test("scrolling to a row is as short as it can be", () => {
  assert.equal(scrolledTo(100, 440, 22, 10), 100);
  assert.equal(scrolledTo(100, 440, 22, 2), 44);
  assert.equal(scrolledTo(0, 440, 22, 30), 242);
});

test("keys move within the rows", () => {
  assert.equal(movedBy("ArrowDown", 4, 10, 5), 5);
  assert.equal(movedBy("ArrowDown", -1, 10, 5), 0);
  assert.equal(movedBy("ArrowUp", -1, 10, 5), 9);
  assert.equal(movedBy("ArrowUp", 0, 10, 5), 0);
  assert.equal(movedBy("PageDown", 7, 10, 5), 9);
  assert.equal(movedBy("End", 0, 10, 5), 9);
  assert.equal(movedBy("x", 0, 10, 5), null);
  assert.equal(movedBy("Home", 3, 0, 5), null);
});

test("arrows go round in a row of buttons", () => {
  assert.equal(steppedBy("ArrowRight", 2, 3), 0);
  assert.equal(steppedBy("ArrowLeft", 0, 3), 2);
  assert.equal(steppedBy("End", 0, 3), 2);
  assert.equal(steppedBy("Enter", 0, 3), null);
  assert.deepEqual([steppedBy("ArrowDown", 2, 3), steppedBy("ArrowDown", 2, 3, true)], [null, 0]);
  assert.equal(steppedBy("ArrowUp", 0, 3, true), 2);
  assert.equal(steppedBy("ArrowRight", -1, 3), null);
});
