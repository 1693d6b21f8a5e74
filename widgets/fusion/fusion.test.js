import assert from "node:assert/strict";
import { test } from "node:test";
import { fusionChoice } from "./choice.js";
import { fusionColumns, leastPlaceWidth } from "./row.js";
import { fusionTable } from "./table.js";
import { Arrangement } from "../shared/arrangement.js";
import { fittingColumns } from "../shared/grid.js";
import { partedPath } from "../shared/tree.js";

/** @param {string[]} layers @param {any} [more] */
const place = (layers, more = {}) => ({
  layers,
  where: "",
  names: layers,
  pattern: "convolution + batch-norm",
  runs: "",
  is_fused: false,
  can_switch: true,
  can_gain: false,
  has_facts: true,
  ...more,
});
const packed = {
  title: "net: what runs as one",
  summary: "1 of 5 places run as one",
  places: [
    place(["stem.conv", "stem.norm", "stem.relu"], {
      pattern: "convolution + batch-norm + relu",
      runs: "oneDNN",
      is_fused: true,
      can_gain: true,
    }),
    place(["body.0.conv", "body.0.norm"], { runs: "oneDNN" }),
    place(["body.1.conv", "tail"], { pattern: "convolution + sum", can_switch: false }),
    place(["head"], { pattern: "linear", can_gain: true }),
    place(["body.2.conv", "body.2.norm"]),
  ],
  columns: [
    { name: "speed", width: 108, rank: 5, values: [2, 0.8, null, 2, 0.5], texts: [] },
    { name: "saved", width: 74, rank: 2, values: [], texts: [] },
    { name: "error", width: 66, rank: 1, values: [], texts: [] },
  ],
};
const table = fusionTable(packed);
/** @param {any} state @param {any[]} [requests] */
const modelOf = (state, requests = []) => ({
  get: (/** @type {string} */ name) => ({ state, requests, served: 0 })[name],
});

test("each of its layers leads to a place; an empty map has none", () => {
  assert.deepEqual([table.isKnown, fusionTable({}).isKnown], [true, false]);
  assert.deepEqual(fusionTable(undefined).places, []);
  assert.equal(table.placeOf.get("stem.relu"), "stem.conv");
});

test("a path is split before the parts that distinguish it", () => {
  assert.deepEqual(
    [partedPath("a.b.c.d", 2), partedPath("a", 2), partedPath("a.b.", 2)],
    [
      ["a.b.", "c.d"],
      ["", "a"],
      ["a.", "b."],
    ],
  );
});

const columnsOf = (/** @type {import("./table.js").FusionTable} */ shown) =>
  fusionColumns(
    shown,
    true,
    () => fusionChoice(modelOf(undefined), table),
    () => "",
  );

test("a filter finds layers, patterns and what runs; sorting puts unknown numbers last", () => {
  const shown = new Arrangement(fusionTable({}), () => columnsOf(table));
  shown.take(table);
  const found = (/** @type {string} */ query) => {
    shown.filter(query);
    return shown.rows;
  };
  assert.deepEqual(
    [found("stem"), found("RELU"), found("onednn"), found("body norm"), found("moon"), found("")],
    [[0], [0], [0, 1], [1, 4], [], [0, 1, 2, 3, 4]],
  );
  const sorted = (/** @type {string} */ name) => {
    shown.sort(name);
    return shown.rows;
  };
  assert.deepEqual(sorted("speed"), [0, 3, 1, 4, 2], "the largest first");
  assert.deepEqual(sorted("speed"), [4, 1, 0, 3, 2], "not timed is last in both directions");
  assert.deepEqual(sorted("layer"), [1, 2, 4, 3, 0]);
});

test("a table that lost the column it was sorted by is as the model is", () => {
  const shown = new Arrangement(fusionTable({}), () => columnsOf(shown.table));
  shown.take(table);
  shown.sort("runs");
  shown.take(fusionTable({ ...packed, places: [place(["head"]), place(["tail"])] }));
  assert.deepEqual([shown.sorting, shown.rows], [null, [0, 1]]);
});

test("narrow widths drop columns, the speed last; without a fused site `runs` is dropped", () => {
  const names = (/** @type {number} */ width, of = table) =>
    fittingColumns(columnsOf(of), width, leastPlaceWidth(width)).map((column) => column.name);
  const all = ["switch", "layer", "runs", "bars", "speed", "saved", "error"];
  assert.deepEqual(names(1400), all);
  assert.deepEqual(
    names(1400, fusionTable({ ...packed, places: [place(["head"])] })),
    all.filter((name) => name !== "runs"),
  );
  assert.deepEqual(names(420), ["switch", "layer", "speed"]);
  const counts = Array.from({ length: 100 }, (_, step) => names(300 + 10 * step).length);
  assert.deepEqual(
    counts,
    counts.toSorted((one, other) => one - other),
  );
});

test("fused sites are those that Python sent plus later requests; alone, those of the map", () => {
  assert.deepEqual([...fusionChoice(modelOf(undefined), table).on], ["stem.conv"]);
  const sent = { fused: { has_step: true, on: ["stem.conv"] } };
  assert.deepEqual([...fusionChoice(modelOf(sent), table).on], ["stem.conv"]);
  const asked = fusionChoice(
    modelOf(sent, [
      { id: 1, do: "fuse", place: "head", is_on: true },
      { id: 2, do: "fuse", place: "stem.conv", is_on: false },
    ]),
    table,
  );
  assert.deepEqual([[...asked.on], [...asked.asked]], [["head"], ["head", "stem.conv"]]);
  const all = fusionChoice(modelOf(sent, [{ id: 1, do: "fuse_all", is_on: true }]), table);
  assert.deepEqual([...all.on], ["stem.conv", "head"], "what would be slower is left apart");
  const none = fusionChoice(modelOf(sent, [{ id: 1, do: "fuse_all", is_on: false }]), table);
  assert.deepEqual([none.on.size, none.hasStep], [0, false]);
  assert.deepEqual(
    [
      ...fusionChoice(
        modelOf({ fused: { has_step: false, on: [] } }, [{ id: 1, do: "undo" }]),
        table,
      ).on,
    ],
    [],
  );
});
