/**
 * The geometry of error and speed over the kept share: stops are equally spaced, the largest share
 * at the right. No DOM.
 */

import { WIDEST_ERRORS } from "./table.js";
import { clamped } from "../shared/label_space.js";
import { linearScale, linearTicks, logScale, logTicks } from "../shared/scale.js";

/**
 * @typedef {{ index: number, x: number, y: number }} StopSpot
 * @typedef {{ name: string, top: number, bottom: number, y: import("../shared/scale.js").Scale,
 * ticks: number[], spots: StopSpot[], equalY: number | null }} StopPanel
 *   `equalY`: the height of a speed-up of 1
 * @typedef {{ left: number, right: number, height: number, xs: number[], panels: StopPanel[] }}
 * AttentionFrame `xs`: where each stop stands
 */

const MARGIN_OF_STOPS = { left: 52, right: 20, top: 22, gap: 30, bottom: 20 };

/**
 * @param {number} width @param {import("./table.js").AttentionStop[]} stops @returns
 * {AttentionFrame}
 */
export function attentionFrame(width, stops) {
  const [left, right] = [
    MARGIN_OF_STOPS.left,
    Math.max(MARGIN_OF_STOPS.left + 40, width - MARGIN_OF_STOPS.right),
  ];
  const step = stops.length > 1 ? (right - left) / (stops.length - 1) : 0;
  const xs = stops.map((stop) =>
    stops.length > 1 ? right - step * stop.index : (left + right) / 2,
  );
  const tall = clamped(Math.round(width * 0.19), 88, 104);
  const isTimed = stops.some((stop) => Number.isFinite(stop.speedup));
  const error = errorPanel(stops, xs, MARGIN_OF_STOPS.top, MARGIN_OF_STOPS.top + tall);
  const speed = isTimed
    ? [
        speedPanel(
          stops,
          xs,
          error.bottom + MARGIN_OF_STOPS.gap,
          error.bottom + MARGIN_OF_STOPS.gap + tall,
        ),
      ]
    : [];
  const panels = [error, ...speed];
  return {
    left,
    right,
    height: panels[panels.length - 1].bottom + MARGIN_OF_STOPS.bottom,
    xs,
    panels,
  };
}

/** The stop nearest to a position. @param {AttentionFrame} frame @param {number} x */
export function nearestStop(frame, x) {
  return frame.xs.reduce(
    (best, other, index) => (Math.abs(other - x) < Math.abs(frame.xs[best] - x) ? index : best),
    0,
  );
}

/**
 * @param {import("./table.js").AttentionStop[]} stops @param {number[]} xs @param {number} top
 * @param {number} bottom @returns {StopPanel}
 */
function errorPanel(stops, xs, top, bottom) {
  const known = stops.map((stop) => stop.error).filter((error) => error > 0 && error < Infinity);
  const most = Math.max(...known);
  const isExactSomewhere = stops.some((stop) => stop.error === 0);
  const least = isExactSomewhere ? 0 : Math.min(...known);
  const [low, high] = known.length
    ? [Math.max(least, most / WIDEST_ERRORS) / 1.5, most * 1.5]
    : [0.01, 1];
  const y = logScale(low, high, bottom, top);
  const spots = stops
    .filter((stop) => stop.error >= 0 && stop.error < Infinity)
    .map((stop) => ({ index: stop.index, x: xs[stop.index], y: y(Math.max(stop.error, low)) }));
  return {
    name: "error of the output",
    top,
    bottom,
    y,
    ticks: logTicks(low, high, 4),
    spots,
    equalY: null,
  };
}

/**
 * @param {import("./table.js").AttentionStop[]} stops @param {number[]} xs @param {number} top
 * @param {number} bottom @returns {StopPanel}
 */
function speedPanel(stops, xs, top, bottom) {
  const timed = stops.filter((stop) => Number.isFinite(stop.speedup));
  const speeds = timed.map((stop) => stop.speedup);
  const [low, high] = [Math.min(1, ...speeds), Math.max(1, ...speeds)];
  const room = Math.max(0.05, 0.14 * (high - low));
  const [least, most] = [Math.max(0, low - room), high + room];
  const y = linearScale(least, most, bottom, top);
  const spots = timed.map((stop) => ({ index: stop.index, x: xs[stop.index], y: y(stop.speedup) }));
  return {
    name: "times as fast, measured",
    top,
    bottom,
    y,
    ticks: linearTicks(least, most, 4),
    spots,
    equalY: y(1),
  };
}
