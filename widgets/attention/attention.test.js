import assert from "node:assert/strict";
import { test } from "node:test";
import { isSameAttention, keptAlone, keptByRecipe, takingWords } from "./choice.js";
import { keepText, unpackedAttention } from "./table.js";

const doubles = (/** @type {number[]} */ ...values) =>
  new DataView(Float64Array.from(values).buffer);
const floats = (/** @type {number[]} */ ...values) =>
  new DataView(Float32Array.from(values).buffer);
const whole = (/** @type {number[]} */ ...values) => new DataView(Int32Array.from(values).buffer);
const packed = {
  kind: "topk",
  dense_ms: 10,
  keeps: doubles(1, 0.5, 0.125),
  latency_ms: doubles(12.5, 10, 8),
  layer: ["a.attention", "b.attention", "c.attention"],
  heads: whole(3, 3, 2),
  queries: whole(197, 197, 10),
  keys: whole(197, 197, 20),
  is_causal: whole(0, 1, 0),
  share: floats(0.1, NaN, NaN),
  reason: ["", "it returns its weights", ""],
  layer_errors: doubles(1e-7, 0.1, 0.3, NaN, NaN, NaN, 2e-7, 0.02, 0.05),
};
const table = unpackedAttention(packed);
/** @param {any} traits */
const modelOf = (traits) => ({
  get: (/** @type {string} */ name) => ({ requests: [], served: 0, ...traits })[name],
});

test("packed costs are unpacked; a cost that was not measured has no stops", () => {
  assert.deepEqual(
    [table.isKnown, unpackedAttention({}).isKnown, unpackedAttention(undefined).stops],
    [true, false, []],
  );
  assert.deepEqual(
    table.stops.map((stop) => [stop.keep, stop.speedup]),
    [
      [1, 0.8],
      [0.5, 1],
      [0.125, 1.25],
    ],
  );
  assert.deepEqual(table.able, ["a.attention", "c.attention"]);
  assert.deepEqual(
    table.layers.map((one) => one.size),
    ["197 × 3", "197 × 3, causal", "10 of 20 × 2"],
  );
  assert.deepEqual(table.layers[2].errors, [2e-7, 0.02, 0.05], "each layer has its own");
  assert.ok((table.scale?.floor ?? 0) > 1e-3, "what is next to nothing takes no room on the scale");
});

test("a share is given in per cent", () => {
  assert.deepEqual([1, 0.5, 0.125].map(keepText), ["100 %", "50 %", "12.5 %"]);
});

test("the recipe's choice is that of the kind that is shown, with what was asked for since", () => {
  const sent = {
    state: {
      attending: {
        topk: { keep: 0.5, layers: ["c.attention"] },
        block: { kind: "block", keep: 0.125 },
      },
    },
  };
  assert.deepEqual(keptByRecipe(modelOf(sent), table), { index: 1, layers: ["c.attention"] });
  assert.equal(keptByRecipe(modelOf({ state: { attending: {} } }), table), null);
  assert.equal(
    keptByRecipe(modelOf({ state: { attending: { topk: { keep: 0.3 } } } }), table),
    null,
    "a share that was not measured is no stop",
  );
  const requests = [
    { id: 1, do: "attention", kind: "topk", keep: 0.125, layers: ["a.attention"] },
    { id: 2, do: "attention", kind: "block", keep: 1, layers: [] },
  ];
  assert.deepEqual(keptByRecipe(modelOf({ ...sent, requests }), table), {
    index: 2,
    layers: ["a.attention"],
  });
  const all = keptByRecipe(modelOf({ state: { attending: { topk: { keep: 1 } } } }), table);
  assert.deepEqual(all, { index: 0, layers: table.able }, "without layers all take part");
});

test("alone the traits are the choice", () => {
  assert.deepEqual(keptAlone(modelOf({ keep: 0.125, layers: ["a.attention"] }), table), {
    index: 2,
    layers: ["a.attention"],
  });
  assert.ok(isSameAttention({ index: 0, layers: ["a", "b"] }, { index: 0, layers: ["b", "a"] }));
  assert.ok(
    !isSameAttention({ index: 0, layers: ["a"] }, { index: 0, layers: ["a", "b"] }) &&
      !isSameAttention(null, { index: 0, layers: [] }) &&
      isSameAttention(null, null),
  );
});

test("it is said how many of the layers that were asked for do attend to a part", () => {
  assert.equal(takingWords(undefined, ["a", "b"]), "", "not known yet");
  assert.equal(takingWords(["a", "b"], ["a", "b"]), "");
  assert.ok(takingWords(["b"], ["a", "b"]).startsWith("1 of 2 layers do so"));
  assert.ok(takingWords([], ["a", "b"]).startsWith("No layer does so"));
});
