/** The number of channels kept per layer: Python's state plus pending requests. No DOM. */

import { unserved } from "../shared/host.js";
import { canLose, keptAbove, keptByOne, thresholdKeeping } from "./table.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */

/** @param {any} model @param {ImportanceTable} table @returns {number[]} by row */
export function keptChannels(model, table) {
  const requests = /** @type {any[]} */ (unserved(model)).filter(
    (request) => request.do === "keep" || request.do === "prune",
  );
  return requests.reduce(
    (kept, request) => withRequest(table, kept, request),
    toldKept(model, table),
  );
}

/**
 * A layer's threshold: the one set here if it keeps the same channels, else one between kept and
 * removed channels.
 * @param {ImportanceTable} table @param {number} row @param {number} kept @param {number |
 * undefined} own
 */
export function thresholdOf(table, row, kept, own) {
  if (own !== undefined && keptAbove(table, row, own) === kept) return own;
  return thresholdKeeping(table.sorted[row]?.value ?? new Float32Array(), kept);
}

/**
 * The share of a layer to remove, 0–1.
 * @param {ImportanceTable} table @param {number} row @param {number} kept
 */
export function removedRatio(table, row, kept) {
  return (table.channels[row] - kept) / table.channels[row];
}

/**
 * The note which scores are shown and which the step prune uses; in the workbench from the recipe.
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
