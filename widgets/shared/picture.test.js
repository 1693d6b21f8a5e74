import assert from "node:assert/strict";
import { test } from "node:test";

import {
  framesOf,
  nearestStop,
  pathOf,
  pointsAt,
  rowAt,
  spotAt,
  spotsOf,
  stopAfterKey,
  wordsOf,
} from "./picture.js";
import { LayerChoice } from "./picture_choice.js";

const axis = (/** @type {any} */ more) => ({
  low: 0,
  high: 8,
  label: "",
  kind: "linear",
  ticks: [0, 2, 4, 6, 8],
  names: ["0", "2", "4", "6", "8"],
  ...more,
});
const tips = { heading: ["a", "b"], line: [], figures: [] };
const boxes = {
  mark: "Boxes",
  tone: "main",
  key: ["a", "b"],
  tips,
  x: [0, 4],
  x2: [4, 8],
  y: [0, 0],
  y2: [8, 4],
};
const line = { mark: "Line", style: "solid", key: [], tips: null, x: [0, 4, 8], y: [2, NaN, 20] };
const panel = (/** @type {any} */ more) => ({
  x: axis({}),
  y: axis({}),
  marks: [boxes, line],
  height: 170,
  ...more,
});
const picture = /** @type {any} */ ({ rows: [[panel({})], [panel({}), panel({})]] });

test("panels stand beside each other where there is room, and every one inside the picture", () => {
  for (const width of [360, 599, 1240]) {
    const { frames, height } = framesOf(width, picture);
    assert.equal(height, width < 600 ? 510 : 340);
    for (const { left, right, top, bottom } of frames)
      assert.ok(left > 0 && right <= width && top > 0 && bottom < height && left < right);
  }
});

test("ticks are thinned until none stands in another", () => {
  const names = ["1,000 kB", "2,000 kB", "3,000 kB", "4,000 kB", "5,000 kB"];
  const many = /** @type {any} */ ({ rows: [[panel({ x: axis({ names }) })]] });
  const shown = (/** @type {number} */ width) =>
    framesOf(width, many).frames[0].xTicks.map((tick) => tick.name);
  assert.deepEqual(shown(900), names);
  assert.deepEqual(shown(250), [names[0], names[2], names[4]]);
});

test("a spot is the box under the pointer, or else one close by", () => {
  const { frames } = framesOf(600, /** @type {any} */ ({ rows: [[panel({})]] }));
  const spots = spotsOf(frames);
  const [frame] = frames;
  const at = (/** @type {number} */ x, /** @type {number} */ y) =>
    spotAt(spots, frame.x(x), frame.y(y))?.key;
  assert.equal(at(1, 6), "a");
  assert.equal(at(6, 2), "b");
  assert.equal(at(6, 6), undefined);
  assert.equal(spotAt(spots, frame.x(6), frame.y(4) - 2)?.key, "b");
});

test("a line is broken where a value is not known, and stays inside its panel", () => {
  const [frame] = framesOf(600, picture).frames;
  const path = pathOf(/** @type {any} */ (line), frame);
  assert.equal(path.match(/M/g)?.length, 2);
  assert.ok(path.endsWith(` ${frame.top.toFixed(1)}`));
  assert.deepEqual(pointsAt(frame, 4), []);
  assert.equal(pointsAt(frame, 0).length, 1);
});

test("a line is broken on a logarithmic axis as well", () => {
  const y = axis({ low: 1, high: 30, kind: "log", ticks: [1, 10], names: ["1", "10"] });
  const [frame] = framesOf(600, /** @type {any} */ ({ rows: [[panel({ y })]] })).frames;
  const path = pathOf(/** @type {any} */ (line), frame);
  assert.equal(path.match(/M/g)?.length, 2);
  assert.ok(!path.includes(` ${frame.bottom.toFixed(1)}`));
});

test("a cursor goes to the nearest row of the panel under the pointer", () => {
  const { frames } = framesOf(600, picture);
  const cursor = /** @type {any} */ ({ at: [0, 4, 8] });
  assert.equal(rowAt(cursor, frames, frames[0].x(3), frames[0].top), 1);
  assert.equal(rowAt(cursor, frames, -100, frames[0].top), null);
});

test("figures that are not known are left out of a tooltip", () => {
  const figures = [
    { name: "size", values: [1500, NaN], readable: "bytes" },
    { name: "note", values: ["", "late"], readable: "" },
  ];
  const known = { heading: ["a", "b"], line: ["x"], figures };
  assert.deepEqual(wordsOf(known, 0), ["a", "x", [["1.5 kB", "size"]]]);
  assert.deepEqual(wordsOf(known, 1), ["b", "", [["late", "note"]]]);
});

test("a handle goes to the nearest stop; of equal ones to the last", () => {
  const down = /** @type {any} */ ((/** @type {number} */ value) => 100 - 10 * value);
  const at = [8, 4, 4, 0];
  assert.deepEqual(
    [-50, 20, 39, 41, 60, 81, 300].map((y) => nearestStop(at, down, y)),
    [0, 0, 0, 2, 2, 3, 3],
  );
});

test("keys move a handle by a stop or a tenth, and never past its ends", () => {
  const keys = ["ArrowUp", "ArrowDown", "ArrowLeft", "PageUp", "PageDown", "Home", "End", "a"];
  const after = (/** @type {number} */ row) => keys.map((key) => stopAfterKey(key, row, 40));
  assert.deepEqual(after(20), [19, 21, 21, 16, 24, 39, 0, null]);
  assert.deepEqual(after(0), [0, 1, 1, 0, 4, 39, 0, null]);
  assert.equal(stopAfterKey("PageDown", 0, 3), 1);
});

test("+ on a layer without a picture zooms on the nearest around it that has one", () => {
  /** @type {string[]} */
  const asked = [];
  const choice = {
    picture: { by_layer: [["a"], ["a.b"]] },
    field: { value: "a.b" },
    host: { select: (/** @type {string} */ layer) => asked.push(layer) },
  };
  for (const [key, pointed] of [
    ["+", "a.b.c"],
    ["+", "a.x"],
    ["+", "a.b"],
    ["-", "a.b"],
    ["0", "a.b"],
  ]) {
    const event = /** @type {any} */ ({ key, preventDefault() {} });
    LayerChoice.prototype.zoom.call(choice, event, pointed);
  }
  assert.deepEqual(asked, ["a.b", "a", "a.b", "a", ""]);
});
