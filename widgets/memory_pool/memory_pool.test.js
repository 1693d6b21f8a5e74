import assert from "node:assert/strict";
import { test } from "node:test";
import { STEPS, shownStep, stepLine } from "./layout.js";

const step = (more = {}) => ({ is_on: false, obstacle: "", notes: [], ...more });

test("a switch shows what was pressed until Python has served it", () => {
  const known = { pool: step(), reuse: step({ is_on: true, notes: ["12 in place"] }) };
  assert.deepEqual(
    STEPS.map(([kind]) => shownStep(kind, known, []).isOn),
    [false, true],
  );
  const open = [
    { do: "memory_step", kind: "pool", is_on: true },
    { do: "memory_step", kind: "pool", is_on: false },
    { do: "memory_step", kind: "reuse", is_on: false },
    { do: "choose", kind: "pool" },
  ];
  const [pool, reuse] = STEPS.map(([kind]) => shownStep(kind, known, open));
  assert.deepEqual([pool.isOn, pool.isAsked], [false, true], "the last press counts");
  assert.deepEqual([reuse.isOn, reuse.isAsked], [false, true]);
  assert.equal(shownStep("pool", undefined, []).isOn, false);
});

test("the line under a switch says why there is none, or what the step did", () => {
  const line = (/** @type {any} */ more, isBusy = false, open = /** @type {any[]} */ ([])) =>
    stepLine(shownStep("pool", { pool: step(more) }, open), isBusy);
  assert.equal(line({}), "");
  assert.equal(line({ obstacle: "musl has none" }), "There is none here: musl has none.");
  assert.equal(
    line({ is_on: true, notes: ["in force", "it helps (1.2 ×)"] }),
    "in force · it helps (1.2 ×)",
  );
  assert.match(line({ is_on: true }, true), /applied and measured now/);
  assert.match(line({}, false, [{ do: "memory_step", kind: "pool", is_on: true }]), /now/);
});
