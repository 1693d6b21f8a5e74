import assert from "node:assert/strict";
import { test } from "node:test";

import {
  doDiffer,
  furtherNotes,
  isTelling,
  latencyAxis,
  readableError,
  recipeLine,
  speedupAxis,
  verdictOf,
} from "./rows.js";

test("a variant's verdict is Python's, whatever its interval", () => {
  const row = (word, tone) => ({ name: "variant", speedup_interval: [2, 3], word, tone });
  assert.deepEqual(verdictOf(row("slower", "bad"), "baseline"), { word: "slower", tone: "bad" });
  assert.deepEqual(verdictOf(row("not told", "untold"), "baseline"), {
    word: "not told",
    tone: "untold",
  });
  assert.equal(verdictOf({ name: "variant" }, "baseline").word, "");
  assert.equal(
    verdictOf({ name: "baseline", speedup_interval: [1, 1] }, "baseline").tone,
    "baseline",
  );
});

test("the baseline with other threads is no variant", () => {
  assert.deepEqual(
    verdictOf({ name: "baseline · 1 thread", word: "slower", tone: "bad" }, "baseline · 2 threads"),
    {
      tone: "even",
      word: "slower",
    },
  );
});

test("a recipe that the name tells already is not repeated", () => {
  assert.equal(recipeLine({ name: "fold → layout", steps: ["fold", "layout"] }), "");
  assert.equal(recipeLine({ name: "mine", steps: ["fold", "layout"] }), "fold → layout");
  assert.deepEqual(furtherNotes({ notes: ["folded 20 layers", "slower than the baseline"] }), [
    "folded 20 layers",
  ]);
});

test("both axes hold every row, and rows that failed do not disturb them", () => {
  const rows = [
    { latency_ms: 20, spread_ms: [18, 25], speedup_interval: [0.4, 0.5] },
    { latency_ms: 5, speedup_interval: [3, 4] },
    { failure: "no" },
  ];
  const [latency, speedup] = [latencyAxis(rows), speedupAxis(rows)];
  for (const value of [0, 5, 25]) assert.ok(latency.place(value) >= 0 && latency.place(value) <= 1);
  for (const value of [0.4, 1, 4]) assert.ok(speedup.place(value) > 0 && speedup.place(value) < 1);
  assert.ok(speedup.ticks.includes(1));
  assert.ok(
    Math.abs(speedup.place(2) - speedup.place(1) - (speedup.place(1) - speedup.place(0.5))) < 1e-9,
  );
  assert.ok(speedupAxis([]).place(1) > 0 && latencyAxis([{ failure: "no" }]).place(0) === 0);
});

test("errors are shown, also those that are no numbers", () => {
  assert.equal(readableError(3.1e-3), "3.1e−3");
  assert.equal(readableError(0), "0");
  assert.equal(readableError(null), "–");
  for (const text of ["nan", "NaN"]) assert.equal(readableError(text), "NaN");
  for (const text of ["inf", "Infinity"]) assert.equal(readableError(text), "∞");
});

test("columns without known values or with nearly equal sizes are left out", () => {
  assert.equal(isTelling([null, undefined]), false);
  assert.equal(isTelling([null, 3]), true);
  assert.equal(doDiffer([100, 101, null]), false);
  assert.equal(doDiffer([100, 50]), true);
  assert.equal(doDiffer([]), false);
});
