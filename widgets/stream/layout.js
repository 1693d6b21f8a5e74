/** The geometry of a stream's charts: its rate over time, latency by stage. No DOM. */

import { linearScale, linearTicks } from "../shared/scale.js";
import { float32s } from "../shared/unpack.js";

/**
 * @typedef {{ name: string, p50: number, p95: number, p99: number }} Spread
 * @typedef {{ name: string, host: string, state: string, frames: number, share: number,
 * estimate_ms: number | null, in_flight: number, hedges: number, failures: number }} Worker
 * @typedef {{ at_s: number, kind: string, node: string, group: number | null, text: string }} Mark
 * @typedef {{ title: string, state: string, message: string, summary: string[], done: number,
 * expected: number | null, rate: number, elapsedS: number, latency: Spread | null, stages:
 * Spread[], queues: Record<string, number>, nodes: Worker[], counts: Record<string, number>,
 * events: Mark[], failures: { index: number, stage: string, message: string }[], at:
 * Float32Array, rates: Float32Array, picture: DataView | null }} Stream
 * @typedef {{ left: number, right: number, top: number, bottom: number, height: number, x:
 * import("../shared/scale.js").Scale, y: import("../shared/scale.js").Scale, ticks: number[],
 * seconds: number[] }} Chart
 */

const LEFT = 44;
const RIGHT = 10;
const TOP = 20;
const HEIGHT = 150;
export const NAME_WIDTH = 96;
export const ROW = 22;

/** Kinds of marks that are drawn, and their shapes, which differ without colours. */
export const SHAPES = /** @type {Record<string, string>} */ ({
  hedged: "M0 -4L4 4L-4 4Z",
  "sent again": "M0 4L4 -4L-4 -4Z",
  lost: "M-4 -4L4 4M4 -4L-4 4",
  hung: "M-4 -4L4 4M4 -4L-4 4",
  corrupt: "M-4 0L4 0M0 -4L0 4",
  "set aside": "M-3 -3L3 -3L3 3L-3 3Z",
});

/** What counts are called whose marks have another name. */
const KINDS = /** @type {Record<string, string>} */ ({
  "workers lost": "lost",
  "workers hung": "hung",
  "corrupt on arrival": "corrupt",
});

/** The shape of the marks that a figure counts. @param {string} name */
export function shapeOf(name) {
  return SHAPES[KINDS[name] ?? name];
}

/** Unpack the trait `data`; null before the stream has begun. @param {any} data @returns {Stream | null} */
export function unpackedStream(data) {
  if (!data?.state) return null;
  return {
    title: data.title,
    state: data.state,
    message: data.message ?? "",
    summary: data.summary,
    done: data.done,
    expected: data.expected,
    rate: data.rate,
    elapsedS: data.elapsed_s,
    latency: data.latency[0] ?? null,
    stages: data.stages,
    queues: data.queues,
    nodes: data.nodes,
    counts: data.counts,
    events: data.events,
    failures: data.failures,
    at: float32s(data.at),
    rates: float32s(data.rates),
    picture: data.picture?.byteLength ? data.picture : null,
  };
}

/** The chart of the rate. @param {number} width @param {Stream} stream @returns {Chart} */
export function rateChart(width, stream) {
  const right = Math.max(LEFT + 60, width - RIGHT);
  const bottom = HEIGHT - 22;
  const highest = Math.max(1e-6, stream.rate, ...stream.rates) * 1.1;
  const last = Math.max(1e-6, stream.elapsedS, ...stream.at);
  return {
    left: LEFT,
    right,
    top: TOP,
    bottom,
    height: HEIGHT,
    x: linearScale(0, last, LEFT, right),
    y: linearScale(0, highest, bottom, TOP),
    ticks: linearTicks(0, highest, 3),
    seconds: linearTicks(0, last, right - LEFT > 360 ? 6 : 3),
  };
}

/** The path of the rate. @param {Chart} chart @param {Stream} stream */
export function ratePath(chart, stream) {
  return Array.from(stream.at, (at, index) => {
    const [x, y] = [chart.x(at), chart.y(stream.rates[index])];
    return `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
}

/**
 * The bars of latencies: where p50, p95 and p99 stand, right of the names.
 * @param {number} width @param {Spread[]} rows
 */
export function latencyBars(width, rows) {
  const right = Math.max(NAME_WIDTH + 60, width - 130);
  const x = linearScale(0, Math.max(1e-9, ...rows.map((row) => row.p99)), NAME_WIDTH, right);
  return rows.map((row, index) => ({
    row,
    y: index * ROW + ROW / 2,
    start: NAME_WIDTH,
    p50: x(row.p50),
    p95: x(row.p95),
    p99: x(row.p99),
  }));
}

/** What a stream does, in a sentence to be listened to. @param {Stream} stream */
export function spokenLine(stream) {
  if (stream.message) return `${stream.state}: ${stream.message}`;
  const of = stream.expected === null ? "" : ` of ${stream.expected}`;
  return `${stream.state}: ${stream.done}${of} frames, ${rounded(stream.rate)} a second`;
}

/** Milliseconds or rates in three figures. @param {number} value */
export function rounded(value) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

/** What a worker is called and does, in a line. @param {Worker} worker */
export function workerLine(worker) {
  const each = worker.estimate_ms === null ? "" : `, ${rounded(worker.estimate_ms)} ms a frame`;
  return `${worker.frames} frames${each}, ${worker.in_flight} in flight`;
}
