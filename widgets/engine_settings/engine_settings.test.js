import assert from "node:assert/strict";
import { test } from "node:test";
import { actionOf, nameOf, speedUpText, toneOf } from "./rows.js";

const row = (/** @type {any} */ more = {}) => ({
  name: "no arena",
  threads: 2,
  speedup: 1.5,
  likely: "1.40–1.62",
  failure: null,
  word: "faster",
  tone: "good",
  is_option: true,
  is_used: false,
  ...more,
});

test("an option has its threads, its speed-up with the likely range, and a verdict", () => {
  assert.equal(nameOf(row()), "no arena · 2 threads");
  assert.equal(nameOf(row({ name: "one thread", threads: 1 })), "one thread");
  assert.equal(
    nameOf(row({ name: "spinning threads", threads: 1 })),
    "spinning threads · 1 thread",
  );
  assert.equal(speedUpText(row()), "1.50 (1.40–1.62)");
  assert.equal(toneOf(row()), "pf-is-good");
  assert.equal(toneOf(row({ tone: "untold", word: "not told" })), "");
});

test("an option is used with a click, once; the model in torch and what failed are not", () => {
  assert.equal(actionOf(row()), "use");
  assert.equal(actionOf(row({ is_used: true })), "in the recipe");
  assert.equal(actionOf(row({ failure: "no session", speedup: null })), "");
  const torch = row({ name: "baseline · 1 thread", threads: 1, is_option: false });
  assert.deepEqual(
    [nameOf(torch), speedUpText(torch), actionOf(torch), toneOf(torch)],
    ["the model in torch · 1 thread", "–", "", ""],
  );
});
