import assert from "node:assert/strict";
import { test } from "node:test";

import {
  aliveByPart,
  aliveOfLayer,
  baseOf,
  drawnEvents,
  eventAt,
  heldAt,
  memoryFrame,
  stackedPaths,
  stackingOf,
  unpackedTimeline,
} from "./layout.js";
import { memoryMap, shares, squarified } from "./map.js";
import { eventWords } from "./words.js";
import { overlap } from "../shared/label_space.js";

function buffer(Type, values) {
  // 3 bytes before it: a view may begin anywhere in a message
  const whole = new Uint8Array(3 + Type.BYTES_PER_ELEMENT * values.length);
  whole.set(new Uint8Array(new Type(values).buffer), 3);
  return new DataView(whole.buffer, 3);
}

/** Two layers: a takes 100, an operator of b takes 5 GB and gives it back, b takes 30, a's goes. */
function sent(more = {}) {
  return {
    title: "net",
    sentence: "",
    note: "",
    workload: "net",
    duration_ms: 10,
    layers: ["a", "b.c"],
    groups: ["a", "b"],
    group_of: buffer(Uint16Array, [0, 1]),
    weights_bytes: buffer(Float64Array, [40, 0]),
    time_ms: buffer(Float64Array, [1, 2, 3, 4, 6]),
    change_bytes: buffer(Float64Array, [100, 5e9 + 1, -5e9 - 1, 30, -100]),
    layer_index: buffer(Uint16Array, [0, 1, 1, 1, 0]),
    is_workspace: buffer(Uint8Array, [0, 1, 1, 0, 0]),
    ...more,
  };
}

test("a timeline is unpacked to the byte, wherever its buffers begin", () => {
  const timeline = unpackedTimeline(sent());
  assert.deepEqual(timeline.alive, [100, 5e9 + 101, 100, 130, 30]);
  assert.equal(timeline.peak, 1);
  assert.deepEqual(timeline.isWorkspace, [false, true, true, false, false]);
  assert.equal(unpackedTimeline({}), null);
});

test("what is alive at a moment is shown by layer and kind, the largest first", () => {
  const timeline = unpackedTimeline(sent());
  const figures = (event) =>
    heldAt(timeline, event).map((held) => [held.layer, held.kind, held.bytes]);
  assert.deepEqual(figures(timeline.peak), [
    ["b.c", "workspace", 5e9 + 1],
    ["a", "activations", 100],
    ["a", "weights", 40],
  ]);
  assert.deepEqual(figures(4), [
    ["a", "weights", 40],
    ["b.c", "activations", 30],
  ]);
  assert.deepEqual(figures(-1), [["a", "weights", 40]]);
});

test("groups and layers are followed through the events", () => {
  const timeline = unpackedTimeline(sent());
  assert.deepEqual(aliveByPart(timeline, [0, 3, 4], stackingOf(timeline, "layer")), [
    [100, 0],
    [100, 30],
    [0, 30],
  ]);
  assert.deepEqual(aliveOfLayer(timeline, [0, 3, 4], "b"), [0, 30, 30]);
  assert.deepEqual(aliveOfLayer(timeline, [1], "b.c"), [5e9 + 1]);
});

test("by category the weights are under the call's own bytes, and workspace is apart", () => {
  const timeline = unpackedTimeline(sent());
  const stacking = stackingOf(timeline, "category");
  assert.deepEqual(stacking.names, ["weights", "activations", "workspace"]);
  assert.equal(baseOf(stacking), 40);
  assert.deepEqual(aliveByPart(timeline, [0, 1, 4], stacking), [
    [40, 100, 0],
    [40, 100, 5e9 + 1],
    [40, 30, 0],
  ]);
  assert.deepEqual(stacking.base, [40, 0, 0], "it is not added to");
  for (const [event, parts] of aliveByPart(timeline, [0, 1, 2, 3, 4], stacking).entries())
    assert.equal(
      parts.reduce((sum, bytes) => sum + bytes, 0),
      40 + timeline.alive[event],
    );
});

