import assert from "node:assert/strict";
import { test } from "node:test";
import { limitAfterKey, limitPlace, memoryLimit } from "./memory_limit.js";

test("the views of a model share one limit, those of another model have their own", () => {
  const [model, other] = [{}, {}];
  const limit = memoryLimit(model);
  assert.equal(memoryLimit(model), limit);
  assert.notEqual(memoryLimit(other), limit);
  const heard = /** @type {boolean[]} */ ([]);
  const release = memoryLimit(model).watch((isDone) => void heard.push(isDone));
  limit.set(5, false);
  limit.set(5, false);
  limit.set(5, true);
  assert.deepEqual(heard, [false, true], "the same limit is told again only when it is let go");
  release();
  limit.set(6, true);
  assert.equal(heard.length, 2);
  assert.equal(memoryLimit(other).bytes, null);
});

test("a limit stands between two sizes or at the nearer end", () => {
  assert.deepEqual(limitPlace(50, 0, 100), { share: 0.5, isAbove: false, isBelow: false });
  assert.deepEqual(limitPlace(500, 0, 100), { share: 1, isAbove: true, isBelow: false });
  assert.deepEqual(limitPlace(5, 10, 100), { share: 0, isAbove: false, isBelow: true });
});

test("arrows move the limit by a hundredth, pages by a tenth, and never out of the chart", () => {
  assert.equal(limitAfterKey("ArrowUp", 500, 0, 1000), 510);
  assert.equal(limitAfterKey("ArrowLeft", 500, 0, 1000), 490);
  assert.equal(limitAfterKey("PageDown", 500, 0, 1000), 400);
  assert.equal(limitAfterKey("PageUp", 990, 0, 1000), 1000);
  assert.equal(limitAfterKey("ArrowDown", 8000, 0, 1000), 990, "from beyond it comes in sight");
  assert.equal(limitAfterKey("Home", 500, 0, 1000), 1);
  assert.equal(limitAfterKey("End", 500, 20, 1000), 1000);
  assert.equal(limitAfterKey("a", 500, 0, 1000), null);
});
