/** Peaks beside a memory limit: the rows, how far their bars reach, what stays under it. No DOM. */

import { readableBytes } from "../shared/format.js";
import { reachWithLimit } from "../shared/memory_limit.js";

/**
 * The answer for a call or a step of training, as Python packs it.
 * @typedef {{ change: string, how: string, batch: number, peak_bytes: number,
 *   largest_batch: number | null, more_flops: number | null, step: any }} Remedy
 * @typedef {{ title: string, sentence: string, note: string, batch: number, options: string,
 *   limit_bytes: number, largest: string, held: [string, number][], layers: [string, number][],
 *   remedies: Remedy[] }} Fit
 * @typedef {{ about: Record<string, string>, measured: [string, number][] | null,
 *   call: Fit | null, training: Fit | null }} FitData
 * @typedef {{ name: string, hint: string, parts: [string, number][], bytes: number, batch: number,
 *   largest: string, time: string, step: any, isRemedy: boolean, isMeasured: boolean }} FitRow
 */

/** @typedef {"call" | "training"} Mode */

/**
 * The measured and the predicted peak, then each change with its own.
 * @param {FitData} data @param {Mode} mode @returns {FitRow[]}
 */
export function fitRows(data, mode) {
  const fit = data[mode];
  const rows = /** @type {FitRow[]} */ ([]);
  const inputs = fit?.held.find(([name]) => name === "inputs")?.[1] ?? 0;
  const plain = { hint: "", largest: "", time: "", step: null, isRemedy: false, isMeasured: false };
  if (mode === "call" && data.measured) {
    const parts = /** @type {[string, number][]} */ ([...data.measured, ["inputs", inputs]]);
    const hint = "what torch's allocator gave out in one call";
    rows.push({ ...plain, name: "measured", hint, parts, ...sumOf(parts), isMeasured: true });
  }
  if (!fit) return rows;
  const hint = `${fit.options}, before anything is run`;
  const { batch, largest } = fit;
  rows.push({
    ...plain,
    name: "predicted",
    hint,
    parts: fit.held,
    ...sumOf(fit.held),
    batch,
    largest,
  });
  return [...rows, ...fit.remedies.map((remedy) => remedyRow(remedy, fit.batch))];
}

/** @param {[string, number][]} parts */
function sumOf(parts) {
  return { bytes: parts.reduce((sum, [, bytes]) => sum + bytes, 0), batch: 0 };
}

/** @param {Remedy} remedy @param {number} batch @returns {FitRow} */
function remedyRow(remedy, batch) {
  const { change, how, peak_bytes: bytes, largest_batch: largest, more_flops: more, step } = remedy;
  return {
    name: change,
    hint: how,
    parts: [["", bytes]],
    bytes,
    batch: remedy.batch,
    largest: largest === null ? "" : remedy.batch === batch ? String(largest) : "",
    time: more === null ? "" : `${more < 0 ? "−" : "+"}${Math.round(100 * Math.abs(more))} % FLOPs`,
    step,
    isRemedy: true,
    isMeasured: false,
  };
}

/**
 * How far the bars' axis reaches: past the largest, and to the limit if that is near.
 * @param {FitRow[]} rows @param {number | null} limit
 */
export function reachOfRows(rows, limit) {
  return reachWithLimit(Math.max(1, ...rows.map((row) => row.bytes)), limit);
}

/** What a row is against the limit. @param {FitRow} row @param {number | null} limit */
export function verdictOf(row, limit) {
  if (limit === null) return { fits: true, text: "" };
  const over = row.bytes - limit;
  return over > 0
    ? { fits: false, text: `${readableBytes(over)} too much` }
    : { fits: true, text: "fits" };
}

/**
 * What the limit means, in a sentence: whether it holds, and what would have to change.
 * @param {FitRow[]} rows @param {number} limit
 */
export function limitSentence(rows, limit) {
  const peak = rows.find((row) => !row.isRemedy && !row.isMeasured) ?? rows[0];
  if (!peak) return "";
  if (peak.bytes <= limit) {
    const spare = readableBytes(limit - peak.bytes);
    return `It fits as it is, with ${spare} to spare.`;
  }
  const helping = rows.filter((row) => row.isRemedy && row.bytes <= limit).map((row) => row.name);
  const over = readableBytes(peak.bytes - limit);
  if (!helping.length)
    return `It needs ${over} more, and none of the changes below is enough: take a smaller batch.`;
  return `It needs ${over} more. Enough would be ${listed(helping)}.`;
}

/** "a", "a or b", "a, b or c". @param {string[]} names */
function listed(names) {
  const last = names.at(-1) ?? "";
  return names.length < 2 ? last : `${names.slice(0, -1).join(", ")} or ${last}`;
}