test("a moment names what is alive then by layer, the largest first, and what is left out", () => {
  const timeline = unpackedTimeline(sent());
  const [heading, line, figures] = eventWords(timeline, 3);
  assert.equal(heading, "130 B after 4 ms");
  assert.equal(line, "b.c takes 30 B");
  assert.deepEqual(figures, [
    ["100 B", "a, activations"],
    ["30 B", "b.c, activations"],
  ]);
  const layers = Array.from({ length: 9 }, (_, index) => `layer${index}`);
  const many = unpackedTimeline(
    sent({
      layers,
      groups: ["all"],
      group_of: buffer(
        Uint16Array,
        layers.map(() => 0),
      ),
      weights_bytes: buffer(
        Float64Array,
        layers.map(() => 0),
      ),
      time_ms: buffer(
        Float64Array,
        layers.map((_, index) => index),
      ),
      change_bytes: buffer(
        Float64Array,
        layers.map((_, index) => index + 1),
      ),
      layer_index: buffer(
        Uint16Array,
        layers.map((_, index) => index),
      ),
      is_workspace: buffer(
        Uint8Array,
        layers.map(() => 0),
      ),
    }),
  );
  const named = eventWords(many, 8)[2];
  assert.deepEqual(named[0], ["9 B", "layer8, activations"]);
  assert.deepEqual([named.length, named.at(-1)], [7, ["6 B", "3 more"]]);
});

test("a moment belongs to the last event before it", () => {
  assert.deepEqual(
    [0, 1, 1.5, 6, 99].map((moment) => eventAt([1, 2, 3, 4, 6], moment)),
    [-1, 0, 0, 4, 4],
  );
  assert.equal(eventAt([], 3), -1);
});

test("of many events a few are drawn, and the peak is always one of them", () => {
  const count = 5000;
  const change = Array.from({ length: count }, (_, event) =>
    event === 3333 ? 1e6 : event === 3334 ? -1e6 : event % 2 ? -10 : 10,
  );
  const timeline = unpackedTimeline(
    sent({
      time_ms: buffer(
        Float64Array,
        change.map((_, event) => (10 * event) / count),
      ),
      change_bytes: buffer(Float64Array, change),
      layer_index: buffer(
        Uint16Array,
        change.map(() => 0),
      ),
      is_workspace: buffer(
        Uint8Array,
        change.map(() => 0),
      ),
    }),
  );
  const drawn = drawnEvents(timeline, 600);
  assert.ok(drawn.length <= 600 && drawn.includes(timeline.peak));
  assert.deepEqual(
    drawn,
    [...drawn].sort((one, other) => one - other),
  );
});

test("everything that is drawn lies inside its frame", () => {
  const timeline = unpackedTimeline(sent());
  for (const width of [220, 600, 1400]) {
    const frame = memoryFrame(width, timeline.duration, 1.06 * timeline.alive[timeline.peak]);
    const stacks = aliveByPart(timeline, [0, 1, 2, 3, 4], stackingOf(timeline, "layer"));
    const spots = stackedPaths(timeline.time, stacks, timeline.duration, frame)
      .join("")
      .match(/[\d.]+ [\d.]+/g);
    for (const spot of spots) {
      const [x, y] = spot.split(" ").map(Number);
      assert.ok(
        x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom + 0.1,
        spot,
      );
    }
    assert.ok(frame.ticksY.length >= 2 && frame.ticksY.every((tick) => frame.y(tick) >= frame.top));
  }
});

test("the boxes of a treemap have their sizes' surfaces, fill their box and do not overlap", () => {
  const sizes = [60, 30, 20, 20, 10, 5, 5, 1];
  const box = { x: 10, y: 20, width: 300, height: 200 };
  const boxes = squarified(sizes, box);
  boxes.forEach((one, index) => {
    assert.ok(Math.abs(one.width * one.height - (sizes[index] * 60000) / 151) < 0.01);
    assert.ok(
      one.x >= 10 && one.y >= 20 && one.x + one.width < 310.01 && one.y + one.height < 220.01,
    );
    for (const other of boxes.slice(index + 1)) assert.ok(!overlap(one, other, -0.01));
  });
  assert.ok(
    boxes.slice(0, 4).every((one) => Math.max(one.width / one.height, one.height / one.width) < 3),
  );
  assert.deepEqual(squarified([], box), []);
});

test("the map has a part for each kind that there is, none too low to be named", () => {
  const held = [
    { layer: "a", kind: "weights", bytes: 1e9, group: 0 },
    { layer: "b", kind: "activations", bytes: 10, group: 1 },
  ];
  const parts = memoryMap(held, 400, 300);
  assert.deepEqual(
    parts.map((part) => part.kind),
    ["weights", "activations"],
  );
  const [cell] = parts[1].cells;
  assert.ok(cell.box.height >= 21.9 && cell.box.y + cell.box.height <= 300.01);
  assert.ok(
    Math.abs(shares([5, 0, 95], 100, 10).reduce((sum, size) => sum + size, 0) - 100) < 1e-9,
  );
});
