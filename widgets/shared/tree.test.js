import assert from "node:assert/strict";
import { test } from "node:test";
import { above, depthsOf, endsOf, isBranch, openRows, ownName } from "./tree.js";

// model ─ a ─ (b, c ─ d), e
const parent = Int32Array.from([-1, 0, 1, 1, 3, 0]);

test("depths and ends follow from the parents", () => {
  assert.deepEqual([...depthsOf(parent)], [0, 1, 2, 2, 3, 1]);
  assert.deepEqual([...endsOf(parent)], [6, 5, 3, 5, 5, 6]);
});

test("what is under a closed row is not shown", () => {
  const end = endsOf(parent);
  assert.deepEqual(
    openRows(end, () => false),
    [0, 1, 2, 3, 4, 5],
  );
  assert.deepEqual(
    openRows(end, (row) => row === 1),
    [0, 1, 5],
  );
  assert.deepEqual(
    openRows(end, (row) => row === 0),
    [0],
  );
  assert.deepEqual(
    openRows(endsOf(new Int32Array()), () => false),
    [],
  );
});

test("a row knows what is above it, and whether something is under it", () => {
  assert.deepEqual(above(parent, 4), [3, 1, 0]);
  assert.deepEqual(above(parent, 0), []);
  assert.equal(isBranch(endsOf(parent), 3), true);
  assert.equal(isBranch(endsOf(parent), 5), false);
});

test("a deep chain takes no stack", () => {
  const chain = Int32Array.from({ length: 5000 }, (_, row) => row - 1);
  assert.equal(endsOf(chain)[0], 5000);
  assert.equal(above(chain, 4999).length, 4999);
});

test("a layer's own name is what its path adds", () => {
  assert.equal(ownName("layer1.0.conv1", "layer1.0"), "conv1");
  assert.equal(ownName("layer2.0.downsample.0", "layer2"), "0.downsample.0");
  assert.equal(ownName("layer10", "layer1"), "layer10");
  assert.equal(ownName("conv1", ""), "conv1");
});
