import assert from "node:assert/strict";
import { test } from "node:test";

import { bandwidthText, binaryBytes, ceilingGroups, machineFacts } from "../hardware/facts.js";
import {
  decimalsFor,
  kindsText,
  largestChanges,
  promiseOf,
  savedMs,
  signedChange,
} from "./pairs.js";
import { stepCode, stepText, untopical, worthText } from "../explanation/steps.js";

const ROWS = [
  { layer: "a", before_ms: 1, after_ms: 0.9 },
  { layer: "gone", before_ms: 3, after_ms: null },
  { layer: "new", before_ms: null, after_ms: 2 },
  { layer: "same", before_ms: 5, after_ms: 5 },
];

test("the largest changes come first, faster or slower; unchanged rows are among the rest", () => {
  const { shown, rest } = largestChanges(ROWS, 2);
  assert.deepEqual(
    shown.map((pair) => pair.layer),
    ["gone", "new"],
  );
  assert.deepEqual(rest, { count: 2, before_ms: 6, after_ms: 5.9 });
  assert.deepEqual(largestChanges(ROWS, 10).shown.length, 3);
  assert.deepEqual(largestChanges([], 2), { shown: [], rest: null });
  assert.equal(savedMs(ROWS[2]), -2);
});

test("a change is signed, and nothing is 0", () => {
  assert.equal(signedChange(3.21, 2), "−3.21");
  assert.equal(signedChange(-0.4, 3), "+0.400");
  assert.equal(signedChange(0.0001, 3), "0");
  assert.deepEqual([5, 50, 500].map(decimalsFor), [3, 2, 1]);
});

test("a promise is held against what came of it", () => {
  const data = {
    before_ms: 10,
    after_ms: 7,
    rows: [],
    predicted: { saves_ms: 4, basis: "measured" },
  };
  assert.deepEqual(promiseOf(data), { predicted: 4, achieved: 3, basis: "timed alone" });
  assert.equal(promiseOf({ ...data, predicted: null }), null);
  assert.equal(
    kindsText({ kind_before: "BatchNorm2d", kind_after: "Identity" }),
    "BatchNorm2d → Identity",
  );
  assert.equal(kindsText({ kind_before: "Conv2d", kind_after: "Conv2d" }), "Conv2d");
});

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

test("a machine's ceilings are grouped by device, each with its own scale", () => {
  const cpu = [
    { threads: 4, fp32_gflops: 300, bandwidth_gbs: 60 },
    { threads: 1, fp32_gflops: 90, bf16_gflops: 200, bandwidth_gbs: 20 },
  ];
  const gpu = {
    name: "GPU",
    kind: "cuda",
    memory_bytes: 8e10,
    compute_capability: [9, 0],
    ceiling: { fp32_gflops: 5e4, int8_gops: 1e6, bandwidth_gbs: 3000 },
  };
  const data = {
    name: "CPU",
    source: "measured",
    physical_cores: 4,
    logical_cores: 8,
    memory_bytes: 64e9,
    caches_bytes: { L2: 1048576 },
    ceilings: cpu,
    accelerators: [gpu],
  };
  const groups = ceilingGroups(data);
  assert.deepEqual(
    groups[0].ceilings.map((one) => one.label),
    ["1 thread", "4 threads"],
  );
  assert.deepEqual(
    groups.map((group) => group.formats),
    [
      ["fp32", "bf16"],
      ["fp32", "int8"],
    ],
  );
  assert.deepEqual(
    groups.map((group) => group.mostGflops),
    [300, 1e6],
  );
  assert.deepEqual(
    groups.map((group) => group.isLarge),
    [false, true],
  );
  assert.deepEqual(machineFacts(data), [
    ["cores", "4 · 8 logical"],
    ["memory", "64 GB"],
    ["L2 cache", "1 MiB"],
  ]);
  assert.deepEqual(ceilingGroups({ ...data, ceilings: [], accelerators: [] }), []);
  assert.equal(binaryBytes(32768), "32 KiB");
  assert.equal(bandwidthText(4100), "4.1 TB/s");
});
