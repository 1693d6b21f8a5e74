import assert from "node:assert/strict";
import { test } from "node:test";

import { BAR_WIDTH, furthest, MARKS, placeOf, spokenLine } from "./layout.js";

const row = (/** @type {any} */ more) => ({
  name: "bf16",
  state: "on",
  ratio: null,
  interval: null,
  ...more,
});

test("twice as fast and half as fast are equally far from 1", () => {
  const most = furthest([
    row({ ratio: 2, interval: [1.8, 2.5] }),
    row({ ratio: 0.9, interval: [0.2, 1] }),
  ]);
  assert.equal(most, 5, "the furthest end of an interval");
  assert.equal(placeOf(1, most), BAR_WIDTH / 2);
  assert.ok(Math.abs(placeOf(2, most) + placeOf(0.5, most) - BAR_WIDTH) < 1e-9);
  assert.equal(placeOf(100, most), BAR_WIDTH);
  assert.equal(placeOf(0, most), 0);
});

test("an axis without a measurement still has a width", () => {
  assert.equal(furthest([row({})]), 1.25);
  assert.equal(furthest([row({ ratio: 0, interval: [0, 0] })]), 1.25);
});

test("what is said names the switches in force and those that are judged", () => {
  const rows = [
    row({}),
    row({ name: "threads", state: "judging" }),
    row({ name: "compile", state: "waiting" }),
  ];
  const known = { title: "", captions: [], is_enabled: true, steps: 40, rows };
  assert.equal(spokenLine(known), "Step 40: on bf16; judging threads");
  assert.equal(spokenLine({ ...known, rows: [] }), "Step 40: on nothing");
  assert.equal(
    spokenLine({ ...known, is_enabled: false }),
    "Acceleration ended after step 40 with bf16 on",
  );
});

test("every state has a mark of its own shape", () => {
  const shapes = Object.entries(MARKS).filter(([state]) => state !== "waiting");
  assert.equal(new Set(shapes.map(([, path]) => path)).size, 4, "waiting is the hollow one of on");
});
