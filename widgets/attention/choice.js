/**
 * Which share is kept in which layers: what Python sent, and on top what was asked for since. No
 * page in here.
 */

import { unserved } from "../shared/host.js";

/** @typedef {import("./table.js").AttentionTable} AttentionTable */
/**
 * @typedef {{ index: number, layers: string[] }} AttentionChoice a stop, and the layers that take
 * part
 */

/**
 * What the recipe keeps, or is about to, of the kind that is shown; null where it keeps all.
 * @param {any} model @param {AttentionTable} table @returns {AttentionChoice | null}
 */
export function keptByRecipe(model, table) {
  const asked = /** @type {any[]} */ (unserved(model))
    .filter((one) => one.do === "attention" && one.kind === table.kind)
    .at(-1);
  const known = asked ?? model.get("state")?.attending?.[table.kind];
  if (!known) return null;
  const index = stopOf(table, known.keep);
  return index < 0 ? null : { index, layers: known.layers?.length ? known.layers : table.able };
}

/**
 * What a panel alone was sent.
 * @param {any} model @param {AttentionTable} table @returns {AttentionChoice}
 */
export function keptAlone(model, table) {
  return {
    index: Math.max(0, stopOf(table, model.get("keep"))),
    layers: model.get("layers") ?? table.able,
  };
}

/**
 * How many of the layers that were asked for attend to a part, where not all do.
 * @param {string[] | undefined} taking @param {string[]} asked
 */
export function takingWords(taking, asked) {
  const count = asked.filter((layer) => taking?.includes(layer)).length;
  if (!taking || count === asked.length) return "";
  return count
    ? `${count} of ${asked.length} layers do so; the others would not be clearly faster and keep all keys.`
    : "No layer does so: none would be clearly faster, and all keys are kept.";
}

/** @param {AttentionTable} table @param {number} keep */
function stopOf(table, keep) {
  return table.stops.findIndex((stop) => Math.abs(stop.keep - keep) < 1e-6);
}

/** @param {AttentionChoice | null} one @param {AttentionChoice | null} other */
export function isSameAttention(one, other) {
  if (!one || !other) return one === other;
  return (
    one.index === other.index &&
    one.layers.length === other.layers.length &&
    one.layers.every((layer) => other.layers.includes(layer))
  );
}
