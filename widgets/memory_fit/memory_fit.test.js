import assert from "node:assert/strict";
import { test } from "node:test";
import { fitRows, limitSentence, reachOfRows, verdictOf } from "./layout.js";
import { categoryClass } from "./table.js";

const STEP = { precision: { default: "bf16" } };
const remedy = (/** @type {string} */ change, /** @type {number} */ peak, more = {}) => ({
  change,
  how: "how",
  batch: 8,
  peak_bytes: peak,
  largest_batch: 16,
  more_flops: null,
  step: null,
  ...more,
});
/** @returns {any} */
const data = () => ({
  about: {},
  measured: [
    ["weights", 40],
    ["activations", 45],
    ["workspace", 5],
  ],
  call: {
    title: "net",
    options: "inference",
    batch: 8,
    limit_bytes: 100,
    largest: "9",
    held: [
      ["weights", 40],
      ["gradients", 0],
      ["activations", 50],
      ["inputs", 10],
    ],
    layers: [],
    remedies: [
      remedy("a batch of 4", 70, { batch: 4, largest_batch: 4 }),
      remedy("bf16", 50, { step: STEP, more_flops: 0.25 }),
    ],
  },
  training: null,
});

test("the measured peak stands above the predicted one, with the inputs that both hold", () => {
  const rows = fitRows(data(), "call");
  assert.deepEqual(
    rows.map(({ name, bytes }) => [name, bytes]),
    [
      ["measured", 100],
      ["predicted", 100],
      ["a batch of 4", 70],
      ["bf16", 50],
    ],
  );
  assert.deepEqual(rows[0].parts.at(-1), ["inputs", 10]);
  assert.deepEqual(
    rows.map((row) => row.step),
    [null, null, null, STEP],
  );
  assert.deepEqual(
    rows.map((row) => [row.largest, row.time]),
    [
      ["", ""],
      ["9", ""],
      ["", ""],
      ["16", "+25 % FLOPs"],
    ],
  );
});

test("nothing measured stands beside a step of training, and unasked there are no rows", () => {
  const both = { ...data(), training: { ...data().call, remedies: [] } };
  assert.deepEqual(
    fitRows(both, "training").map((row) => row.name),
    ["predicted"],
  );
  assert.deepEqual(fitRows({ ...data(), measured: null, call: null }, "call"), []);
});

test("a row fits up to the limit itself, and else says by how much not", () => {
  const [, predicted, batch] = fitRows(data(), "call");
  assert.deepEqual(verdictOf(predicted, 100), { fits: true, text: "fits" });
  assert.deepEqual(verdictOf(predicted, 99), { fits: false, text: "1 B too much" });
  assert.deepEqual(verdictOf(batch, null), { fits: true, text: "" });
});

test("the sentence says what would be enough", () => {
  const rows = fitRows(data(), "call");
  assert.equal(limitSentence(rows, 130), "It fits as it is, with 30 B to spare.");
  assert.equal(
    limitSentence(rows, 80),
    "It needs 20 B more. Enough would be a batch of 4 or bf16.",
  );
  assert.equal(limitSentence(rows, 60), "It needs 40 B more. Enough would be bf16.");
  assert.match(limitSentence(rows, 10), /none of the changes below is enough/);
  assert.equal(limitSentence([], 10), "");
});

test("the bars reach past the largest peak, and to a limit that is near", () => {
  const rows = fitRows(data(), "call");
  assert.equal(reachOfRows(rows, null), 106);
  assert.equal(reachOfRows(rows, 150), 159);
  assert.equal(reachOfRows(rows, 1e9), 106);
});

test("each category has a class of its own", () => {
  assert.equal(categoryClass("optimizer state"), "pf-category-optimizer-state");
  assert.equal(categoryClass(""), "pf-category-any");
});
