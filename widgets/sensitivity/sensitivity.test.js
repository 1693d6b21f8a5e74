import assert from "node:assert/strict";
import { test } from "node:test";
import { chosenFormats, whyNot } from "./chosen_formats.js";
import { costLook, costText, heatCellText } from "./heat_cells.js";
import {
  cellFigures,
  cellRemark,
  isUntold,
  measuredAt,
  predictedAt,
  sensitivityLine,
  unpackedSensitivity,
} from "./table.js";
import {
  estimateText,
  HEAT_STEPS,
  heatLook,
  heatScale,
  heatShare,
  heatStep,
  heatText,
  heatTicks,
} from "../shared/heat_scale.js";
import { barredWords } from "../workbench/barred_choices.js";
import { heatColumn } from "../workbench/sensitivity_column.js";

const floats = (/** @type {number[]} */ ...values) =>
  new DataView(Float32Array.from(values).buffer);
const packed = {
  title: "net: what each layer loses in lower precision",
  machine: "a machine",
  unit: "loss",
  method: "quadratic",
  examples: 8,
  is_interrupted: true,
  notes: [],
  formats: ["bf16", "int8", "int2-weights"],
  choices: ["bf16", "int8"],
  layer: ["a", "b", "c"],
  kind: { names: ["Conv2d"], codes: new DataView(Uint16Array.from([0, 0, 0]).buffer) },
  note: { names: ["", "it does not run"], codes: new DataView(Uint16Array.from([0, 0, 1]).buffer) },
  parameters: floats(10, 20, 30),
  predicted: {
    bf16: { value: floats(-1e-5, 0, NaN), error: floats(2e-5, NaN, NaN) },
    int8: { value: floats(3e-4, 0.02, NaN), error: floats(1e-4, 0.03, NaN) },
    "int2-weights": { value: floats(1, Infinity, NaN), error: floats(0.1, NaN, NaN) },
  },
  measured: { int8: { value: floats(2e-4, -1e-3, 0.5), error: floats(1e-4, 1e-4, NaN) } },
};
const table = unpackedSensitivity(packed);

test("a packed sensitivity is unpacked; what is not there yet has no layers", () => {
  assert.deepEqual(
    [table.layers, table.isKnown, unpackedSensitivity({}).isKnown],
    [["a", "b", "c"], true, false],
  );
  assert.ok(
    Math.abs(predictedAt(table, 0, "int8") - 3e-4) < 1e-9 &&
      Math.abs(measuredAt(table, 1, "int8") + 1e-3) < 1e-9,
  );
  assert.ok(
    Number.isNaN(predictedAt(table, 0, "no format")) && Number.isNaN(measuredAt(table, 0, "bf16")),
  );
  assert.equal(unpackedSensitivity(undefined).scale, null);
  assert.match(
    sensitivityLine(table),
    /^rise of the loss, predicted by quadratic · 8 examples · a machine · stopped early/,
  );
});

// The same cases as in tests/test_sensitivity_view.py: figure and widget share one scale.
test("the scale has round ends that include every positive number, at most 1e6 apart", () => {
  const cases = [
    [[3e-5, 0.02], 2e-5, 0.02],
    [[0.3], 0.05, 0.5],
    [[1e-12, 4], 5e-6, 5],
    [[-1, 0, 7, Infinity, NaN], 1, 10],
    [[1e-4], 1e-5, 1e-4],
  ];
  for (const [values, floor, top] of cases) assert.deepEqual(heatScale(values), { floor, top });
  for (const values of [[], [0, -1], [NaN], [Infinity]]) assert.equal(heatScale(values), null);
});

test("equal ratios are equal steps; what is not above the floor has none", () => {
  const scale = { floor: 1e-9, top: 1 };
  assert.deepEqual(
    [1e-9, 1e-8, 1e-7, 0.5, 1, 9, Infinity].map((value) => heatStep(scale, value)),
    [0, 1, 2, 8, 8, 8, 8],
  );
  assert.deepEqual(
    [0, -1, 1e-10, NaN].map((value) => heatStep(scale, value)),
    [-1, -1, -1, -1],
  );
  assert.equal(heatStep(null, 1), -1);
  assert.equal(HEAT_STEPS, 9);
});

test("powers of ten stand along the scale, as many as have room", () => {
  assert.deepEqual(heatTicks({ floor: 2e-5, top: 0.02 }), [1e-4, 1e-3, 1e-2]);
  assert.deepEqual(heatTicks({ floor: 1e-6, top: 1 }), [1e-6, 1e-4, 1e-2, 1]);
  assert.deepEqual(heatTicks({ floor: 0.2, top: 0.5 }), []);
  assert.ok(Math.abs(heatShare({ floor: 1e-6, top: 1 }, 1e-3) - 0.5) < 1e-9);
});

