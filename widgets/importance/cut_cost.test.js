import assert from "node:assert/strict";
import { test } from "node:test";
import { byLayer, unitsText, unpackedCoupling } from "../coupling/table.js";
import { removedShares } from "./cut_choice.js";
import { predicted, fullWidths, unpackedCutCost, widthsAfter } from "./cut_cost.js";
import { cutRows, forecastLine, shareChange } from "./cut_forecast.js";
import { unpackedImportance } from "./table.js";
import { isSameData } from "../shared/same_data.js";

const whole = (/** @type {number[]} */ ...values) => new DataView(Int32Array.from(values).buffer);
const exact = (/** @type {number[]} */ ...values) => new DataView(Float64Array.from(values).buffer);
const codes = (/** @type {number[]} */ ...values) => new DataView(Uint16Array.from(values).buffer);

// Two groups: `a` and `b` make 8 channels together, which `c` reads; `c` makes the answer.
const coupling = unpackedCoupling({
  title: "net",
  name: ["a", "c"],
  width: whole(8, 5),
  unit: whole(1, 64),
  pinned: { names: ["", "the answer"], codes: codes(0, 1) },
  count: whole(4, 1),
  layer: { names: ["a", "b", "c"], codes: codes(0, 1, 1, 2, 2) },
  parameter: { names: ["weight", "bias"], codes: codes(0, 0, 1, 0, 0) },
  kind: { names: ["rows", "columns"], codes: codes(0, 0, 0, 1, 0) },
});
const packedCost = {
  latency_ms: 10,
  other_parameters: 7,
  other_flops: 100,
  fixed: whole(0, 4),
  groups: { count: whole(1, 1), value: whole(0, 0) },
  places: { count: whole(1, 1), value: whole(1, 2) },
  times: exact(3),
  weights: { count: whole(2), value: whole(0, 1) },
  flops: exact(800),
  ms: exact(8),
  layers: { count: whole(1), value: whole(0) },
  stairs: {},
};
const cost = unpackedCutCost(packedCost, coupling);
const table = unpackedImportance({
  layer: ["a", "b"],
  channels: whole(8, 8),
  judged: whole(8, 8),
  is_answer: whole(0, 0),
  value: new DataView(Float32Array.from([1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1, 9, 9, 9, 9]).buffer),
  error: new DataView(new Float32Array(16).fill(NaN).buffer),
});

/** A model of traits, as a panel has one. @param {Record<string, any>} traits */
const modelOf = (traits) => ({
  get: (/** @type {string} */ name) => ({ requests: [], served: 0, ...traits })[name],
});

test("a packed coupling is groups with their members; what is not there yet has none", () => {
  assert.deepEqual(
    [coupling.isKnown, unpackedCoupling({}).isKnown, unpackedCoupling(undefined).groups],
    [true, false, []],
  );
  assert.deepEqual(
    coupling.groups.map((group) => group.members.length),
    [4, 1],
  );
  assert.deepEqual(coupling.groups[0].members[3], {
    layer: "c",
    parameter: "weight",
    kind: "columns",
  });
  assert.deepEqual(
    [...coupling.groupsMadeBy],
    [
      ["a", [0]],
      ["b", [0]],
      ["c", [1]],
    ],
    "what reads the channels does not make them",
  );
  assert.deepEqual(byLayer(coupling.groups[0].members), [
    ["a", ["weight"]],
    ["b", ["weight", "bias"]],
    ["c", ["weight"]],
  ]);
});

test("units are shown as channels, and as parts of several where they are", () => {
  assert.deepEqual(
    [
      unitsText(coupling.groups[0]),
      unitsText(coupling.groups[0], 3),
      unitsText(coupling.groups[1]),
    ],
    ["8 channels", "3 of 8 channels", "5 units of 64 channels"],
  );
});

// The same numbers as in tests/test_cut_cost.py, which also compares with Python on random cuts.
test("parameters, operations and time fall with the units that are kept", () => {
  assert.deepEqual(predicted(cost, [8, 5]), { parameters: 487, flops: 900, latencyMs: 10 });
  assert.deepEqual(predicted(cost, [4, 5]), { parameters: 151, flops: 500, latencyMs: 6 });
  assert.deepEqual(fullWidths(cost), [8, 5]);
});

