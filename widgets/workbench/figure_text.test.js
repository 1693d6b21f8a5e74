import assert from "node:assert/strict";
import { test } from "node:test";
import { figureText } from "./figure_text.js";

const ACCURACY = { name: "accuracy", unit: "%", is_less_better: false };

test("less is better, but for a metric that says otherwise", () => {
  assert.deepEqual(figureText({ name: "memory", before: 118e6, now: 69e6, unit: "B" }), {
    before: "118",
    now: "69 MB",
    change: "−42%",
    judgement: "good",
  });
  assert.equal(figureText({ name: "size", before: 1e6, now: 2e6, unit: "B" }).judgement, "bad");
  const accuracy = figureText({ ...ACCURACY, before: 0.987, now: 0.983 });
  assert.deepEqual(
    [accuracy.before, accuracy.now, accuracy.change, accuracy.judgement],
    ["98.7", "98.3%", "−0.4 points", "bad"],
  );
  assert.equal(figureText({ ...ACCURACY, before: 0.9, now: 0.95 }).judgement, "good");
  const rate = { ...ACCURACY, is_less_better: true };
  assert.equal(figureText({ ...rate, before: 0.05, now: 0.1 }).judgement, "bad");
  const score = { ...ACCURACY, unit: "" };
  assert.equal(figureText({ ...score, before: 24.1, now: 25 }).judgement, "good");
  assert.equal(figureText({ ...score, before: 24.1, now: 24.1 }).now, "24.1");
});

test("a unit that changed is written out", () => {
  assert.equal(figureText({ name: "size", before: 1.2e6, now: 900e3, unit: "B" }).before, "1.2 MB");
});

test("what is not known is a dash, and what did not change is not struck out", () => {
  const nothing = { before: "", change: "", judgement: "even" };
  assert.deepEqual(figureText({ name: "accuracy", before: null, now: null, unit: "%" }), {
    ...nothing,
    now: "–",
  });
  assert.deepEqual(figureText({ name: "memory", before: 5e6, now: null, unit: "B" }), {
    ...nothing,
    before: "5 MB",
    now: "–",
  });
  assert.deepEqual(figureText({ name: "parameters", before: 11689512, now: 11689000, unit: "" }), {
    ...nothing,
    now: "11.7 M",
  });
  assert.equal(
    figureText({ name: "output error", before: null, now: 1.97e-7, unit: "" }).now,
    "2e-7",
  );
  assert.equal(figureText({ name: "from nothing", before: 0, now: 3, unit: "" }).change, "");
});

test("a figure that is the text nan is a dash", () => {
  for (const unit of ["ms", "B", "%", ""]) {
    const figure = /** @type {any} */ ({ name: "a figure", before: 2, now: "nan", unit });
    assert.equal(figureText(figure).now, "–");
  }
});
