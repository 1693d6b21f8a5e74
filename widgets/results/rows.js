/** Rows of everything tried as texts and positions. No DOM. */

import { readableBytes, threeFigures } from "../shared/format.js";
import { linearScale, linearTicks, logScale, logTicks, tickText } from "../shared/scale.js";

/**
 * A row as Python packs it; `word` and `tone` are its verdict.
 * @typedef {{
 *   number: number, label: string, whole: string, ms: number | null, ms_text: string,
 *   likely: [number, number] | null, speedup_text: string, word: string, sentence: string,
 *   tone: "good" | "bad" | "even" | "untold", metric: number | null,
 *   worth: number | null, error: number | null, size: number | null, peak: number | null,
 *   refused: string, failure: string, has_profile: boolean,
 * }} Result
 * @typedef {{ first: number, second: number, word: string, tone: string, effect: string,
 *   difference: string, layers: boolean }} ResultPair
 * @typedef {{ title: string, metric: string, current: number | null, frontier: number[],
 *   rows: Result[], pair: ResultPair | null,
 *   search?: Record<string, string>[] }} ResultsData
 * @typedef {{ x: number, y: number, row: Result, label: { x: number, y: number } }} ResultDot
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

const MARGIN = { left: 52, right: 14, top: 22, bottom: 36 };
const LEAST_SPAN = 0.01; // of the worth, so that rounding does not look like a difference
const LABEL = { width: 16, height: 13 };

/**
 * Whether a row is in the scatter: measured, and within the limit of its recipe.
 * @param {Result} row
 */
export function isInScatter(row) {
  return row.ms !== null && row.worth !== null && !row.failure && !row.refused;
}

/**
 * The scatter of latency and accuracy: up and to the left is better.
 * @param {number} width @param {number} height @param {ResultsData} data
 */
export function scatterLayout(width, height, data) {
  const edges = {
    left: MARGIN.left,
    right: width - MARGIN.right,
    top: MARGIN.top,
    bottom: height - MARGIN.bottom,
  };
  const rows = data.rows.filter(isInScatter);
  const times = rows.flatMap((row) => [/** @type {number} */ (row.ms), ...(row.likely ?? [])]);
  const [fast, slow] = [Math.min(...times) / 1.25, Math.max(...times) * 1.25];
  const x = logScale(fast, slow, edges.left, edges.right);
  const worths = rows.map((row) => /** @type {number} */ (row.worth));
  const top = Math.max(...worths);
  const low = Math.min(...worths, top - LEAST_SPAN);
  const pad = 0.08 * (top - low);
  const y = linearScale(low - pad, top + pad, edges.bottom, edges.top);
  const spots = rows.map((row) => ({
    x: x(/** @type {number} */ (row.ms)),
    y: y(/** @type {number} */ (row.worth)),
    row,
  }));
  return {
    edges,
    x,
    dots: labelled(spots, edges),
    ticksX: logTicks(fast, slow, 5).map((value) => ({ at: x(value), text: tickText(value) })),
    ticksY: linearTicks(low, top, 4).map((value) => ({ at: y(value), text: shareText(value) })),
    line: frontierPath(spots, data.frontier, edges),
  };
}

/**
 * The staircase along the rows that nothing beats: no row lies above and left of it.
 * @param {{ x: number, y: number, row: Result }[]} spots @param {number[]} frontier
 * @param {{ right: number, bottom: number }} edges
 */
export function frontierPath(spots, frontier, edges) {
  const best = frontier.flatMap((number) => spots.filter((spot) => spot.row.number === number));
  if (!best.length) return "";
  const steps = best.map((spot) => `H${spot.x.toFixed(1)}V${spot.y.toFixed(1)}`).join("");
  return `M${best[0].x.toFixed(1)} ${edges.bottom}${steps}H${edges.right}`;
}

/**
 * Numbers beside their dots, over no other number or dot where there is room.
 * @param {{ x: number, y: number, row: Result }[]} spots
 * @param {{ left: number, right: number }} edges @returns {ResultDot[]}
 */
function labelled(spots, edges) {
  /** @type {ResultDot[]} */
  const dots = [];
  for (const spot of spots) {
    const places = [
      { x: spot.x, y: spot.y - 13 },
      { x: spot.x, y: spot.y + 15 },
      { x: spot.x + 15, y: spot.y },
      { x: spot.x - 15, y: spot.y },
      { x: spot.x, y: spot.y - 26 },
      { x: spot.x, y: spot.y + 28 },
    ];
    const cost = (/** @type {{ x: number, y: number }} */ place) =>
      dots.filter((dot) => isNear(dot.label, place, 1)).length * 3 +
      spots.filter((other) => other !== spot && isNear(other, place, 0.8)).length +
      Number(place.x < edges.left || place.x > edges.right) * 9;
    const label = places.reduce((best, place) => (cost(place) < cost(best) ? place : best));
    dots.push({ ...spot, label });
  }
  return dots;
}

/** @param {{ x: number, y: number }} one @param {{ x: number, y: number }} other @param {number} share */
function isNear(one, other, share) {
  return (
    Math.abs(one.x - other.x) < share * LABEL.width &&
    Math.abs(one.y - other.y) < share * LABEL.height
  );
}
