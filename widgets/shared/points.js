/** Points of a chart: their outline, the one under the pointer, and the extent of an error bar. */

import { clamped } from "./label_space.js";

const DIAMOND = [
  [0, -1.253],
  [1.253, 0],
  [0, 1.253],
  [-1.253, 0],
];
/** In radii of the circle that has the same surface. @type {Record<string, number[][]>} */
const CORNERS = {
  memory: [
    [-0.886, -0.886],
    [0.886, -0.886],
    [0.886, 0.886],
    [-0.886, 0.886],
  ],
  overhead: [
    [0, -1.45],
    [1.29, 0.83],
    [-1.29, 0.83],
  ],
};

/**
 * The dot that a pointer means: the nearest rim, within reach.
 * @template {{ x: number, y: number, radius: number }} Dot
 * @param {Dot[]} dots @param {number} x @param {number} y @param {number} [reach]
 * @returns {Dot | null}
 */
export function nearestDot(dots, x, y, reach = 10) {
  let best = /** @type {Dot | null} */ (null);
  let least = reach;
  for (const dot of dots) {
    const off = Math.hypot(dot.x - x, dot.y - y);
    const beyond = off <= dot.radius ? off / dot.radius - 1 : off - dot.radius;
    if (beyond < least) [best, least] = [dot, beyond];
  }
  return best;
}

/**
 * The outline of a mark: its shape encodes the bound, as its colour does; shapes of equal time have
 * equal area.
 * @param {string | null} bound @param {number} x @param {number} y @param {number} radius
 */
export function markPath(bound, x, y, radius) {
  if (bound !== "compute") return polygon(x, y, CORNERS[bound ?? ""] ?? DIAMOND, radius);
  const arc = `a${pixel(radius)} ${pixel(radius)} 0 1 0`;
  const start = `M${pixel(x - radius)} ${pixel(y)}`;
  return `${start}${arc} ${pixel(2 * radius)} 0${arc} ${pixel(-2 * radius)} 0Z`;
}

/**
 * The ends of an error bar, clipped to the drawing; null if no error is known.
 * @param {number} value @param {number} error @param {import("./scale.js").Scale} scale @param
 * {number} low @param {number} high in pixels
 * @returns {[number, number] | null}
 */
export function reachOf(value, error, scale, low, high) {
  if (!(error > 0)) return null;
  const [least, most] = [Math.min(low, high), Math.max(low, high)];
  return [clamped(scale(value - error), least, most), clamped(scale(value + error), least, most)];
}

/** @param {number} x @param {number} y @param {number[][]} corners @param {number} size */
function polygon(x, y, corners, size) {
  const spots = corners.map(
    ([across, down]) => `${pixel(x + across * size)} ${pixel(y + down * size)}`,
  );
  return `M${spots.join("L")}Z`;
}

/** @param {number} value */
function pixel(value) {
  return value.toFixed(1);
}
