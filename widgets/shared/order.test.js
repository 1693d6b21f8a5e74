import assert from "node:assert/strict";
import { test } from "node:test";
import { isMatch, nextSorting, piecesOf, shownRows, sortedRows, wordsOf } from "./order.js";
import { endsOf } from "./tree.js";

const table = {
  layers: ["", "stem", "stem.conv", "stem.norm", "head"],
  kind: ["Net", "Sequential", "Conv2d", "BatchNorm2d", "Linear"],
  end: endsOf(Int32Array.from([-1, 0, 1, 1, 0])),
};
const ms = [NaN, 3, 9, 1, 3];

/** @param {{ closed?: Set<string>, query?: string, sorting?: import("./order.js").Sorting | null }} wish */
const shown = (wish) =>
  shownRows(table, { closed: new Set(), query: "", sorting: null, ...wish }, (row) => ms[row]);

test("a third click gives the tree back", () => {
  const first = nextSorting(null, "ms", true);
  const second = nextSorting(first, "ms", true);
  assert.deepEqual(
    [first, second, nextSorting(second, "ms", true)],
    [{ column: "ms", isDown: true }, { column: "ms", isDown: false }, null],
  );
  assert.deepEqual(nextSorting(first, "kind", false), { column: "kind", isDown: false });
});

test("unknown values come last in both directions, equal ones keep their order", () => {
  assert.deepEqual(
    sortedRows([0, 1, 2, 3, 4], (row) => ms[row], true),
    [2, 1, 4, 3, 0],
  );
  assert.deepEqual(
    sortedRows([0, 1, 2, 3, 4], (row) => ms[row], false),
    [3, 1, 4, 2, 0],
  );
});

test("names with numbers are sorted as people count", () => {
  const names = ["layer10", "layer2", ""];
  assert.deepEqual(
    sortedRows([0, 1, 2], (row) => names[row], false),
    [1, 0, 2],
  );
  assert.deepEqual(
    sortedRows([0, 1, 2], (row) => names[row], true),
    [0, 1, 2],
  );
});

test("each word of a filter has to stand in the path or in the kind", () => {
  assert.equal(isMatch("stem.conv", "Conv2d", wordsOf("STEM conv2d")), true);
  assert.equal(isMatch("stem.norm", "BatchNorm2d", wordsOf("stem conv")), false);
  assert.equal(isMatch("anything", "", wordsOf("  ")), true);
});

test("the tree is shown unless sorted or filtered, else a list without folded rows", () => {
  assert.deepEqual(shown({ closed: new Set(["stem"]) }), [0, 1, 4]);
  assert.deepEqual(shown({ closed: new Set(["stem"]), query: "stem." }), [2, 3]);
  assert.deepEqual(
    shown({ closed: new Set(["stem"]), sorting: { column: "ms", isDown: true } }),
    [2, 1, 4, 3, 0],
  );
  assert.deepEqual(shown({ query: "nowhere" }), []);
});

test("marks show what was found, with signs that mean something to patterns", () => {
  assert.deepEqual(piecesOf("a.b(c", ["("]), [
    { text: "a.b", isHit: false },
    { text: "(", isHit: true },
    { text: "c", isHit: false },
  ]);
  assert.deepEqual(piecesOf("Conv", wordsOf("conv")), [{ text: "Conv", isHit: true }]);
  assert.deepEqual(piecesOf("conv", []), [{ text: "conv", isHit: false }]);
});
