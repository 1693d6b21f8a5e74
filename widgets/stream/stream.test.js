import assert from "node:assert/strict";
import { test } from "node:test";

import {
  latencyBars,
  rateChart,
  ratePath,
  SHAPES,
  shapeOf,
  spokenLine,
  unpackedStream,
  workerLine,
} from "./layout.js";

const view = (/** @type {number[]} */ values) => new DataView(new Float32Array(values).buffer);
const DATA = {
  title: "clip.mp4 → decode",
  state: "running",
  summary: [],
  done: 30,
  expected: 60,
  rate: 20,
  elapsed_s: 2,
  latency: [{ name: "frame", p50: 10, p95: 20, p99: 40 }],
  stages: [{ name: "decode", p50: 1, p95: 2, p99: 4 }],
  queues: { window: 8 },
  nodes: [],
  counts: { hedged: 1, "workers lost": 1 },
  events: [{ at_s: 1, kind: "hedged", node: "thread-0", group: 2, text: "" }],
  failures: [],
  at: view([0.5, 1, 1.5]),
  rates: view([10, 30, 20]),
};

test("nothing is drawn before the stream has begun", () => {
  assert.equal(unpackedStream({}), null);
  assert.equal(unpackedStream(undefined), null);
});

test("the rate stays inside its chart at every width", () => {
  const stream = unpackedStream(DATA);
  assert.ok(stream);
  for (const width of [120, 480, 1600]) {
    const chart = rateChart(width, stream);
    const points = [...ratePath(chart, stream).matchAll(/[ML]([\d.]+) ([\d.]+)/g)];
    assert.equal(points.length, 3);
    for (const [, x, y] of points) {
      assert.ok(Number(x) >= chart.left && Number(x) <= chart.right);
      assert.ok(Number(y) >= chart.top && Number(y) <= chart.bottom);
    }
    assert.ok(chart.x(stream.events[0].at_s) <= chart.right);
  }
});

test("a faster moment is higher", () => {
  const stream = unpackedStream(DATA);
  assert.ok(stream);
  const chart = rateChart(600, stream);
  assert.ok(chart.y(30) < chart.y(10));
});

test("the figures of a latency stand in their order, on one scale for all stages", () => {
  const stream = unpackedStream(DATA);
  assert.ok(stream?.latency);
  const bars = latencyBars(500, [...stream.stages, stream.latency]);
  for (const { start, p50, p95, p99 } of bars) assert.ok(start < p50 && p50 < p95 && p95 < p99);
  assert.ok(Math.abs(bars[0].p99 - bars[0].start - (bars[1].p99 - bars[1].start) / 10) < 1e-9);
  assert.ok(bars[1].y > bars[0].y);
});

test("a stream that has no rates yet has a chart all the same", () => {
  const stream = unpackedStream({ ...DATA, at: view([]), rates: view([]), rate: 0, elapsed_s: 0 });
  assert.ok(stream);
  assert.equal(ratePath(rateChart(400, stream), stream), "");
});

test("an empty picture is none", () => {
  assert.equal(
    unpackedStream({ ...DATA, picture: new DataView(new ArrayBuffer(0)) })?.picture,
    null,
  );
  assert.ok(unpackedStream({ ...DATA, picture: new DataView(new ArrayBuffer(3)) })?.picture);
});

test("what is spoken says how far it is, also where the end is not known", () => {
  const stream = unpackedStream(DATA);
  assert.ok(stream);
  assert.equal(spokenLine(stream), "running: 30 of 60 frames, 20 a second");
  assert.equal(spokenLine({ ...stream, expected: null }), "running: 30 frames, 20 a second");
});

test("a worker without an estimate has none in its line", () => {
  const worker = { name: "a", host: "", state: "up", share: 1, hedges: 0, failures: 0 };
  const line = (/** @type {number | null} */ estimate_ms) =>
    workerLine({ ...worker, frames: 3, in_flight: 1, estimate_ms });
  assert.equal(line(null), "3 frames, 1 in flight");
  assert.equal(line(2.5), "3 frames, 2.5 ms a frame, 1 in flight");
});

test("a stream that waits says for what", () => {
  const stream = unpackedStream({ ...DATA, state: "waiting", message: "Waiting for a GPU." });
  assert.ok(stream);
  assert.equal(spokenLine(stream), "waiting: Waiting for a GPU.");
});

test("every figure of what went wrong has the shape of its marks", () => {
  for (const name of ["hedged", "sent again", "set aside", "workers lost", "workers hung"])
    assert.ok(shapeOf(name), name);
  assert.equal(shapeOf("workers lost"), SHAPES.lost);
  assert.equal(shapeOf("corrupt on arrival"), SHAPES.corrupt);
});

test("the kinds of marks differ in shape, those of an ended worker alone are alike", () => {
  const shapes = Object.entries(SHAPES).filter(([kind]) => kind !== "hung");
  assert.equal(new Set(shapes.map(([, shape]) => shape)).size, shapes.length);
});
