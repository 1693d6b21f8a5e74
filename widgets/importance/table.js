/**
 * The columns packed by `packed_importance`, sorted by layer, and the channels that a threshold
 * keeps. No DOM.
 */

import { float32s, int32s, spelledOut } from "../shared/unpack.js";

/**
 * The channels of a layer, the most important first: values in the layer's mean, and their standard
 * errors in the same.
 * @typedef {{ value: Float32Array, error: Float32Array, channel: Uint32Array }} SortedChannels
 * @typedef {{
 *   isKnown: boolean, title: string, machine: string, method: string, unit: string, cutBy: string,
 *   examples: number, isInterrupted: boolean, notes: string[],
 *   layers: string[], place: Map<string, number>, kind: string[], note: string[], channels:
 *   Int32Array, isAnswer: Int32Array, mean: Float32Array,
 *   sorted: SortedChannels[], all: Float32Array,
 * }} ImportanceTable `all`: the values of every channel that can go, the largest first
 */

/**
 * Unpack the trait `data`; `{}` is an unknown importance.
 * @param {any} data @returns {ImportanceTable}
 */
export function unpackedImportance(data) {
  const layers = /** @type {string[]} */ (data?.layer ?? []);
  const numbers = (/** @type {string} */ name) =>
    data?.[name] ? int32s(data[name]) : new Int32Array();
  const isAnswer = numbers("is_answer");
  const sorted = sortedLayers(numbers("judged"), data?.value, data?.error);
  return {
    isKnown: Array.isArray(data?.layer),
    title: data?.title ?? "",
    machine: data?.machine ?? "",
    method: data?.method ?? "",
    unit: data?.unit ?? "",
    cutBy: data?.cut_by ?? "",
    examples: data?.examples ?? 0,
    isInterrupted: Boolean(data?.is_interrupted),
    notes: data?.notes ?? [],
    layers,
    place: new Map(layers.map((layer, row) => [layer, row])),
    kind: spelledOut(data?.kind),
    note: spelledOut(data?.note),
    channels: numbers("channels"),
    isAnswer,
    mean: data?.mean ? float32s(data.mean) : new Float32Array(),
    sorted,
    all: merged(sorted.filter((layer, row) => !isAnswer[row])),
  };
}

/** Whether channels of a layer can go. @param {ImportanceTable} table @param {number} row */
export function canLose(table, row) {
  return table.sorted[row]?.value.length > 1 && !table.isAnswer[row];
}

/**
 * The number of a layer's channels not below a threshold; at least one, and all of a fixed layer.
 * @param {ImportanceTable} table @param {number} row @param {number} threshold
 */
export function keptAbove(table, row, threshold) {
  if (!canLose(table, row)) return table.channels[row];
  return Math.max(1, countAbove(table.sorted[row].value, threshold));
}

/**
 * The number of channels of each layer that a threshold keeps.
 * @param {ImportanceTable} table @param {number} threshold @returns {number[]}
 */
export function keptByOne(table, threshold) {
  return table.layers.map((_, row) => keptAbove(table, row, threshold));
}

/**
 * A threshold that keeps so many: half way to the next that is not kept, so that no rounding
 * decides; 0 keeps all.
 * @param {Float32Array} values the largest first @param {number} kept
 */
export function thresholdKeeping(values, kept) {
  if (kept >= values.length) return 0;
  return kept < 1 ? values[0] * 1.001 : (values[kept - 1] + values[kept]) / 2;
}

/** @param {Float32Array} values the largest first @param {number} threshold */
export function countAbove(values, threshold) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] >= threshold) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How it was measured, in a line. @param {ImportanceTable} table */
export function importanceLine(table) {
  const on = table.examples ? `${table.examples} examples` : "";
  const stopped = table.isInterrupted ? "stopped early: what was found until then" : "";
  return [`by ${table.method}`, on, table.machine, stopped, ...table.notes]
    .filter(Boolean)
    .join(" · ");
}

/**
 * @param {Int32Array} counts @param {DataView} [value] @param {DataView} [error] @returns
 * {SortedChannels[]}
 */
function sortedLayers(counts, value, error) {
  const [values, errors] = [value, error].map((view) =>
    view ? float32s(view) : new Float32Array(),
  );
  let start = 0;
  return [...counts].map((count) => {
    const [own, spread] = [values, errors].map((column) => column.subarray(start, start + count));
    start += count;
    const channel = Uint32Array.from({ length: count }, (_, index) => index).sort(
      (first, second) => own[second] - own[first] || first - second,
    );
    return {
      value: Float32Array.from(channel, (index) => own[index]),
      error: Float32Array.from(channel, (index) => spread[index]),
      channel,
    };
  });
}

/** @param {SortedChannels[]} layers @returns {Float32Array} */
function merged(layers) {
  const all = new Float32Array(layers.reduce((sum, layer) => sum + layer.value.length, 0));
  let end = 0;
  for (const { value } of layers) {
    all.set(value, end);
    end += value.length;
  }
  return all.sort().reverse();
}
