/**
 * The colour scale of numbers: logarithmic steps, and a mark for numbers below the scale. No DOM.
 */

/**
 * From `floor` to `top` in `HEAT_STEPS` steps; null if no number is above 0.
 * @typedef {{ floor: number, top: number }} HeatScale
 */

export const HEAT_STEPS = 9;
const WIDEST = 1e6; // from the floor to the top: smaller numbers are negligible

/**
 * The scale that holds all values, its ends rounded to 1, 2 or 5 times a power of ten.
 * @param {Iterable<number>} values @returns {HeatScale | null}
 */
export function heatScale(values) {
  let [least, most] = [Infinity, 0];
  for (const value of values) {
    if (!(value > 0) || value === Infinity) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  if (!(most > 0)) return null;
  const top = roundedUp(most);
  return {
    floor: Math.min(roundedDown(Math.max(least, top / WIDEST)), roundedDown(top / 10)),
    top,
  };
}

/**
 * The step of a value, 0 the lowest; -1 is below the scale: too small, 0, or negative.
 * @param {HeatScale | null} scale @param {number} value
 */
export function heatStep(scale, value) {
  if (value === Infinity) return HEAT_STEPS - 1;
  if (!scale || !(value >= scale.floor * (1 - 1e-6))) return -1;
  const share = Math.log(value / scale.floor) / Math.log(scale.top / scale.floor);
  return Math.min(HEAT_STEPS - 1, Math.max(0, Math.floor(share * HEAT_STEPS + 1e-6)));
}

/** The position of a value on the scale, 0–1. @param {HeatScale} scale @param {number} value */
export function heatShare(scale, value) {
  return Math.log(value / scale.floor) / Math.log(scale.top / scale.floor);
}

/**
 * Powers of ten along a scale, as many as have room.
 * @param {HeatScale} scale @param {number} [most] @returns {number[]}
 */
export function heatTicks(scale, most = 5) {
  const [first, last] = [
    Math.ceil(Math.log10(scale.floor) - 1e-9),
    Math.floor(Math.log10(scale.top) + 1e-9),
  ];
  const every = Math.max(1, Math.ceil((last - first + 1) / most));
  const count = Math.floor((last - first) / every) + 1;
  return Array.from({ length: Math.max(0, count) }, (_, place) =>
    Number(`1e${first + place * every}`),
  );
}

/** As short as a cell wants it: 0.0123 → "0.012", 0.000012 → "1.2e-5". @param {number} value */
export function heatText(value) {
  if (Number.isNaN(value)) return "–";
  if (Math.abs(value) === Infinity) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const isPlain = size === 0 || (size >= 0.00995 && size < 999.5);
  const text = isPlain
    ? String(Number(size.toPrecision(2)))
    : size.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return value < 0 ? `−${text}` : text;
}

/** A value with its standard error, if known. @param {number} value @param {number} error */
export function estimateText(value, error) {
  return Number.isNaN(error) ? heatText(value) : `${heatText(value)} ± ${heatText(error)}`;
}

/** @param {number} value */
function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return exactly(power, [1, 2, 5, 10].find((factor) => factor * power >= value * (1 - 1e-6)) ?? 10);
}

/** @param {number} value */
function roundedDown(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return exactly(power, [10, 5, 2, 1].find((factor) => factor * power <= value * (1 + 1e-6)) ?? 1);
}

/** The product without floating-point noise. @param {number} power @param {number} factor */
function exactly(power, factor) {
  return Number((power * factor).toPrecision(6));
}

/**
 * The CSS class of a number: a step of the scale, below it, or unknown.
 * @param {HeatScale | null} scale @param {number} value
 */
export function heatLook(scale, value) {
  if (Number.isNaN(value)) return "pf-heat pf-heat-none";
  const step = heatStep(scale, value);
  return `pf-heat ${step < 0 ? "pf-heat-below" : `pf-heat-${step}`}`;
}
