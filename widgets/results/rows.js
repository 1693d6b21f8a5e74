/** Rows of everything tried as texts and positions. No DOM. */

import { readableBytes, threeFigures } from "../shared/format.js";
import { linearScale } from "../shared/scale.js";

/**
 * A row as Python packs it; `word` and `tone` are its verdict.
 * @typedef {{
 *   number: number, label: string, whole: string, ms: number | null, ms_text: string,
 *   likely: [number, number] | null, speedup: number | null, speedup_text: string, word: string, sentence: string,
 *   tone: "good" | "bad" | "even" | "untold", metric: number | null,
 *   error: number | null, size: number | null, peak: number | null,
 *   refused: string, failure: string, has_profile: boolean,
 * }} Result
 * @typedef {{ first: number, second: number, word: string, tone: string, effect: string,
 *   difference: string, layers: boolean }} ResultPair
 * @typedef {{ title: string, metric: string, current: number | null, scatter: any,
 *   rows: Result[], pair: ResultPair | null,
 *   search?: Parameters<typeof import("../shared/plain_table.js").plainTable>[0] | null }} ResultsData
 */

/** From 0 to the slowest row or likely range, as shares. @param {Result[]} rows */
export function barScale(rows) {
  const ends = rows.flatMap((row) => [row.ms ?? 0, row.likely?.[1] ?? 0]);
  return linearScale(0, Math.max(...ends, 0) || 1, 0, 1);
}

/** How a row's bar and dot look. @param {Result} row */
export function toneOf(row) {
  return row.number === 0 ? "before" : row.tone;
}

/** 0.987 → "98.7 %". @param {number | null} value */
export function shareText(value) {
  return value === null ? "–" : `${threeFigures(100 * value)} %`;
}

/** A row's accuracy, or how far its output differs. @param {Result} row @param {boolean} isMetric */
export function worthText(row, isMetric) {
  if (isMetric) return shareText(row.metric);
  if (row.error === null) return "–";
  return row.error === 0 ? "0" : row.error.toExponential(0).replace("e-", "e−").replace("e+", "e");
}

/** The change of a size in percent; "" if there is none. @param {number | null} before @param {number | null} now */
export function changeText(before, now) {
  if (!before || now === null) return "";
  const percent = Math.round((100 * (now - before)) / before);
  return percent === 0 ? "" : `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
}

/** @param {number | null} before @param {number | null} now */
export function pointsText(before, now) {
  if (before === null || now === null) return "";
  const points = Number((100 * (now - before)).toFixed(2));
  return points === 0 ? "" : `${points > 0 ? "+" : "−"}${threeFigures(Math.abs(points))}`;
}

/**
 * The marks after one row more was marked or unmarked: A, then B; a third takes the place of B.
 * @param {number[]} marks @param {number} number
 */
export function marksAfter(marks, number) {
  if (marks.includes(number)) return marks.filter((other) => other !== number);
  return [...marks.slice(0, 1), number];
}

/**
 * The marks that fit the pair that Python compared, in this view or in another of the same bench.
 * @param {number[]} marks @param {ResultPair | null} pair @param {boolean} isAsked whether Python
 * has yet to answer
 */
export function marksWith(marks, pair, isAsked) {
  if (isAsked || marks.length === 1) return marks;
  return pair ? [pair.first, pair.second] : [];
}

/** The figures of two rows beside each other. @param {Result} row @param {Result} first @param {string} metric */
export function pairFigures(row, first, metric) {
  const isFirst = row === first;
  return {
    latency: row.ms === null ? "–" : `${row.ms_text} ms`,
    worth: worthText(row, Boolean(metric)),
    worthChange: isFirst || !metric ? "" : pointsText(first.metric, row.metric),
    size: readableBytes(row.size),
    sizeChange: isFirst ? "" : changeText(first.size, row.size),
    peak: readableBytes(row.peak),
    peakChange: isFirst ? "" : changeText(first.peak, row.peak),
  };
}

/** @param {string} text */
export function capitalised(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
