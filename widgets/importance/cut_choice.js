/**
 * The shares to remove by layer: Python's state, pending requests, and the current drag. No DOM.
 */

import { unserved } from "../shared/host.js";
import { keptByOne } from "./table.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */
/** @typedef {import("./cut_cost.js").Removed} Removed */
/**
 * @typedef {{ layer: string, ratio?: number, threshold?: number }} Cut one layer's share, or, with
 * '' for the layer, one threshold over all
 */

/**
 * @param {any} model @param {ImportanceTable} table @param {Cut | null} gesture @returns {Removed}
 */
export function removedShares(model, table, gesture) {
  const asked = /** @type {Cut[]} */ (
    /** @type {unknown} */ (unserved(model).filter((request) => request.do === "prune"))
  );
  const known = /** @type {Removed} */ (model.get("state")?.cut?.removed ?? []);
  return (gesture ? [...asked, gesture] : asked).reduce(
    (removed, cut) => withCut(table, removed, cut),
    known,
  );
}

/**
 * Merge a newer cut into an older one as Python does: changed layers move to the end.
 * @param {ImportanceTable} table @param {Removed} removed @param {Cut} cut @returns {Removed}
 */
function withCut(table, removed, cut) {
  const newer = cut.layer
    ? /** @type {Removed} */ ([[cut.layer, cut.ratio ?? 0]])
    : sharesBelow(table, cut.threshold ?? 0);
  const named = new Set(newer.map(([layer]) => layer));
  return [
    ...removed.filter(([layer]) => !named.has(layer)),
    ...newer.filter(([, ratio]) => ratio > 0),
  ];
}

/** @param {ImportanceTable} table @param {number} threshold @returns {Removed} */
function sharesBelow(table, threshold) {
  const kept = keptByOne(table, threshold);
  return table.layers.map((layer, row) => [
    layer,
    (table.channels[row] - kept[row]) / table.channels[row],
  ]);
}
