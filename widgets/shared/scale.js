/** Scales from values to pixels, and the round values along them. */

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

/**
 * Round values from low to high, a step of 1, 2 or 5 apart.
 * @param {number} low @param {number} high @param {number} most @returns {number[]}
 */
export function linearTicks(low, high, most) {
  if (!(high > low)) return [low];
  const step = roundStep((high - low) / Math.max(1, most));
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, index) => tidy((first + index) * step));
}

/**
 * Powers of ten, thinned if there are many, with 2 and 5 between them if there are few.
 * @param {number} low @param {number} high @param {number} most @returns {number[]}
 */
export function logTicks(low, high, most) {
  const fine = withinDecades(low, high, [1, 2, 5]);
  if (fine.length <= most) return fine;
  const whole = withinDecades(low, high, [1]);
  const every = Math.max(1, Math.ceil(whole.length / Math.max(1, most)));
  return whole.filter((_, index) => index % every === 0);
}

/** 0.01 → "0.01", 10000 → "10,000". @param {number} value */
export function tickText(value) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 6 });
}

/** Three figures, thousands apart: 1234 → "1,230", 0.05678 → "0.0568". @param {number} value */
export function roundedText(value) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

/** The next of 1, 2, 5, 10, … times a power of ten. @param {number} least @returns {number} */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10;
  return tidy(factor * power);
}

/** @param {number} low @param {number} high @param {number[]} factors @returns {number[]} */
function withinDecades(low, high, factors) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of factors) ticks.push(tidy(factor * 10 ** power));
  }
  return ticks.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
}

/** 0.30000000000000004 → 0.3. @param {number} value */
function tidy(value) {
  return Number(value.toPrecision(12));
}
