/** The predicted and achieved figures of a cut as rows. No DOM. */

import { fullWidths, predicted, widthsAfter } from "./cut_cost.js";
import { threeFigures } from "../shared/format.js";
import { errorText } from "../shared/prediction_table.js";

/** @typedef {import("./cut_cost.js").CutCost} CutCost */
/**
 * @typedef {{ before: Record<string, number | null>, now: Record<string, number | null>,
 * metric_name?: string | null }} AchievedCut
 */

const LATENCY = "latency";
const BY_STAIRS = "by the measured time of its layers at other widths";
const BY_SHARE = "each layer's measured time in proportion to its arithmetic";

/**
 * @param {CutCost} cost @param {import("./cut_cost.js").Removed} removed @param {AchievedCut |
 * null} achieved null where that is another cut's
 * @param {number | null} asItIsMs what the model as it is was measured to take, where that is
 * known: the header tells the same
 * @returns {import("../shared/prediction_table.js").PredictionRow[]}
 */
export function cutRows(cost, removed, achieved, asItIsMs) {
  const [whole, cut] = [
    predicted(cost, fullWidths(cost)),
    predicted(cost, widthsAfter(cost, removed)),
  ];
  const [before, now] = [achieved?.before ?? {}, achieved?.now ?? {}];
  // measured now: a machine that is slower today is slower for both
  const baseMs = before.latency_ms ?? asItIsMs ?? whole.latencyMs;
  const hint = cost.layers.some((layer) => layer.stairs.length) ? BY_STAIRS : BY_SHARE;
  const metric =
    achieved?.metric_name && isNumber(now.metric)
      ? [metricRow(achieved.metric_name, before.metric, now.metric)]
      : [];
  return [
    shareRow("parameters", whole.parameters, cut.parameters, before.parameters, now.parameters),
    shareRow("FLOPs", whole.flops, cut.flops, before.flops, now.flops),
    msRow(hint, (baseMs * cut.latencyMs) / whole.latencyMs, baseMs, now.latency_ms),
    ...metric,
  ];
}

/** 0.877 → "−12.3%"; a negligible change is "0%". @param {number} share of what there was */
export function shareChange(share) {
  const percent = 100 * (share - 1);
  if (!Number.isFinite(percent)) return "";
  return Math.abs(percent) < 0.05
    ? "0%"
    : `${percent < 0 ? "−" : "+"}${Math.abs(percent).toFixed(1)}%`;
}

/**
 * In one line: "parameters −12.3% · FLOPs −9.0% · predicted 3.21 ms (−14.0%)".
 * @param {import("../shared/prediction_table.js").PredictionRow[]} rows
 */
export function forecastLine(rows) {
  return rows
    .filter((row) => row.predicted)
    .map((row) => `${row.name === LATENCY ? "predicted" : row.name} ${row.predicted}`)
    .join(" · ");
}

/**
 * @param {string} name @param {number} whole @param {number} cut @param {number | null} [before]
 * @param {number | null} [now]
 */
function shareRow(name, whole, cut, before, now) {
  const isKnown = isNumber(before) && isNumber(now);
  return {
    name,
    predicted: whole > 0 ? shareChange(cut / whole) : "",
    achieved: isKnown ? shareChange(now / before) : "",
    error: isKnown && whole > 0 ? errorText(now / before / (cut / whole)) : "",
  };
}

/**
 * @param {string} hint @param {number} predicted @param {number} whole @param {number | null} [now]
 */
function msRow(hint, predicted, whole, now) {
  const text = (/** @type {number} */ ms) => `${threeFigures(ms)} ms (${shareChange(ms / whole)})`;
  return {
    name: LATENCY,
    hint,
    predicted: text(predicted),
    achieved: isNumber(now) ? text(now) : "",
    error: isNumber(now) ? errorText(now / predicted) : "",
  };
}

/**
 * It is not predicted; its last value is shown.
 * @param {string} name @param {number | null | undefined} before @param {number} now
 */
function metricRow(name, before, now) {
  return {
    name,
    predicted: "",
    achieved: `${now.toFixed(4)}${isNumber(before) ? `, before ${before.toFixed(4)}` : ""}`,
    error: "",
  };
}

/** @param {unknown} value @returns {value is number} */
function isNumber(value) {
  return typeof value === "number";
}
