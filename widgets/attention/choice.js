/**
 * Which share of keys is kept in which layers: Python's state plus later requests, and notes on
 * that choice. Without DOM.
 */

import { unserved } from "../shared/host.js";

/**
 * The cost as Python packs it: the shares from the largest on, and each layer with its errors.
 * @typedef {{ keep: number, text: string, is_slower: boolean }} AttentionStop
 * @typedef {{ layer: string, size: string, reason: string, hint: string,
 *   errors: { text: string, look: string, share: number }[] }} AttendingLayer
 * @typedef {{ kind: string, stops: AttentionStop[], layers: AttendingLayer[], able: string[] }}
 *   AttentionTable
 */
/**
 * @typedef {{ index: number, layers: string[] }} AttentionChoice a stop, and the layers that take
 * part
 */

/**
 * The choice of a pending request or the recipe, for the shown kind; null if all keys are kept.
 * @param {any} model @param {AttentionTable} table @returns {AttentionChoice | null}
 */
export function keptByRecipe(model, table) {
  const asked = /** @type {any[]} */ (unserved(model))
    .filter((request) => request.do === "attention" && request.kind === table.kind)
    .at(-1);
  const known = asked ?? model.get("state")?.attending?.[table.kind];
  if (!known) return null;
  const index = stopOf(table, known.keep);
  return index < 0 ? null : { index, layers: known.layers?.length ? known.layers : table.able };
}

/**
 * The choice of a panel without workbench, from its traits.
 * @param {any} model @param {AttentionTable} table @returns {AttentionChoice}
 */
export function keptAlone(model, table) {
  return {
    index: Math.max(0, stopOf(table, model.get("keep"))),
    layers: model.get("layers") ?? table.able,
  };
}

const ATTENTION_ALONE =
  "panel.keep and panel.layers hold the choice; panel.step is the step, panel.recipe applies it.";

/**
 * Notes on the choice that is shown.
 * @param {AttentionTable} table @param {AttentionChoice} choice
 * @param {{ isInBench: boolean, isTaken: boolean, isOther: boolean, taking: string[] | undefined
 * }} state `isTaken`: the recipe has this choice; `isOther`: another kind is selected; `taking`:
 * the layers that are sparse now
 */
export function choiceNote(table, choice, { isInBench, isTaken, isOther, taking }) {
  const isPart = choice.layers.length < table.able.length;
  const notes = [
    isOther &&
      `These figures are of ${table.kind}; find what the other costs before it can be kept.`,
    isTaken && takingWords(taking, choice.layers),
    isPart &&
      "The figures were measured with every layer taking part; " +
        "with fewer, error and gain are others.",
    isInBench &&
      !isTaken &&
      table.stops[choice.index].is_slower &&
      "Layers that would not be clearly faster stay as they are.",
    !isInBench && ATTENTION_ALONE,
  ];
  return notes.filter(Boolean).join(" ");
}

/**
 * How many of the requested layers are sparse, if not all are.
 * @param {string[] | undefined} taking @param {string[]} asked
 */
export function takingWords(taking, asked) {
  const count = asked.filter((layer) => taking?.includes(layer)).length;
  if (!taking || count === asked.length) return "";
  return count
    ? `${count} of ${asked.length} layers do so; ` +
        "the others would not be clearly faster and keep all keys."
    : "No layer does so: none would be clearly faster, and all keys are kept.";
}

/** @param {AttentionTable} table @param {number} keep */
function stopOf(table, keep) {
  return table.stops.findIndex((stop) => Math.abs(stop.keep - keep) < 1e-6);
}

/** @param {AttentionChoice | null} first @param {AttentionChoice | null} second */
export function isSameAttention(first, second) {
  if (!first || !second) return first === second;
  return (
    first.index === second.index &&
    first.layers.length === second.layers.length &&
    first.layers.every((layer) => second.layers.includes(layer))
  );
}
