import assert from "node:assert/strict";
import { test } from "node:test";

import {
  isOtherSearch,
  allowText,
  barOf,
  barReach,
  lossHead,
  lossText,
  rowAfter,
  searchStatus,
  sheetStatus,
  speedTexts,
  splitRows,
} from "./layout.js";

const row = (changes = {}) => ({
  label: "a",
  why: "",
  status: "measured",
  rank: 1,
  reason: "",
  allow: null,
  latency_ms: 5,
  before_ms: 10,
  speedup: 2,
  low: 1.6,
  high: 2.5,
  word: "faster",
  tone: "good",
  per_second: null,
  relative_error: 1e-7,
  metric: null,
  metric_lost: null,
  size_bytes: 50,
  peak_bytes: null,
  ...changes,
});
const data = (rows, changes = {}) => ({
  goal: "latency",
  metric_drop: 0.01,
  may_train: false,
  seconds: 60,
  took_s: 12.4,
  planned: 8,
  is_done: true,
  is_interrupted: false,
  note: "",
  baseline_size_bytes: 100,
  baseline_peak_bytes: 200,
  rows,
  ...changes,
});

test("a bar is half as long as the dashed line is far where a change is twice as fast", () => {
  const bar = barOf(row(), data([row()]));
  assert.equal(bar.now, bar.before / 2);
  assert.ok(bar.from < bar.now && bar.now < bar.to);
  assert.equal(barReach(data([row()])), 1.25);
});

test("every bar lies within its cell, however slow a candidate is", () => {
  const slow = row({ speedup: 0.1, low: 0.05, high: 0.2 });
  const bar = barOf(slow, data([slow, row()]));
  for (const end of [bar.now, bar.from, bar.to, bar.before]) assert.ok(end >= 0 && end <= 1);
});

test("for size the bar is the share of the bytes left, without a likely range", () => {
  const bar = barOf(row(), data([row()], { goal: "size" }));
  assert.deepEqual([bar.now, bar.from, bar.to], [0.5 / 1.25, null, null]);
  assert.equal(barOf(row(), data([row()], { goal: "memory" })), null);
});

test("the word of a speed-up is Python's, and no figure stands alone where it cannot be told", () => {
  assert.deepEqual(speedTexts(row()), ["2.0 ×", "1.6–2.5"]);
  assert.deepEqual(speedTexts(row({ word: "not told", tone: "untold" })), [
    "≈ 1.6–2.5 ×",
    "cannot be told",
  ]);
  const even = row({ speedup: 1.01, low: 0.9, high: 1.1, word: "no difference", tone: "even" });
  assert.deepEqual(speedTexts(even), ["1.01 ×", "no difference"]);
  assert.deepEqual(speedTexts(row({ speedup: null })), ["–", ""]);
});

test("a loss has a sign and is in points; without data it is the output error", () => {
  assert.equal(lossText(row({ metric_lost: 0.004 })), "−0.4");
  assert.equal(lossText(row({ metric_lost: -0.002 })), "+0.2");
  assert.equal(lossText(row({ metric_lost: 0.00001 })), "0.0");
  assert.equal(lossText(row({ relative_error: 0.0123 })), "0.012");
  const lossy = data([row({ metric_lost: 0 })], { metric_name: "top1" });
  assert.equal(lossHead(lossy), "Top1, points lost or won");
  assert.match(lossHead({ ...lossy, metric_name: null }), /^Metric, points/);
  assert.equal(lossHead(data([row()])), "Output differs by");
});

test("what is outside the limits says what would let it in", () => {
  assert.equal(allowText(row({ metric_lost: 0.004, allow: { metric_drop: 0.004 } })), "Allow 0.4");
  assert.equal(allowText(row({ allow: { metric_drop: 0.02 } })), "Allow 0.02");
  assert.equal(allowText(row({ allow: { may_train: true } })), "Allow training");
  assert.equal(allowText(row()), "");
});

test("rows without a rank are apart from the others", () => {
  const { ranked, others } = splitRows(data([row(), row({ rank: null, label: "b" })]));
  assert.deepEqual([ranked.map((r) => r.label), others.map((r) => r.label)], [["a"], ["b"]]);
});

test("the status says how far the search is, and whether it was stopped", () => {
  const shown = data([row()]);
  assert.equal(searchStatus(shown, true), "1 of 8 candidates so far · 12 s of 60 s");
  assert.equal(searchStatus(shown, false), "1 of 8 candidates measured in 12 s");
  assert.match(searchStatus({ ...shown, is_interrupted: true }, false), /stopped$/);
});

test("the sheet says whether the search waits, has begun, or is over", () => {
  const found = data([row()], { took_s: 60, is_interrupted: true });
  assert.match(sheetStatus("waiting", found, true), /begins when the current measurement is done/);
  assert.match(sheetStatus("running", null, false), /first candidates are being measured/);
  assert.match(sheetStatus("running", found, true), /first candidates are being measured/);
  assert.match(sheetStatus("running", found, false), /1 of 8 candidates so far/);
  assert.match(sheetStatus("idle", found, true), /measured in 60 s, stopped$/);
  assert.match(sheetStatus("idle", null, false), /press Search/, "it was stopped, or it failed");
});

test("arrow keys move by a row and stay within the list", () => {
  assert.deepEqual(
    ["ArrowDown", "ArrowUp", "Home", "End", "x"].map((key) => rowAfter(key, 1, 3)),
    [2, 0, 0, 2, null],
  );
  assert.equal(rowAfter("ArrowDown", 2, 3), 2);
  assert.equal(rowAfter("ArrowUp", 0, 0), null);
});

test("the same search with another baseline leaves the form as it is", () => {
  const found = data([]);
  assert.ok(isOtherSearch(null, found) && isOtherSearch(found, data([], { goal: "size" })));
  assert.ok(!isOtherSearch(found, data([row({ before_ms: 9 })])));
});
