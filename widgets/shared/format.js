/** Numbers as a person reads them: as `records/text.py` writes them. */

/**
 * 11689512 → "11.7 M", 999600 → "1 M"; with a unit, "11.7 MB".
 * @param {number | null | undefined} count @param {string} [unit]
 */
export function readableCount(count, unit = "") {
  if (count === null || count === undefined || Number.isNaN(count)) return "–";
  for (const [prefix, size] of /** @type {[string, number][]} */ ([
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ])) {
    // what rounds to it has four digits in the unit below
    if (Math.abs(count) >= 0.9995 * size) return `${threeFigures(count / size)} ${prefix}${unit}`;
  }
  return `${threeFigures(count)} ${unit}`.trimEnd();
}

/** 1536 → "1.54 kB". @param {number | null | undefined} count */
export function readableBytes(count) {
  return readableCount(count, "B");
}

/** 0.1234 → "12.3%". @param {number | null | undefined} ratio */
export function readablePercent(ratio) {
  return ratio === null || ratio === undefined || Number.isNaN(ratio)
    ? "–"
    : `${(100 * ratio).toFixed(1)}%`;
}

/** 1234.5 → "1,235"; small numbers keep three figures. @param {number} number */
export function readableRate(number) {
  return number >= 100 ? Math.round(number).toLocaleString("en-US") : threeFigures(number);
}

/** Three figures, without an exponent. @param {number} value */
export function threeFigures(value) {
  return String(Number(value.toPrecision(3)));
}

/**
 * Three digits, at most four decimals, zeros kept: 4.5 → "4.50", 0.04567 → "0.0457", 1234.5 → "1235".
 * @param {number | null | undefined} value
 */
export function threeDigits(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) >= 999.5) return value.toFixed(0);
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  if (Math.abs(value) < 0.00005) return "< 0.0001";
  const text = value.toFixed(Math.min(decimals, 4));
  return text.replace(/^(-?\d{2,})\.(\d*)$/, (whole, ones, rest) => {
    const kept = Math.max(0, 3 - ones.replace("-", "").length);
    return kept ? `${ones}.${rest.slice(0, kept)}` : ones;
  });
}

/**
 * A speed-up: 1.311 → "1.31", 4.87 → "4.9", 211.4 → "211".
 * @param {number} times @param {number} [like] the one whose number of decimals it takes
 */
export function ratioText(times, like = times) {
  return times.toFixed(like < 2 ? 2 : like < 100 ? 1 : 0);
}
