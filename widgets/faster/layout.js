/** What the list of candidates shows: bars on one scale, and its texts. Verdicts come from Python. */

import { ratioText, readableBytes } from "../shared/format.js";

/**
 * @typedef {{
 *   label: string, why: string, status: string, rank: number | null, reason: string,
 *   allow: Record<string, any> | null, latency_ms: number | null, before_ms: number | null,
 *   speedup: number | null, low: number | null, high: number | null, word: string, tone: string,
 *   per_second: number | null, relative_error: number | null, metric: number | null,
 *   metric_lost: number | null, size_bytes: number | null, peak_bytes: number | null,
 * }} CandidateRow
 * @typedef {{
 *   goal: string, metric_drop: number, may_train: boolean, seconds: number, took_s: number,
 *   planned: number, is_done: boolean, is_interrupted: boolean, note: string,
 *   metric_name: string | null, stamp?: number,
 *   baseline_size_bytes: number | null, baseline_peak_bytes: number | null, rows: CandidateRow[],
 * }} CandidatesData
 * @typedef {{ now: number, from: number | null, to: number | null, before: number }} Bar
 */

const LEAST_REACH = 1.25;
const MOST_REACH = 3;

/** The candidates within the limits, and the others. @param {CandidatesData} data */
export function splitRows({ rows }) {
  return {
    ranked: rows.filter((row) => row.rank !== null),
    others: rows.filter((row) => row.rank === null),
  };
}

/**
 * What the goal makes small, over the unchanged model's; null where it is not known.
 * @param {CandidateRow} row @param {CandidatesData} data
 */
export function shareLeft(row, data) {
  if (data.goal === "size") return quotient(row.size_bytes, data.baseline_size_bytes);
  if (data.goal === "memory") return quotient(row.peak_bytes, data.baseline_peak_bytes);
  return row.speedup ? 1 / row.speedup : null;
}

/**
 * The width that stands for the slowest row, in unchanged models.
 * @param {CandidatesData} data
 */
export function barReach(data) {
  const shares = data.rows.map((row) => shareLeft(row, data) ?? 0);
  return Math.min(MOST_REACH, Math.max(LEAST_REACH, ...shares));
}

/**
 * A bar, its likely range and the unchanged model, as shares of the width; null where unknown.
 * @param {CandidateRow} row @param {CandidatesData} data @returns {Bar | null}
 */
export function barOf(row, data) {
  const share = shareLeft(row, data);
  if (share === null) return null;
  const reach = barReach(data);
  const within = (/** @type {number} */ value) => Math.min(1, value / reach);
  const isTimed = data.goal === "latency" || data.goal === "throughput";
  return {
    now: within(share),
    from: isTimed && row.high ? within(1 / row.high) : null,
    to: isTimed && row.low ? within(1 / row.low) : null,
    before: 1 / reach,
  };
}

/** The speed-up and its likely range or its word. @param {CandidateRow} row */
export function speedTexts(row) {
  if (row.speedup === null || row.low === null || row.high === null) return ["–", ""];
  const isSure = row.tone === "good" || row.tone === "bad";
  const range = [row.low, row.high].map((end) => ratioText(end, row.speedup ?? 1)).join("–");
  if (row.word === "not told") return [`≈ ${range} ×`, "cannot be told"];
  return [`${ratioText(row.speedup)} ×`, isSure ? range : row.word];
}

/** The loss in points, or without labelled data the output error. @param {CandidateRow} row */
export function lossText(row) {
  if (row.metric_lost !== null) {
    const points = (100 * row.metric_lost).toFixed(1);
    return Number(points) === 0
      ? "0.0"
      : points.startsWith("-")
        ? `+${points.slice(1)}`
        : `−${points}`;
  }
  if (row.relative_error === null) return "–";
  return row.relative_error < 1e-3 ? "0.0" : row.relative_error.toPrecision(2);
}

/** What the head of the column of losses is called. @param {CandidatesData} data */
export function lossHead(data) {
  if (data.rows.every((row) => row.metric_lost === null)) return "Output differs by";
  return `${metricWord(data.metric_name)}, points lost or won`;
}

/** The metric with a capital letter. @param {string | null | undefined} name */
export function metricWord(name) {
  return name ? name.slice(0, 1).toUpperCase() + name.slice(1) : "Metric";
}

/** @param {CandidateRow} row */
export function sizeText(row) {
  return readableBytes(row.size_bytes);
}

/** The label of the button that lets a candidate in. @param {CandidateRow} row */
export function allowText(row) {
  if (!row.allow) return "";
  if (row.allow.may_train) return "Allow training";
  const drop = row.allow.metric_drop;
  return `Allow ${Number((row.metric_lost === null ? drop : 100 * drop).toPrecision(2))}`;
}

/**
 * What the sheet says of its search.
 * @param {"idle" | "waiting" | "running"} phase @param {CandidatesData | null} data
 * @param {boolean} isOld whether the data are of an earlier search
 */
export function sheetStatus(phase, data, isOld) {
  if (phase === "waiting") return "The search begins when the current measurement is done.";
  if (phase === "running" && (!data || isOld)) return "The first candidates are being measured …";
  return data ? searchStatus(data, phase === "running") : "Nothing is measured yet: press Search.";
}

/** How far the search is. @param {CandidatesData} data @param {boolean} isSearching */
export function searchStatus(data, isSearching) {
  const count = `${data.rows.length} of ${data.planned} candidates`;
  const took = `${Math.round(data.took_s)} s`;
  if (isSearching) return `${count} so far · ${took} of ${data.seconds} s`;
  return `${count} measured in ${took}${data.is_interrupted ? ", stopped" : ""}`;
}

/**
 * The row that an arrow key moves to.
 * @param {string} key @param {number} place @param {number} count
 */
export function rowAfter(key, place, count) {
  if (!count) return null;
  if (key === "ArrowDown") return Math.min(count - 1, place + 1);
  if (key === "ArrowUp") return Math.max(0, place - 1);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : null;
}

/** @param {number | null} part @param {number | null} whole */
function quotient(part, whole) {
  return part === null || !whole ? null : part / whole;
}

/** The options that a search had. @param {CandidatesData} data */
export function optionsOf({ goal, metric_drop, may_train, seconds }) {
  return { goal, metric_drop, may_train, seconds };
}

/**
 * Whether the rows are those of another search: a new baseline restates the same ones, and leaves
 * what a person has chosen in the form meanwhile.
 * @param {CandidatesData | null} before @param {CandidatesData} data
 */
export function isOtherSearch(before, data) {
  return !before || JSON.stringify(optionsOf(before)) !== JSON.stringify(optionsOf(data));
}
