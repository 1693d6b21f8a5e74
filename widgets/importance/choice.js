/**
 * How many channels of each layer are kept, in the workbench and alone: what Python sent, and on
 * top what was asked for since. No page in here.
 */

import { unserved } from "../shared/host.js";
import { canLose, keptAbove, keptByOne, thresholdKeeping } from "./table.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */

/** @param {any} model @param {ImportanceTable} table @returns {number[]} by row */
export function keptChannels(model, table) {
  const requests = /** @type {any[]} */ (unserved(model)).filter(
    (one) => one.do === "keep" || one.do === "prune",
  );
  return requests.reduce(
    (kept, request) => withRequest(table, kept, request),
    toldKept(model, table),
  );
}

/**
 * Where a layer's threshold is: where it was put here, as long as that keeps what is kept; else
 * between what is kept and what is not.
 * @param {ImportanceTable} table @param {number} row @param {number} kept @param {number |
 * undefined} own
 */
export function thresholdOf(table, row, kept, own) {
  if (own !== undefined && keptAbove(table, row, own) === kept) return own;
  return thresholdKeeping(table.sorted[row]?.value ?? new Float32Array(), kept);
}

/**
 * What is to be removed of a layer: 0–1.
 * @param {ImportanceTable} table @param {number} row @param {number} kept
 */
export function removedRatio(table, row, kept) {
  return (table.channels[row] - kept) / table.channels[row];
}

/**
 * Which scores are shown, and by which the step prune cuts: as the recipe says in the workbench.
 * @param {any} model @param {ImportanceTable} table @returns {string}
 */
export function cutByLine(model, table) {
  return model.get("state")?.cut_by || table.cutBy;
}

/** @param {any} model @param {ImportanceTable} table @returns {number[]} */
function toldKept(model, table) {
  const [kept, pruned] = [model.get("kept"), model.get("state")?.pruned];
  return table.layers.map((layer, row) => {
    if (kept) return kept[layer] ?? table.channels[row];
    return fromRatio(table, row, pruned?.[layer] ?? 0);
  });
}

/**
 * @param {ImportanceTable} table @param {number[]} kept @param {any} request @returns {number[]}
 */
function withRequest(table, kept, request) {
  if (!request.layer) return keptByOne(table, request.threshold);
  const row = table.place.get(request.layer);
  if (row === undefined) return kept;
  return kept.with(row, request.kept ?? fromRatio(table, row, request.ratio));
}

/** @param {ImportanceTable} table @param {number} row @param {number} ratio */
function fromRatio(table, row, ratio) {
  const kept = table.channels[row] - Math.round(ratio * table.channels[row]);
  return canLose(table, row) ? Math.max(1, kept) : table.channels[row];
}
