/** A figure of the headline as text: before, now, and whether that is better. */

import { readableBytes, readableCount, threeDigits, threeFigures } from "../shared/format.js";

/** @typedef {import("./expected.js").Figure} Figure */
/** @typedef {"good" | "bad" | "even"} Judgement */

const MINUS = "−";
const UNNOTICED = 0.0005;

/** @type {{ text: string, judgement: Judgement }} */
const NO_CHANGE = { text: "", judgement: "even" };

/**
 * @param {Figure} figure
 * @returns {{ before: string, now: string, change: string, judgement: Judgement }}
 *   `before` is "" where nothing changed
 */
export function figureText(figure) {
  const { before = null, now = null, unit = "" } = figure;
  const shown = written(now, unit);
  const old = before === null ? "" : written(before, unit);
  const change = old === shown ? NO_CHANGE : changeText(figure);
  return {
    before: old === shown ? "" : withoutUnit(old, shown),
    now: shown,
    change: change.text,
    judgement: change.judgement,
  };
}

/** @param {number | null} value @param {string} unit */
function written(value, unit) {
  if (value === null || !Number.isFinite(value)) return "–"; // as text where Python has nan
  if (unit === "ms") return `${threeDigits(value)} ms`;
  if (unit === "B") return readableBytes(value);
  if (unit === "%") return `${(100 * value).toFixed(1)}%`;
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1).replace(".0e", "e");
  return readableCount(value, unit);
}

/** "118 MB" before "69 MB" is "118". @param {string} old @param {string} shown */
function withoutUnit(old, shown) {
  const [tail, other] = [old, shown].map((text) => text.replace(/^[\d.,e+-]+/, ""));
  return tail === other ? old.slice(0, old.length - tail.length) : old;
}

/** @param {Figure} figure @returns {{ text: string, judgement: Judgement }} */
function changeText(figure) {
  const { before = null, now = null, is_less_better: isLessBetter = true } = figure;
  if (before === null || now === null || before === now) return NO_CHANGE;
  const isShare = figure.unit === "%";
  const change = isShare ? now - before : before ? (now - before) / Math.abs(before) : NaN;
  if (Number.isNaN(change) || Math.abs(change) < UNNOTICED) return NO_CHANGE;
  return {
    text: isShare ? signed(100 * change, " points") : signed(100 * change, "%"),
    judgement: change < 0 === isLessBetter ? "good" : "bad",
  };
}

/** @param {number} value @param {string} unit */
function signed(value, unit) {
  const size =
    Math.abs(value) < 10 ? Number(Math.abs(value).toFixed(1)) : Math.round(Math.abs(value));
  return `${value < 0 ? MINUS : "+"}${threeFigures(size)}${unit}`;
}
