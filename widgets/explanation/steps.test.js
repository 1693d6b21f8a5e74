import assert from "node:assert/strict";
import { test } from "node:test";

import { stepCode, stepText, untopical, worthText } from "./steps.js";

test("a step is shown in words and written in Python", () => {
  const step = { precision: { default: "bf16", layers: { conv1: null }, exact: true } };
  assert.equal(stepText({ backend: { name: "onnxruntime" } }), "backend name=onnxruntime");
  assert.equal(stepText({ fold: {} }), "fold");
  assert.equal(
    stepCode(step),
    '{"precision": {"default": "bf16", "layers": {"conv1": None}, "exact": True}}',
  );
});

test("what a step is worth is shown, also where it costs", () => {
  assert.equal(worthText(8.1632, 0.33), "saves about 8.16 ms · 33%");
  assert.equal(worthText(-1, 0), "costs about 1 ms");
  assert.equal(worthText(null, 0), "");
});

test("a sentence does not repeat the topic before it", () => {
  assert.equal(untopical("Folding: 20 layers.", "folding"), "20 layers.");
  assert.equal(
    untopical("A slow path: it moves little.", "slow path"),
    "A slow path: it moves little.",
  );
  assert.equal(untopical("", "x"), "");
});
