/** A figure of the header as text: before, now, and whether that is better. */

import { readableBytes, readableCount, readableMs, threeFigures } from "../shared/format.js";

/** @typedef {import("./expected.js").Figure} Figure */
/** @typedef {"good" | "bad" | "even"} Judgement */

const MINUS = "−";
const UNNOTICED = 0.0005;

/** @type {{ text: string, judgement: Judgement }} */
const NO_CHANGE = { text: "", judgement: "even" };

/**
 * @param {Figure} figure
 * @returns {{ before: string, now: string, isReplaced: boolean, change: string, interval: string,
 * judgement: Judgement }}
 *   `before` is "" where nothing changed; `isReplaced` where something else is known in its place
 */
export function figureText(figure) {
  const { before = null, now = null, unit = "" } = figure;
  const shown = written(now, unit);
  const old = before === null ? "" : written(before, unit);
  const change = old === shown && !figure.ratio ? NO_CHANGE : changeText(figure);
  return {
    before: old === shown ? "" : withoutUnit(old, shown),
    now: shown,
    isReplaced: now !== null,
    change: change.text,
    interval: intervalText(figure),
    judgement: change.judgement,
  };
}

/** @param {number | null} value @param {string} unit */
function written(value, unit) {
  if (value === null || Number.isNaN(value)) return "–";
  if (unit === "ms") return `${readableMs(value)} ms`;
  if (unit === "B") return readableBytes(value);
  if (unit === "%") return `${(100 * value).toFixed(1)}%`;
  return readableCount(value, unit);
}

/** "118 MB" before "69 MB" is "118". @param {string} old @param {string} shown */
function withoutUnit(old, shown) {
  const [tail, other] = [old, shown].map((text) => text.replace(/^[\d.,e+-]+/, ""));
  return tail === other ? old.slice(0, old.length - tail.length) : old;
}

/** @param {Figure} figure @returns {{ text: string, judgement: Judgement }} */
function changeText(figure) {
  const { before = null, now = null, ratio = null } = figure;
  if (ratio !== null) return { text: ratioText(figure), judgement: judgedRatio(figure) };
  if (before === null || now === null || before === now) return NO_CHANGE;
  const isShare = figure.unit === "%";
  const change = isShare ? now - before : before ? (now - before) / Math.abs(before) : NaN;
  if (Number.isNaN(change) || Math.abs(change) < UNNOTICED) return NO_CHANGE;
  return {
    text: isShare ? signed(100 * change, " points") : signed(100 * change, "%"),
    judgement: change > 0 === isShare ? "good" : "bad",
  };
}

/** With the first words of the note: there is room for no more. @param {Figure} figure */
function ratioText(figure) {
  return [`${Number(figure.ratio).toFixed(2)}×`, figure.note?.split(",")[0]]
    .filter(Boolean)
    .join(" ");
}

/** An interval that contains 1 decides nothing. @param {Figure} figure @returns {Judgement} */
function judgedRatio(figure) {
  const [low, high] = [figure.low ?? figure.ratio ?? 1, figure.high ?? figure.ratio ?? 1];
  if (low > 1) return "good";
  return high < 1 ? "bad" : "even";
}

/** @param {Figure} figure */
function intervalText(figure) {
  const { low = null, high = null } = figure;
  return low === null || high === null ? "" : `${low.toFixed(2)}–${high.toFixed(2)}`;
}

/** @param {number} value @param {string} unit */
function signed(value, unit) {
  const size =
    Math.abs(value) < 10 ? Number(Math.abs(value).toFixed(1)) : Math.round(Math.abs(value));
  return `${value < 0 ? MINUS : "+"}${threeFigures(size)}${unit}`;
}
