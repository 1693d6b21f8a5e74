import assert from "node:assert/strict";
import { test } from "node:test";
import { isSameAttention, keptAlone, keptByRecipe, takingWords } from "./choice.js";

const stops = [1, 0.5, 0.125].map((keep) => ({ keep, text: "", is_slower: keep === 1 }));
const table = {
  kind: "topk",
  stops,
  layers: /** @type {any[]} */ ([]),
  able: ["a.attention", "c.attention"],
};
/** @param {any} traits */
const modelOf = (traits) => ({
  get: (/** @type {string} */ name) => ({ requests: [], served: 0, ...traits })[name],
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
