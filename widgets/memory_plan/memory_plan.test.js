import assert from "node:assert/strict";
import { test } from "node:test";
import { bufferAt, bufferBox, bufferOrder, levelsOf, planFrame, unpackedPlan } from "./layout.js";

const view = (/** @type {any} */ array) => new DataView(array.buffer);

/** Two buffers that live one after the other at one address, and one above them throughout. */
function sent(more = {}) {
  return {
    title: "net",
    sentence: "",
    note: "",
    workload: "net",
    operators: 4,
    held_bytes: 12e9,
    packed_bytes: 9e9,
    bound_bytes: 9e9,
    fullest: 0,
    groups: ["a", "b"],
    group_of: view(new Int32Array([0, 0, 1])),
    layer: { names: ["a", "b"], codes: view(new Uint16Array([0, 0, 1])) },
    operator: { names: ["conv"], codes: view(new Uint16Array([0, 0, 0])) },
    begin: view(new Int32Array([2, 0, 0])),
    end: view(new Int32Array([3, 1, 3])),
    size_bytes: view(new Float64Array([5e9, 5e9, 4e9])),
    offset_bytes: view(new Float64Array([0, 0, 5e9])),
    alive_bytes: view(new Float64Array([9e9, 9e9, 9e9, 9e9])),
    ...more,
  };
}

test("a plan is unpacked to the byte past 32 bits; nothing is no plan", () => {
  const plan = unpackedPlan(sent());
  assert.deepEqual(
    plan?.buffers.map(({ layer, size, offset }) => [layer, size, offset]),
    [
      ["a", 5e9, 0],
      ["a", 5e9, 0],
      ["b", 4e9, 5e9],
    ],
  );
  assert.equal(unpackedPlan({}), null);
  assert.equal(unpackedPlan(undefined), null);
});

test("a box is as wide as its buffer lives and as high as it is large, inside the frame", () => {
  const plan = /** @type {any} */ (unpackedPlan(sent()));
  for (const width of [300, 900]) {
    const frame = planFrame(width, plan);
    const [late, early, above] = plan.buffers.map((/** @type {any} */ one) =>
      bufferBox(one, frame),
    );
    assert.ok(Math.abs(early.x + early.width - late.x) < 1e-9, "one begins where the other ends");
    assert.ok(Math.abs(above.y + above.height - early.y) < 1e-9, "it lies on top of both");
    assert.ok(Math.abs(above.width - 2 * early.width) < 1e-9);
    assert.ok(above.y >= frame.top && late.x + late.width <= frame.right + 1e-9);
    assert.equal(bufferAt(plan, frame, late.x + 1, late.y + 1), plan.buffers[0]);
    assert.equal(bufferAt(plan, frame, early.x + 1, early.y + 1), plan.buffers[1]);
    assert.equal(bufferAt(plan, frame, early.x + 1, frame.top + 1), null);
  }
});

test("keys move by time, then by address", () => {
  const plan = /** @type {any} */ (unpackedPlan(sent()));
  assert.deepEqual(
    bufferOrder(plan).map((buffer) => buffer.index),
    [1, 2, 0],
  );
});

test("equal levels are named as one", () => {
  const plan = /** @type {any} */ (unpackedPlan(sent()));
  assert.deepEqual(
    levelsOf(plan).map(({ name, bytes }) => [name, bytes]),
    [
      ["torch held", 12e9],
      ["arena = least", 9e9],
    ],
  );
});

test("a call without buffers is drawn empty", () => {
  const none = view(new Int32Array([]));
  const codes = { names: [], codes: view(new Uint16Array([])) };
  const zero = view(new Float64Array([]));
  const empty = unpackedPlan(
    sent({
      operators: 0,
      held_bytes: 0,
      packed_bytes: 0,
      bound_bytes: 0,
      groups: [],
      ...{ group_of: none, begin: none, end: none, layer: codes, operator: codes },
      ...{ size_bytes: zero, offset_bytes: zero, alive_bytes: zero },
    }),
  );
  assert.deepEqual(empty?.buffers, []);
  assert.ok(Number.isFinite(planFrame(600, /** @type {any} */ (empty)).y(0)));
});
