/** The costliest layers, and their points on the roofline. */

import { numberAt } from "../shared/unpack.js";

/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */
/**
 * @typedef {{ layer: string, kind: string, intensity: number, gflops: number, ms: number, bound:
 * string | null }} RoofPoint
 */

const COMPANY = 14;

/**
 * The rows that took the most time themselves, the longest first.
 * @param {LayerTable} table @param {number} count @returns {number[]}
 */
export function costliest(table, count) {
  const ms = (/** @type {number} */ row) => numberAt(table, "self_ms", row);
  const rows = Array.from(table.layers.keys()).filter((row) => table.layers[row] && ms(row) > 0);
  return rows.sort((first, second) => ms(second) - ms(first)).slice(0, count);
}

/**
 * The chosen layer among the costliest, for comparison.
 * @param {LayerTable} table @param {string} layer
 * @param {{ intensity: number, gflops: number, ms: number, bound: string | null } | null} point
 * what is known of the chosen one
 * @returns {RoofPoint[]}
 */
export function roofPoints(table, layer, point) {
  const others = costliest(table, COMPANY).filter((row) => table.layers[row] !== layer);
  const points = others
    .map((row) => pointOf(table, row))
    .filter((row) => row.intensity > 0 && row.gflops > 0);
  if (!point) return points;
  const row = table.place.get(layer);
  return [...points, { layer, kind: row === undefined ? "" : table.kind[row], ...point }];
}

/** @param {LayerTable} table @param {number} row @returns {RoofPoint} */
function pointOf(table, row) {
  return {
    layer: table.layers[row],
    kind: table.kind[row],
    intensity: numberAt(table, "intensity", row),
    gflops: numberAt(table, "gflops", row),
    ms: numberAt(table, "self_ms", row),
    bound: table.bound[row] || null,
  };
}
