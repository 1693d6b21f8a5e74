import assert from "node:assert/strict";
import { test } from "node:test";
import { barLength, layerColumns, longestNames, nameWidthIn, timeOf } from "../layers/columns.js";
import { costliest } from "../workbench/detail.js";
import { Arrangement } from "./arrangement.js";
import { fittingColumns, grownColumns } from "./grid.js";
import { numberAt, unpackedProfile } from "./unpack.js";

/** A view that begins at an odd place, as those of a message may. @param {ArrayBufferView} array */
function oddView(array) {
  const bytes = new Uint8Array(array.byteLength + 3);
  bytes.set(new Uint8Array(array.buffer), 3);
  return new DataView(bytes.buffer, 3);
}

const LAYER_COLUMNS = layerColumns(() => true, true);

const packed = {
  title: "net",
  workload: "net",
  layer: ["", "a", "a.x", "a.y", "b"],
  parent: oddView(Int32Array.from([-1, 0, 1, 1, 0])),
  kind: { names: ["Net", "Block", "Conv2d"], codes: oddView(Uint16Array.from([0, 1, 2, 2, 2])) },
  output: { names: [""], codes: oddView(Uint16Array.from([0, 0, 0, 0, 0])) },
  bound: { names: ["", "compute"], codes: oddView(Uint16Array.from([0, 0, 1, 1, 0])) },
  numbers: {
    self_ms: oddView(Float32Array.from([0, 0.5, 4, 2, NaN])),
    intensity: oddView(Float32Array.from([NaN, NaN, 8, 2, NaN])),
    gflops: oddView(Float32Array.from([NaN, NaN, 10, 20, NaN])),
  },
};

test("a packed profile is unpacked wherever its buffers begin", () => {
  const table = unpackedProfile(packed);
  assert.deepEqual(table.kind, ["Net", "Block", "Conv2d", "Conv2d", "Conv2d"]);
  assert.deepEqual([...table.depth], [0, 1, 2, 2, 1]);
  assert.equal(table.place.get("a.y"), 3);
  assert.equal(numberAt(table, "self_ms", 2), 4);
  assert.ok(Number.isNaN(numberAt(table, "self_ms", 4)));
  assert.ok(Number.isNaN(numberAt(table, "no such column", 0)));
});

test("the times before come with a profile, and a group shows the time of all its layers", () => {
  const before = {
    self_ms: oddView(Float32Array.from([0, 1, 8, 6, NaN])),
    total_ms: oddView(Float32Array.from([15, 15, 8, 6, NaN])),
  };
  const table = unpackedProfile({ ...packed, before, is_uncertain: true });
  assert.equal(table.isUncertain, true);
  assert.deepEqual(
    [timeOf(table, 1, true, true), timeOf(table, 1, false, true), timeOf(table, 2, true, false)],
    [15, 1, 4],
  );
  const plain = unpackedProfile(packed);
  assert.deepEqual([plain.before, plain.isUncertain], [null, false]);
  assert.ok(Number.isNaN(timeOf(plain, 2, false, true)));
  const names = (/** @type {boolean} */ hasBefore) =>
    layerColumns(() => true, hasBefore).map((column) => column.name);
  assert.deepEqual(
    names(true).filter((name) => !names(false).includes(name)),
    ["before", "faster"],
  );
});

test("a profile that is not there yet has no rows and says so", () => {
  for (const nothing of [{}, null, undefined])
    assert.equal(unpackedProfile(nothing).isKnown, false);
  assert.equal(unpackedProfile({ layer: [] }).isKnown, true);
  assert.deepEqual(unpackedProfile({}).layers, []);
});

test("what is folded, sorted and chosen outlives another profile", () => {
  const shown = new Arrangement(unpackedProfile({}), () => LAYER_COLUMNS);
  shown.take(unpackedProfile(packed));
  shown.choose("a.y");
  shown.sort("now");
  shown.take(unpackedProfile({ ...packed, layer: ["", "a", "a.y", "a.z", "b"] }));
  assert.equal(shown.chosen, "a.y");
  assert.equal(shown.cursor, 2);
  assert.deepEqual(shown.rows, [2, 3, 1, 0, 4]);
});

test("choosing what is folded away opens it; folding takes the choice along", () => {
  const shown = new Arrangement(unpackedProfile({}), () => LAYER_COLUMNS);
  shown.take(unpackedProfile(packed));
  shown.foldAll();
  assert.deepEqual(shown.rows, [0, 1, 4]);
  shown.choose("a.x");
  assert.deepEqual([shown.rows, shown.index], [[0, 1, 2, 3, 4], 2]);
  shown.fold(1);
  assert.equal(shown.chosen, "a");
  shown.choose("gone");
  assert.equal(shown.chosen, null);
});

test("the columns that matter least give way first", () => {
  const columns = [
    { name: "a", width: 50, rank: 1 },
    { name: "b", width: 50, rank: 3 },
    { name: "c", width: 50, rank: 2 },
  ];
  const names = (/** @type {number} */ width) =>
    fittingColumns(columns, width, 100)
      .map((one) => one.name)
      .join("");
  assert.deepEqual([names(250), names(249), names(150), names(100)], ["abc", "bc", "b", ""]);
  for (const width of [360, 700, 1240, 1600]) {
    const kept = fittingColumns(LAYER_COLUMNS, width, nameWidthIn(width));
    assert.ok(kept.some((one) => one.name === "now"));
    assert.ok(kept.reduce((sum, one) => sum + one.width, nameWidthIn(width)) <= width);
  }
});

test("what is left of the width goes to those that can use it, and the rest to the name", () => {
  const columns = [{ width: 0 }, { width: 50, most: 80 }, { width: 50 }, { width: 50, most: 90 }];
  const widths = (/** @type {number} */ left) =>
    grownColumns(columns, left).map(({ width }) => width);
  assert.deepEqual(
    [widths(0), widths(45), widths(500)],
    [
      [0, 50, 50, 50],
      [0, 80, 50, 65],
      [0, 80, 50, 90],
    ],
  );
});

test("long names have their room before bars have, up to half of the table", () => {
  assert.deepEqual(
    [nameWidthIn(565), nameWidthIn(565, 90), nameWidthIn(565, 230), nameWidthIn(565, 900)],
    [184, 184, 230, 283],
  );
  assert.deepEqual([nameWidthIn(565, 90, 60), nameWidthIn(565, 90, 150)], [110, 150]);
  const table = unpackedProfile({ ...packed, layer: ["", "a", "a.x", "a.a_long_name", "b"] });
  assert.deepEqual(longestNames(table, 2), [3, 2], "an indent is room too");
});

test("a bar is never longer than its cell, and shows that there is something", () => {
  assert.deepEqual(
    [barLength(0, 4), barLength(NaN, 4), barLength(1e-6, 4), barLength(9, 4), barLength(1, 0)],
    [0, 0, 0.01, 1, 0],
  );
});

test("the costliest layers come first", () => {
  const table = unpackedProfile(packed);
  assert.deepEqual(costliest(table, 2), [2, 3]);
});
