import assert from "node:assert/strict";
import { test } from "node:test";
import { channelsColumn } from "../workbench/channels_column.js";
import { chosenCounts } from "../workbench/detail_channels.js";
import { cutByLine, keptChannels, removedRatio, thresholdOf } from "./choice.js";
import {
  bandPath,
  barsPath,
  channelFrame,
  channelTicks,
  heightAt,
  keptText,
  leftOf,
  thresholdText,
  valueAt,
  whiskerPath,
} from "./layout.js";
import {
  canLose,
  countAbove,
  importanceLine,
  keptAbove,
  keptByOne,
  thresholdKeeping,
  unpackedImportance,
} from "./table.js";
import { throttle } from "../shared/throttle.js";

const floats = (/** @type {number[]} */ ...values) =>
  new DataView(Float32Array.from(values).buffer);
const whole = (/** @type {number[]} */ ...values) => new DataView(Int32Array.from(values).buffer);
const packed = {
  title: "net: how much each channel matters",
  machine: "a machine",
  method: "taylor",
  unit: "A sentence.",
  examples: 8,
  is_interrupted: true,
  notes: ["noted"],
  layer: ["a", "b", "fc", "odd"],
  kind: { names: ["Conv2d", "Linear"], codes: new DataView(Uint16Array.from([0, 0, 1, 1]).buffer) },
  note: {
    names: ["", "the answer", "why"],
    codes: new DataView(Uint16Array.from([0, 0, 1, 2]).buffer),
  },
  channels: whole(4, 2, 3, 5),
  judged: whole(4, 2, 3, 0),
  is_answer: whole(0, 0, 1, 0),
  mean: floats(2, 1, 1, 0),
  value: floats(0.5, 2, 1, 0.5, 1.5, 0.5, 1, 1, 1),
  error: floats(0.05, 0.1, 0.15, 0.2, NaN, NaN, NaN, NaN, NaN),
};
const table = unpackedImportance(packed);

/** A model of traits, as a panel has one. @param {Record<string, any>} traits */
const modelOf = (traits) => ({
  get: (/** @type {string} */ name) => ({ requests: [], served: 0, ...traits })[name],
});

test("a packed importance is unpacked and sorted by layer; an unknown one has no layers", () => {
  assert.deepEqual(
    [table.isKnown, unpackedImportance({}).isKnown, unpackedImportance(undefined).layers],
    [true, false, []],
  );
  assert.deepEqual([...table.sorted[0].channel], [1, 2, 0, 3], "equal ones keep their order");
  assert.deepEqual([...table.sorted[0].value], [2, 1, 0.5, 0.5]);
  assert.deepEqual(
    [...table.sorted[0].error].map((one) => Number(one.toFixed(3))),
    [0.1, 0.15, 0.05, 0.2],
  );
  assert.deepEqual(
    [...table.all],
    [2, 1.5, 1, 0.5, 0.5, 0.5],
    "channels of the answer are not among those that can go",
  );
  assert.deepEqual(
    [0, 1, 2, 3, 9].map((row) => canLose(table, row)),
    [true, true, false, false, false],
  );
  assert.match(
    importanceLine(table),
    /^by taylor · 8 examples · a machine · stopped early.* · noted$/,
  );
});

// The same numbers as in tests/test_importance.py: page and Python count alike.
test("channels not below the threshold are kept, at least one, and all of a fixed layer", () => {
  assert.deepEqual(
    [0, 0.5, 0.6, 1, 1.5, 9].map((threshold) => keptAbove(table, 0, threshold)),
    [4, 4, 2, 2, 1, 1],
  );
  assert.deepEqual(keptByOne(table, 0.6), [2, 1, 3, 5]);
  for (const kept of [1, 2, 4])
    assert.equal(keptAbove(table, 0, thresholdKeeping(table.sorted[0].value, kept)), kept);
  assert.equal(
    keptAbove(table, 0, thresholdKeeping(table.sorted[0].value, 3)),
    4,
    "equal values stay together",
  );
  assert.deepEqual(
    [countAbove(table.all, 0.5), countAbove(table.all, 3), thresholdKeeping(new Float32Array(), 0)],
    [6, 0, 0],
  );
});

test("the workbench, which knows the recipe, decides which scores cut, else the record", () => {
  const recorded = unpackedImportance({ ...packed, cut_by: "of the record" });
  assert.equal(cutByLine(modelOf({}), recorded), "of the record");
  assert.equal(
    cutByLine(modelOf({ state: { cut_by: "of the recipe" } }), recorded),
    "of the recipe",
  );
  assert.equal(cutByLine(modelOf({}), table), "", "a record of before says nothing");
});

test("what Python sent is shown, and on top what was asked for since", () => {
  const alone = { kept: { a: 3, b: 2, fc: 3, odd: 5 } };
  assert.deepEqual(keptChannels(modelOf(alone), table), [3, 2, 3, 5]);
  const one = { id: 1, do: "keep", layer: "a", threshold: 1, kept: 2 };
  assert.deepEqual(keptChannels(modelOf({ ...alone, requests: [one] }), table), [2, 2, 3, 5]);
  assert.deepEqual(
    keptChannels(modelOf({ ...alone, requests: [one], served: 1 }), table),
    [3, 2, 3, 5],
    "served requests are Python's to tell",
  );
  const all = { id: 2, do: "keep", layer: "", threshold: 1.2, kept: 10 };
  assert.deepEqual(keptChannels(modelOf({ ...alone, requests: [one, all] }), table), [1, 1, 3, 5]);
  const stranger = { id: 3, do: "keep", layer: "nobody", threshold: 1, kept: 1 };
  assert.deepEqual(keptChannels(modelOf({ ...alone, requests: [stranger] }), table), [3, 2, 3, 5]);
});