test("measured stairs take the place of the proportion", () => {
  const stairs = unpackedCutCost(
    {
      ...packedCost,
      stairs: {
        0: [
          [1, 4],
          [4, 4],
          [8, 16],
        ],
      },
    },
    coupling,
  );
  assert.deepEqual(
    [8, 6, 4, 1].map((width) => predicted(stairs, [width, 5]).latencyMs),
    [10, 7, 4, 4],
  );
});

test("the later of two layers of a group counts, one unit stays, pinned groups keep all", () => {
  assert.deepEqual(widthsAfter(cost, [["a", 0.5]]), [4, 5]);
  assert.deepEqual(
    widthsAfter(cost, [
      ["a", 0.5],
      ["b", 0.25],
    ]),
    [6, 5],
  );
  assert.deepEqual(
    widthsAfter(cost, [
      ["a", 0.99],
      ["c", 0.5],
      ["nobody", 0.5],
    ]),
    [1, 5],
  );
});

test("what is chosen anew stands last, and one threshold is for all layers", () => {
  const state = {
    cut: {
      removed: [
        ["a", 0.5],
        ["b", 0.25],
      ],
    },
  };
  assert.deepEqual(removedShares(modelOf({ state }), table, null), [
    ["a", 0.5],
    ["b", 0.25],
  ]);
  assert.deepEqual(removedShares(modelOf({ state }), table, { layer: "a", ratio: 0.75 }), [
    ["b", 0.25],
    ["a", 0.75],
  ]);
  assert.deepEqual(removedShares(modelOf({ state }), table, { layer: "a", ratio: 0 }), [
    ["b", 0.25],
  ]);
  const requests = [
    { id: 1, do: "prune", layer: "b", ratio: 0.5 },
    { id: 2, do: "undo" },
  ];
  assert.deepEqual(removedShares(modelOf({ state, requests }), table, null), [
    ["a", 0.5],
    ["b", 0.5],
  ]);
  assert.deepEqual(
    removedShares(modelOf({ state, requests, served: 1 }), table, null),
    [
      ["a", 0.5],
      ["b", 0.25],
    ],
    "served requests are Python's to tell",
  );
  assert.deepEqual(removedShares(modelOf({}), table, { layer: "", threshold: 4 }), [
    ["a", 0.375],
    ["b", 0.5],
  ]);
  const others = {
    cut: {
      removed: [
        ["c", 0.5],
        ["a", 0.5],
      ],
    },
  };
  assert.deepEqual(
    removedShares(modelOf({ state: others }), table, { layer: "", threshold: 0 }),
    [["c", 0.5]],
    "a layer that was not judged is left alone",
  );
});

test("what is predicted stands beside what was achieved, each of its own baseline", () => {
  const alone = cutRows(cost, [["a", 0.5]], null, null);
  assert.deepEqual(
    alone.map((row) => row.predicted),
    ["−69.0%", "−44.4%", "6 ms (−40.0%)"],
  );
  assert.ok(alone.every((row) => !row.achieved && !row.error));
  assert.equal(forecastLine(alone), "parameters −69.0% · FLOPs −44.4% · predicted 6 ms (−40.0%)");
  const did = {
    before: { parameters: 487, flops: 900, latency_ms: 20, metric: 0.9 },
    now: { parameters: 151, flops: 450, latency_ms: 15, metric: 0.8 },
    metric_name: "accuracy",
  };
  const beside = cutRows(cost, [["a", 0.5]], did, 99);
  assert.deepEqual(
    beside.map((row) => row.predicted),
    ["−69.0%", "−44.4%", "12 ms (−40.0%)", ""],
    "the machine is slower than it was",
  );
  assert.deepEqual(
    beside.map((row) => row.achieved),
    ["−69.0%", "−50.0%", "15 ms (−25.0%)", "0.8000, before 0.9000"],
  );
  assert.deepEqual(
    beside.map((row) => row.error),
    ["0%", "−10%", "+25%", ""],
  );
  assert.equal(
    cutRows(cost, [], null, 5)[2].predicted,
    "5 ms (0%)",
    "the header's latency is the measure",
  );
  assert.deepEqual([1, 1.0001, 0.5, 1.25, NaN].map(shareChange), [
    "0%",
    "0%",
    "−50.0%",
    "+25.0%",
    "",
  ]);
});

test("data that are sent again are known by their number", () => {
  const data = { stamp: 3 };
  assert.deepEqual(
    [
      isSameData(data, { stamp: 3 }),
      isSameData(data, { stamp: 4 }),
      isSameData({}, {}),
      isSameData(data, data),
      isSameData(undefined, data),
    ],
    [true, false, false, true, false],
  );
});