test("numbers are as short as a cell, and a minus is one", () => {
  const cases = [
    [0.0123, "0.012"],
    [0.000012, "1.2e-5"],
    [1e-4, "1e-4"],
    [0, "0"],
    [-2e-5, "−2e-5"],
    [123.4, "120"],
    [12345, "1.2e4"],
    [NaN, "–"],
    [Infinity, "∞"],
  ];
  for (const [value, text] of cases) assert.equal(heatText(value), text);
  assert.equal(estimateText(0.5, 0.1), "0.5 ± 0.1");
  assert.equal(estimateText(0.5, NaN), "0.5");
});

test("a cell is coloured, hatched or empty; numbers below the scale are shown as such", () => {
  const scale = { floor: 1e-6, top: 1 };
  assert.deepEqual(
    [1, -1, 1e-9, NaN].map((value) => heatLook(scale, value).split(" ")[1]),
    ["pf-heat-8", "pf-heat-below", "pf-heat-below", "pf-heat-none"],
  );
  assert.deepEqual(
    [0.5, 1e-9, -2e-5, 0, NaN].map((value) => heatCellText(scale, value)),
    ["0.5", "< 1e-6", "−2e-5", "0", "–"],
  );
});

test("a cost that cannot be told from 0 is hatched, without a colour or a number", () => {
  const cells = [
    [0, "bf16"],
    [1, "int8"],
    [0, "int8"],
    [1, "bf16"],
    [2, "int8"],
  ];
  assert.deepEqual(
    cells.map(([row, format]) => isUntold(table, row, format)),
    [true, true, false, false, false],
  );
  assert.equal(costLook(table, 1, "int8"), "pf-heat pf-heat-untold");
  assert.match(costLook(table, 0, "int8"), /^pf-heat pf-heat-\d$/);
  assert.deepEqual(
    cells.map(([row, format]) => costText(table, row, format)),
    ["≈ 0", "≈ 0", "3e-4", "0", "–"],
  );
});

test("a cell tells what was predicted, what was measured, and what its number is not worth", () => {
  assert.deepEqual(cellFigures(table, 0, "int8"), [
    ["3e-4 ± 1e-4", "predicted"],
    ["2e-4 ± 1e-4", "measured"],
    ["10", "parameters"],
  ]);
  assert.deepEqual(cellFigures(table, 2, "bf16"), [["30", "parameters"]]);
  assert.equal(cellRemark(table, 0, "bf16"), "the loss falls, within the standard error");
  assert.match(cellRemark(table, 1, "bf16"), /below the scale, which begins at 2e-4/);
  assert.equal(cellRemark(table, 1, "int8"), "within its standard error of 0");
  assert.equal(cellRemark(table, 2, "int8"), "it does not run");
  assert.equal(cellRemark(table, 0, "int8"), "");
});

test("what is asked for is chosen at once, in the workbench and alone", () => {
  const traits = /** @type {Record<string, any>} */ ({
    requests: [{ id: 1, do: "precision", layer: "a", name: "int8" }],
    served: 0,
    chosen: { b: "bf16" },
  });
  const model = { get: (/** @type {string} */ name) => traits[name] };
  assert.deepEqual(chosenFormats(model), {
    chosen: { a: "int8", b: "bf16" },
    asked: new Set(["a"]),
  });
  traits.state = { precisions: { c: "fp16" } };
  assert.deepEqual(chosenFormats(model).chosen, { a: "int8", c: "fp16" });
  traits.served = 1;
  assert.deepEqual(chosenFormats(model).asked, new Set());
});

test("why a layer cannot be in a format comes as one reason for all or one for each", () => {
  const state = {
    cannot: { relu: "no weights" },
    cannot_in: { norm: { int8: "no channels", "int4-weights": "no channels" } },
  };
  assert.deepEqual(
    [whyNot(state, "relu", "int8"), whyNot(state, "norm", "int8"), whyNot(state, "norm", "bf16")],
    ["no weights", "no channels", ""],
  );
  assert.equal(whyNot(undefined, "a", "int8"), "");
  assert.equal(barredWords(state.cannot_in.norm), "not int8, int4-weights: no channels");
});

test("the layer table's column is sorted by the worst format and redrawn on a new choice", () => {
  const layers = /** @type {any} */ ({ layers: ["", "a", "b", "c"] });
  let chosen = "";
  const column = heatColumn(table, () => chosen);
  assert.deepEqual(
    [1, 2].map((row) => column.value(layers, row)),
    [1, Infinity],
  );
  assert.ok(Number.isNaN(column.value(layers, 0)) && Number.isNaN(column.value(layers, 3)));
  const before = column.key?.(layers, 1);
  assert.notEqual(heatColumn(unpackedSensitivity(packed), () => "").key?.(layers, 1), before);
  chosen = "int8";
  assert.notEqual(column.key?.(layers, 1), before);
});
