/** The rows of a comparison as positions on two axes and as texts. No DOM. */

import { linearTicks, logScale, logTicks, linearScale } from "../shared/scale.js";

/**
 * @typedef {{ name: string, steps?: string[], threads?: number, latency_ms?: number | null,
 * spread_ms?: [number,
 *   number] | null, speedup?: number | null, speedup_interval?: [number, number] | null, cpu_ms?:
 *   number | null,
 *   best_ms?: number | null, peak_bytes?: number | null, size_bytes?: number | null, parameters?:
 *   number | null,
 *   flops?: number | null, relative_error?: number | string | null, metric?: number | null,
 *   build_s?: number | null,
 *   notes?: string[], failure?: string | null, likely?: string, word?: string, tone?: "good" | "bad" | "even" | "untold" }} Measured
 * @typedef {{ workload?: string, machine?: string, baseline: string, metric_name?: string | null,
 * rows: Measured[],
 *   title?: string }} ComparisonData
 * @typedef {{ tone: "good" | "bad" | "even" | "untold" | "baseline", word: string }} Verdict
 * @typedef {{ ticks: number[], place: (value: number) => number }} Axis places are shares of the
 * axis, from 0 to 1
 */

/**
 * A row's verdict as Python gave it; a baseline with other threads has its word, and no colour.
 * @param {Measured} row @param {string} baseline @returns {Verdict}
 */
export function verdictOf(row, baseline) {
  if (row.name === baseline) return { tone: "baseline", word: "baseline" };
  const { word = "", tone = "even" } = row;
  return { word, tone: row.name.startsWith("baseline") ? "even" : tone };
}

/** The recipe in a line; "" if it is the name. @param {Measured} row */
export function recipeLine(row) {
  const label = (row.steps ?? []).join(" → ");
  return label === row.name ? "" : label;
}

/** The notes of a row without those that repeat its verdict. @param {Measured} row */
export function furtherNotes(row) {
  return (row.notes ?? []).filter((note) => !note.includes("than the baseline"));
}

/** From 0 to the slowest row. @param {Measured[]} rows @returns {Axis} */
export function latencyAxis(rows) {
  const known = rows.flatMap((row) => [row.latency_ms ?? 0, row.spread_ms?.[1] ?? 0]);
  const most = Math.max(...known, 0) * 1.02 || 1;
  return { ticks: linearTicks(0, most, 4), place: linearScale(0, most, 0, 1) };
}

/**
 * A logarithmic axis: twice as fast is as far from 1 as half as fast.
 * @param {Measured[]} rows @returns {Axis}
 */
export function speedupAxis(rows) {
  const known = rows.flatMap((row) => row.speedup_interval ?? []).filter((value) => value > 0);
  const [low, high] = [Math.min(...known, 0.8) / 1.08, Math.max(...known, 1.25) * 1.08];
  const ticks = logTicks(low, high, 4);
  return {
    ticks: [...new Set([1, ...ticks])].sort((first, second) => first - second),
    place: logScale(low, high, 0, 1),
  };
}

/** @typedef {(number | string | null | undefined)[]} Figures */

/** Whether anything is known in a column. @param {Figures} values */
export function isTelling(values) {
  return values.some((value) => typeof value === "number");
}

/** Whether figures are more than 2% apart. @param {Figures} values */
export function doDiffer(values) {
  const known = values.filter((value) => typeof value === "number");
  return known.length > 0 && Math.max(...known) > 1.02 * Math.min(...known);
}

/**
 * An output error as text, also if it is not finite.
 * @param {number | string | null | undefined} value
 */
export function readableError(value) {
  if (value === null || value === undefined) return "–";
  const number = typeof value === "string" ? Number(value.replace("inf", "Infinity")) : value;
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return "∞";
  return number === 0 ? "0" : number.toExponential(1).replace("e-", "e−").replace("e+", "e");
}
