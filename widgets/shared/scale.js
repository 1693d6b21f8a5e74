/** Scales from values to pixels. */

/** @typedef {(value: number) => number} Scale */

/**
 * @param {number} low @param {number} high @param {number} start where `low` stands @param {number}
 * end where `high` stands
 * @returns {Scale}
 */
export function linearScale(low, high, start, end) {
  const span = high - low || 1;
  return (value) => start + ((value - low) / span) * (end - start);
}

/**
 * A logarithmic scale; values not above 0 are at the start.
 * @param {number} low @param {number} high @param {number} start @param {number} end @returns
 * {Scale}
 */
export function logScale(low, high, start, end) {
  const linear = linearScale(Math.log(low), Math.log(high), start, end);
  return (value) => (value > 0 ? linear(Math.log(value)) : start);
}

/** @param {number} value @param {number} low @param {number} high */
export function clamped(value, low, high) {
  return Math.min(Math.max(value, low), high);
}