test("in the workbench the recipe's ratios say what is kept", () => {
  assert.deepEqual(
    keptChannels(modelOf({ state: { pruned: { a: 0.75, fc: 0.5 } } }), table),
    [1, 2, 3, 5],
  );
  assert.deepEqual(keptChannels(modelOf({ state: {} }), table), [4, 2, 3, 5]);
  const asked = { id: 1, do: "prune", layer: "b", ratio: 0.5 };
  assert.deepEqual(
    keptChannels(modelOf({ state: { pruned: { a: 0.5 } }, requests: [asked] }), table),
    [2, 1, 3, 5],
  );
  assert.equal(removedRatio(table, 0, 1), 0.75);
});

test("a line stays where it was put as long as that keeps what is kept", () => {
  assert.equal(thresholdOf(table, 0, 2, 0.61), 0.61);
  assert.equal(thresholdOf(table, 0, 1, 0.61), 1.5);
  assert.equal(thresholdOf(table, 0, 4, undefined), 0);
});

test("heights and values are each other's inverse, and small values have room", () => {
  const frame = channelFrame(400, 200, table.sorted[0]);
  for (const value of [0, 0.1, 1, 2])
    assert.ok(Math.abs(valueAt(frame, heightAt(frame, value)) - value) < 1e-9);
  assert.deepEqual([heightAt(frame, 0), heightAt(frame, 99)], [frame.bottom, frame.top]);
  assert.deepEqual(
    [valueAt(frame, 999), valueAt(frame, -999)],
    [0, frame.most],
    "beyond the ends is an end",
  );
  assert.ok(frame.bottom - heightAt(frame, frame.most / 4) > (frame.bottom - frame.top) / 4);
  assert.ok(frame.most > 2.1, "the error of the highest has room too");
});

test("a bar a channel; of thousands as many as there are pixels", () => {
  const frame = channelFrame(400, 200, table.sorted[0]);
  assert.equal(barsPath(frame, table.sorted[0].value).split("M").length - 1, 4);
  const many = {
    value: Float32Array.from({ length: 4096 }, (_, index) => 2 - index / 2048),
    error: new Float32Array(4096).fill(NaN),
  };
  const wide = channelFrame(400, 200, many);
  const bars = barsPath(wide, many.value);
  assert.ok(bars.split("M").length - 1 <= 400 && bars.length < 40_000 && !bars.includes("NaN"));
  assert.equal(leftOf(wide, 4096), wide.right);
});

test("a line or a band spans the standard errors; without them there is none", () => {
  const wide = channelFrame(400, 200, table.sorted[0]);
  assert.equal(bandPath(wide, table.sorted[0]), "");
  assert.equal(whiskerPath(wide, table.sorted[0]).split("V").length - 1, 4);
  const narrow = { ...wide, right: wide.left + 12 };
  const band = bandPath(narrow, table.sorted[0]);
  assert.ok(
    band.startsWith("M") &&
      band.endsWith("Z") &&
      !band.includes("NaN") &&
      band.split("L").length === 16,
  );
  assert.equal(whiskerPath(narrow, table.sorted[0]), "");
  for (const path of [bandPath, whiskerPath])
    assert.equal(path(channelFrame(400, 200, table.sorted[1]), table.sorted[1]), "");
  assert.equal(
    bandPath(channelFrame(400, 200, { value: new Float32Array(), error: new Float32Array() }), {
      value: new Float32Array(),
      error: new Float32Array(),
    }),
    "",
  );
});

test("the mean is always a tick, and ticks keep their distance", () => {
  const frame = channelFrame(400, 210, table.sorted[0]);
  const ticks = channelTicks(frame);
  assert.ok(
    ticks.includes(1) &&
      ticks.every(
        (one, place) =>
          place === 0 || heightAt(frame, ticks[place - 1]) - heightAt(frame, one) > 15,
      ),
  );
});

test("numbers are short", () => {
  assert.equal(keptText(1032, 4096), "1,032 of 4,096 channels kept");
  assert.deepEqual([0, 0.1234, 1.26, 123.4].map(thresholdText), ["0", "0.12", "1.3", "123"]);
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
  const kept = [2, 1, 3, 5];
  const counts = (/** @type {Record<string, any>} */ traits) =>
    Object.fromEntries(chosenCounts(modelOf(traits), table, kept));
  assert.deepEqual(counts({ state: { channels: { a: [4, 4], b: [2, 2] } } }), { a: 2, b: 1 });
  assert.deepEqual(counts({ state: { channels: { a: [3, 4], b: [2, 2] } } }), { b: 1 });
  const requests = [{ id: 1, do: "prune", layer: "a", ratio: 0.5 }];
  assert.deepEqual(counts({ state: { channels: { a: [3, 4], b: [1, 2] } }, requests }), { a: 2 });
  assert.deepEqual(
    counts({ state: { channels: { a: [3, 4], b: [1, 2] } }, live: { layer: "b", kept: 2 } }),
    { b: 2 },
  );
});
