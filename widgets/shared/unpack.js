/** The columns of a packed profile, and the readers of packed buffers (`widgets/wire.py`). */

import { depthsOf, endsOf } from "./tree.js";

/** @typedef {{ names: string[], codes: DataView }} Numbered */

/**
 * A profile's rows in the order of its tree: a row's parent stands before it, and its descendants
 * are the rows up to `end`.
 * @typedef {{
 *   isKnown: boolean, title: string, note: string, workload: string, ceiling: any,
 *   layers: string[], parent: Int32Array, depth: Uint16Array, end: Int32Array, place: Map<string,
 *   number>,
 *   kind: string[], output: string[], bound: string[], numbers: Record<string, Float32Array>,
 *   before: Record<string, Float32Array> | null, isUncertain: boolean,
 *   engine: string, runsAs: string[], joinedInto: Int32Array, unknownWhy: Record<string, string[]>,
 * }} LayerTable
 */

/** Unpack the trait `data`; `{}` is an unknown profile. @param {any} data @returns {LayerTable} */
export function unpackedProfile(data) {
  const layers = /** @type {string[]} */ (data?.layer ?? []);
  const parent = data?.parent ? int32s(data.parent) : new Int32Array();
  return {
    isKnown: Array.isArray(data?.layer),
    title: data?.title ?? "",
    note: data?.note ?? "",
    workload: data?.workload ?? "",
    ceiling: data?.ceiling ?? null,
    layers,
    parent,
    depth: depthsOf(parent),
    end: endsOf(parent),
    place: new Map(layers.map((layer, row) => [layer, row])),
    kind: spelledOut(data?.kind),
    output: spelledOut(data?.output),
    bound: spelledOut(data?.bound),
    numbers: columnsOf(data?.numbers ?? {}),
    before: data?.before ? columnsOf(data.before) : null,
    isUncertain: Boolean(data?.is_uncertain),
    engine: data?.engine ?? "",
    runsAs: spelledOut(data?.runs_as),
    joinedInto: data?.joined_into ? int32s(data.joined_into) : new Int32Array(),
    unknownWhy: Object.fromEntries(
      Object.entries(data?.unknown_why ?? {}).map(([name, why]) => [name, spelledOut(why)]),
    ),
  };
}

/** @param {Record<string, DataView>} packed @returns {Record<string, Float32Array>} */
function columnsOf(packed) {
  return Object.fromEntries(Object.entries(packed).map(([name, view]) => [name, float32s(view)]));
}

/**
 * A number of a row; NaN if unknown.
 * @param {LayerTable} table @param {string} name @param {number} row
 */
export function numberAt(table, name, row) {
  return table.numbers[name]?.[row] ?? NaN;
}

/** Why a figure of a row is not known; "" if it is. @param {LayerTable} table @param {string} name @param {number} row */
export function whyUnknown(table, name, row) {
  return table.unknownWhy[name]?.[row] ?? "";
}

/** Whether an engine runs a row inside another one. @param {LayerTable} table @param {number} row */
export function isJoined(table, row) {
  return (table.joinedInto[row] ?? -1) >= 0;
}

/** @param {DataView} view @returns {Float32Array} */
export function float32s(view) {
  return new Float32Array(aligned(view));
}

/** @param {DataView} view @returns {Float64Array} */
export function float64s(view) {
  return new Float64Array(aligned(view));
}

/** @param {DataView} view @returns {Int32Array} */
export function int32s(view) {
  return new Int32Array(aligned(view));
}

/** Each row's name. @param {Numbered | undefined} numbered @returns {string[]} */
export function spelledOut(numbered) {
  if (!numbered) return [];
  return Array.from(new Uint16Array(aligned(numbered.codes)), (code) => numbered.names[code]);
}

/**
 * A copy of the view's bytes if unaligned: a view may begin anywhere in a message.
 * @param {DataView} view @returns {ArrayBuffer}
 */
function aligned(view) {
  return /** @type {ArrayBuffer} */ (view.buffer).slice(
    view.byteOffset,
    view.byteOffset + view.byteLength,
  );
}
