import assert from "node:assert/strict";
import { test } from "node:test";
import {
  askedTargets,
  errorText,
  folderAddress,
  noteOf,
  obstacleOf,
  opsetOf,
  probeRows,
  sizeText,
  speedText,
  verdictOf,
} from "./layout.js";

const target = (/** @type {any} */ more) => ({
  name: "onnx",
  title: "ONNX",
  precisions: ["fp32", "fp16"],
  obstacle: "",
  has_opset: true,
  ...more,
});

const row = (/** @type {any} */ more = {}) => ({
  target: "onnx",
  title: "ONNX",
  refused: "",
  path: "model.onnx",
  precision: "fp16",
  opset: 17,
  bytes: 2_500_000,
  error: 3.21e-4,
  tolerance: 1e-2,
  compared: ["the example"],
  not_verified: "",
  latency_ms: 4.567,
  live_ms: 9.1,
  notes: [],
  ...more,
});

test("a target is barred by what is missing here, or by the chosen precision", () => {
  assert.equal(obstacleOf(target({}), ""), "");
  assert.equal(obstacleOf(target({}), "fp16"), "");
  assert.equal(obstacleOf(target({}), "int8"), "not written in int8: fp32, fp16");
  assert.equal(
    obstacleOf(target({ obstacle: "coremltools is missing" }), "int8"),
    "coremltools is missing",
  );
});

test("ONNX is always asked for, and what is barred never is", () => {
  const targets = [
    target({}),
    target({ name: "openvino" }),
    target({ name: "coreml", obstacle: "needs coremltools" }),
    target({ name: "hls", precisions: ["fp32"] }),
  ];
  assert.deepEqual(askedTargets(targets, new Set(), ""), ["onnx"]);
  const chosen = new Set(["openvino", "coreml", "hls"]);
  assert.deepEqual(askedTargets(targets, chosen, ""), ["onnx", "openvino", "hls"]);
  assert.deepEqual(askedTargets(targets, chosen, "fp16"), ["onnx", "openvino"]);
});

test("an opset is a whole number, or nothing for the latest", () => {
  assert.equal(opsetOf(" 17 "), 17);
  assert.equal(opsetOf(""), null);
  for (const text of ["0", "-3", "17.5", "x", "1e2"]) assert.equal(opsetOf(text), undefined);
});

test("a row says whether it ran, how far it is off and what it refused", () => {
  assert.deepEqual(verdictOf(row()), ["same outputs", "pf-is-good"]);
  assert.equal(errorText(row()), "3.2e-4 of 1.0e-2");
  assert.equal(speedText(row()), "1.99 ×");
  assert.equal(sizeText(row()), "2.5 MB");
  assert.equal(noteOf(row({ notes: ["2 nodes in fp32"] })), "fp16, opset 17 · 2 nodes in fp32");
  const open = row({ error: null, not_verified: "it needs macOS" });
  assert.deepEqual(verdictOf(open), ["converted, not run", "pf-is-open"]);
  assert.equal(errorText(open), "–");
  const refused = { target: "hls", title: "HLS", refused: "layer 'x' is no layer of hls4ml" };
  assert.deepEqual(verdictOf(refused), ["refused", "pf-is-bad"]);
  assert.equal(noteOf(refused), "layer 'x' is no layer of hls4ml");
  assert.deepEqual([errorText(refused), speedText(refused), sizeText(refused)], ["–", "–", "–"]);
});

test("an error of exactly zero is a number, and one that is none is past every tolerance", () => {
  assert.equal(errorText(row({ error: 0 })), "0 of 1.0e-2");
  const rows = probeRows({
    sentence: "",
    layer: "b",
    tolerance: 0.01,
    probes: [
      ["a", 0],
      ["b", null],
      ["c", 0.5],
    ],
  });
  assert.deepEqual(
    rows.map((one) => [one.layer, one["differs by"], one[""]]),
    [
      ["a", "0", "within"],
      ["b", "not finite", "past"],
      ["c", "5.0e-1", "past"],
    ],
  );
});

test("the folder is a link beside the notebook, where the page knows both", () => {
  assert.equal(
    folderAddress("a b/n.ipynb", "/base/", "net-export"),
    "/base/lab/tree/a%20b/net-export",
  );
  assert.equal(folderAddress("n.ipynb", "/", "x"), "/lab/tree/x");
  assert.equal(folderAddress(undefined, "/", "x"), "");
  assert.equal(folderAddress("n.ipynb", undefined, "x"), "");
  assert.equal(folderAddress("n.ipynb", "/", "/tmp/x"), "");
});
