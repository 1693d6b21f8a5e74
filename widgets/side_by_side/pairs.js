/** The layers of two profiles side by side, the largest changes first. No DOM. */

import { basisText } from "../shared/basis.js";

/**
 * @typedef {{ layer: string, kind_before?: string | null, kind_after?: string | null, before_ms:
 * number | null,
 *   after_ms: number | null, note?: string }} Pair
 * @typedef {{ before: string, after: string, before_ms: number, after_ms: number, predicted?: {
 * saves_ms?: number | null,
 *   basis?: string | null } | null, rows: Pair[], title?: string }} SideBySideData
 */

/** How much less a layer takes itself; below 0 it takes more. @param {Pair} pair */
export function savedMs(pair) {
  return (pair.before_ms ?? 0) - (pair.after_ms ?? 0);
}

/**
 * The pairs that changed most, and the sum of the others.
 * @param {Pair[]} rows @param {number} most
 * @returns {{ shown: Pair[], rest: { count: number, before_ms: number, after_ms: number } | null }}
 */
export function largestChanges(rows, most) {
  const ordered = [...rows].sort(
    (first, second) => Math.abs(savedMs(second)) - Math.abs(savedMs(first)),
  );
  const shown = ordered.filter((pair) => savedMs(pair) !== 0).slice(0, most);
  const left = ordered.filter((pair) => !shown.includes(pair));
  return { shown, rest: left.length ? { count: left.length, ...totals(left) } : null };
}

/**
 * −3.2 saves, +0.4 costs; values that round to zero are 0.
 * @param {number} saved @param {number} places
 */
export function signedChange(saved, places) {
  const text = Math.abs(saved).toFixed(places);
  return Number(text) === 0 ? "0" : `${saved > 0 ? "−" : "+"}${text}`;
}

/**
 * How many decimals a column needs, so that its largest number has three or four figures.
 * @param {number} largest
 */
export function decimalsFor(largest) {
  return largest >= 100 ? 1 : largest >= 10 ? 2 : 3;
}

/**
 * The predicted and the achieved saving; null without a prediction.
 * @param {SideBySideData} data @returns {{ predicted: number, achieved: number, basis: string } |
 * null}
 */
export function promiseOf(data) {
  const predicted = data.predicted?.saves_ms;
  if (predicted === null || predicted === undefined) return null;
  return {
    predicted,
    achieved: data.before_ms - data.after_ms,
    basis: basisText(data.predicted?.basis ?? ""),
  };
}

/** The kind of a row's layer as text. @param {Pair} pair */
export function kindsText(pair) {
  return [...new Set([pair.kind_before, pair.kind_after].filter(Boolean))].join(" → ");
}

/** @param {Pair[]} rows */
function totals(rows) {
  return {
    before_ms: rows.reduce((sum, row) => sum + (row.before_ms ?? 0), 0),
    after_ms: rows.reduce((sum, row) => sum + (row.after_ms ?? 0), 0),
  };
}
