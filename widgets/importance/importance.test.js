import assert from "node:assert/strict";
import { test } from "node:test";
import { isSameData } from "../shared/same_data.js";
import { throttle } from "../shared/throttle.js";
import { channelsColumn } from "../workbench/channels_column.js";
import { chosenCounts } from "../workbench/detail_channels.js";
import { isAsked, LiveThreshold, thresholdAt } from "./live.js";

/** A model of traits, as a panel has one, and what it was sent. @param {Record<string, any>} given */
function modelOf(given) {
  const traits = /** @type {Record<string, any>} */ ({ requests: [], served: 0, ...given });
  /** @type {any[]} */
  const sent = [];
  return {
    sent,
    get: (/** @type {string} */ name) => traits[name],
    set: (/** @type {string} */ name, /** @type {any} */ value) => (traits[name] = value),
    save_changes: () => sent.push(traits.live),
  };
}

test("a stop is a threshold with the number of channels that it keeps", () => {
  const [kept, at] = [
    { name: "of 3 channels kept", values: [1, 2, 3], readable: "rate" },
    { name: "× the mean", values: Float32Array.from([1.5, 0.5, 0]), readable: "digits" },
  ];
  const handle = /** @type {any} */ ({ figures: [kept, at] });
  assert.deepEqual(thresholdAt(handle, 1, "conv"), { layer: "conv", threshold: 0.5, kept: 2 });
});

test("a gesture ends as one request, which only the workbench takes for a step; or as none", () => {
  /** @type {any[]} */
  const asked = [];
  const host = /** @type {any} */ ({ ask: (/** @type {any} */ request) => asked.push(request) });
  const threshold = { layer: "conv", threshold: 0.5, kept: 2 };
  for (const state of [undefined, {}]) {
    const model = modelOf({ state, live: threshold });
    new LiveThreshold(host, model).end(threshold);
    assert.deepEqual(model.get("live"), {});
  }
  assert.deepEqual(asked, [
    { do: "keep", ...threshold },
    { do: "prune", ...threshold },
  ]);
  const given = modelOf({ live: threshold });
  new LiveThreshold(host, given).end(null);
  assert.deepEqual([asked.length, given.sent], [2, [{}]]);
});

test("until a choice is served the page keeps its own", () => {
  const requests = [{ id: 1, do: "prune" }];
  assert.ok(isAsked(modelOf({ requests })));
  assert.ok(!isAsked(modelOf({ requests, served: 1 })));
  assert.ok(!isAsked(modelOf({ requests: [{ id: 1, do: "undo" }] })));
});

test("of many messages the first is sent at once, the latest later, others never", (given) => {
  given.mock.timers.enable({ apis: ["setTimeout"] });
  /** @type {number[]} */
  const sent = [];
  const messages = throttle(100, (/** @type {number} */ value) => sent.push(value));
  for (const value of [1, 2, 3]) messages.tell(value);
  assert.deepEqual(sent, [1]);
  given.mock.timers.tick(100);
  assert.deepEqual(sent, [1, 3]);
  messages.tell(4);
  messages.drop();
  given.mock.timers.tick(500);
  assert.deepEqual(sent, [1, 3]);
  messages.tell(5);
  assert.deepEqual(sent, [1, 3, 5]);
});

test("the layer table counts what a layer has now, and what is chosen", () => {
  const chosen = new Map([["b", 16]]);
  const column = channelsColumn(() => ({ channels: { a: [8, 16], b: [64, 64] }, chosen }));
  const layers = /** @type {any} */ ({ layers: ["a", "b", "c"] });
  assert.deepEqual(
    [0, 1].map((row) => column.value(layers, row)),
    [0.5, 0.25],
  );
  assert.ok(Number.isNaN(column.value(layers, 2)));
  assert.deepEqual(JSON.parse(column.key?.(layers, 1) ?? ""), { kept: 16, all: 64, isAsked: true });
  assert.equal(column.key?.(layers, 2), "null");
});

test("a drag or uncut choice is shown as chosen; once cut, the running widths are shown", () => {
  const cut = { kept: { a: 2, b: 1, fc: 3 } };
  const counts = (/** @type {Record<string, any>} */ traits) =>
    Object.fromEntries(chosenCounts(modelOf({ cut, ...traits })));
  const whole = { a: [4, 4], b: [2, 2], fc: [3, 3] };
  assert.deepEqual(counts({ state: { channels: whole } }), { a: 2, b: 1 });
  const state = { channels: { ...whole, a: [3, 4] } };
  assert.deepEqual(counts({ state }), { b: 1 });
  assert.deepEqual(counts({ state, live: { layer: "a", kept: 2 } }), { a: 2, b: 1 });
  assert.deepEqual(counts({ state, cut: {} }), {});
});

test("data that are sent again are known by their number", () => {
  const data = { stamp: 3 };
  assert.deepEqual(
    [
      isSameData(data, { stamp: 3 }),
      isSameData(data, { stamp: 4 }),
      isSameData({}, {}),
      isSameData(data, data),
      isSameData(undefined, data),
    ],
    [true, false, false, true, false],
  );
});
