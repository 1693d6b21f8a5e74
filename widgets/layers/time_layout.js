/** Where the time goes, as an icicle: a layer lies under its group, as wide as its time. No DOM. */

import { isBranch, ownName } from "../shared/tree.js";
import { numberAt } from "../shared/unpack.js";

const MOST_LEVELS = 4;
const LEAST_SHARE = 0.002; // of the width; narrower ones could not be seen

/**
 * A part of the strip; `left` and `width` are shares of the whole.
 * @typedef {{ row: number, level: number, left: number, width: number, label: string, share:
 * number, isGroup: boolean }} Part
 */

/**
 * @param {import("../shared/unpack.js").LayerTable} table @returns {Part[]}
 */
export function timeParts(table) {
  const whole = table.layers.length ? numberAt(table, "total_ms", 0) : NaN;
  if (!(whole > 0)) return [];
  /** Where the next part of each group begins. @type {number[]} */
  const start = [];
  const parts = [];
  for (let row = 0; row < table.layers.length; row += 1) {
    const share = numberAt(table, "total_ms", row) / whole || 0;
    const parent = table.parent[row];
    const left = parent < 0 ? 0 : start[parent];
    const width = Math.max(0, Math.min(share, 1 - left));
    start[row] = left;
    if (parent >= 0) start[parent] += width;
    const level = table.depth[row];
    if (level >= MOST_LEVELS || width < LEAST_SHARE) continue;
    parts.push({ row, level, left, width, label: labelOf(table, row), share, isGroup: false });
    parts[parts.length - 1].isGroup = isBranch(table.end, row) && level < MOST_LEVELS - 1;
  }
  return parts;
}

/** How many levels the strip has. @param {Part[]} parts */
export function levelsOf(parts) {
  return parts.reduce((most, part) => Math.max(most, part.level + 1), 0);
}

/** @param {import("../shared/unpack.js").LayerTable} table @param {number} row */
function labelOf(table, row) {
  const path = table.layers[row];
  const under = table.parent[row] >= 0 ? table.layers[table.parent[row]] : "";
  return path ? ownName(path, under) : table.workload || "the model";
}
