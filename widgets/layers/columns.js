/** The columns of the layer table: content, sort key, and which are dropped first. */

import { fresh, h } from "../shared/dom.js";
import { readableBytes, readableCount, readableMs, readablePercent } from "../shared/format.js";
import { isBranch } from "../shared/tree.js";
import { numberAt } from "../shared/unpack.js";

/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */

/**
 * A column. Of several that do not fit, the one with the lowest `rank` gives way. A cell is drawn
 * again when `key` says another thing.
 * @typedef {{
 *   name: string, label: string, width: number, rank: number, hint?: string, isNumber?: boolean,
 *   value: (table: LayerTable, row: number) => number | string,
 *   key?: (table: LayerTable, row: number) => string,
 *   draw: (cell: HTMLElement, table: LayerTable, row: number) => void,
 * }} Column
 */

/**
 * The symbol of a layer's bound, as on the roofline, in addition to the colour.
 * @type {Record<string, string>}
 */
export const BOUND_SHAPES = { compute: "●", memory: "■", overhead: "▲" };

export const NAME_WIDTH = 190;

/** @type {Column[]} */
export const LAYER_COLUMNS = [
  textColumn("kind", "kind", 104, 80, (table, row) => table.kind[row]),
  timeColumn(
    "self_ms",
    "self ms",
    92,
    100,
    "what the layer ran itself; the bar against the longest",
  ),
  timeColumn(
    "total_ms",
    "total ms",
    92,
    72,
    "with the layers under it; the bar against the whole model",
  ),
  numberColumn(
    "share",
    "share",
    64,
    60,
    "part of the whole model's time, with the layers under it",
    readablePercent,
  ),
  numberColumn(
    "total_flops",
    "FLOPs",
    66,
    70,
    "operations, with the layers under it",
    readableCount,
  ),
  numberColumn(
    "total_parameters",
    "weights",
    66,
    65,
    "parameters, with the layers under it",
    readableCount,
  ),
  numberColumn(
    "total_bytes",
    "moved",
    72,
    40,
    "bytes read and written, with the layers under it",
    readableBytes,
  ),
  numberColumn("peak_bytes", "peak", 72, 30, "the most memory in use while it ran", readableBytes),
  textColumn(
    "output",
    "output",
    108,
    20,
    (table, row) => table.output[row],
    "shape of what it returns",
  ),
  numberColumn(
    "roof_share",
    "of roof",
    60,
    50,
    "how near it comes to what this machine can do; beyond 100% it worked from the cache",
    wholePercent,
  ),
  {
    name: "bound",
    label: "bound by",
    width: 88,
    rank: 90,
    hint: "what keeps it from being faster",
    value: (table, row) => table.bound[row] ?? "",
    draw: (cell, table, row) =>
      void fresh(cell, boundSign(table.bound[row]), h("span", {}, table.bound[row] ?? "")),
  },
];

/**
 * The columns that fit, in their order; the layer's name has its own room.
 * @template {{ width: number, rank: number }} C @param {C[]} columns @param {number} width @param
 * {number} [nameWidth] @returns {C[]}
 */
export function fittingColumns(columns, width, nameWidth = NAME_WIDTH) {
  const kept = new Set();
  let left = width - nameWidth;
  for (const column of [...columns].sort((first, second) => second.rank - first.rank)) {
    if (column.width > left) break;
    kept.add(column);
    left -= column.width;
  }
  return columns.filter((column) => kept.has(column));
}

/** The minimal width of the name column. @param {number} width */
export function nameWidthIn(width) {
  return Math.min(NAME_WIDTH, Math.max(110, Math.round(width * 0.38)));
}

/**
 * A bar's length as a share of the cell; positive values are always visible.
 * @param {number} value @param {number} whole
 */
export function barLength(value, whole) {
  if (!(value > 0) || !(whole > 0)) return 0;
  return Math.min(1, Math.max(0.01, value / whole));
}

/** The shape of a layer's bound. @param {string | undefined} bound */
export function boundSign(bound) {
  return bound
    ? h("i", { class: `pf-sign pf-${bound}`, "aria-hidden": "true" }, BOUND_SHAPES[bound] ?? "◆")
    : null;
}

/** @param {number} ratio */
function wholePercent(ratio) {
  return Number.isNaN(ratio) ? "–" : `${Math.round(100 * ratio)}%`;
}

/**
 * @param {string} name @param {string} label @param {number} width @param {number} rank
 * @param {(table: LayerTable, row: number) => string} value @param {string} [hint] @returns
 * {Column}
 */
function textColumn(name, label, width, rank, value, hint) {
  /** @type {Column["draw"]} */
  const draw = (cell, table, row) => {
    cell.textContent = value(table, row) ?? "";
    cell.title = cell.textContent;
  };
  return { name, label, width, rank, hint, value: (table, row) => value(table, row) ?? "", draw };
}

/**
 * @param {string} name @param {string} label @param {number} width @param {number} rank @param
 * {string} hint
 * @param {(value: number) => string} written @returns {Column}
 */
function numberColumn(name, label, width, rank, hint, written) {
  /** @type {Column["draw"]} */
  const draw = (cell, table, row) => {
    const text = written(numberAt(table, name, row));
    cell.classList.toggle("pf-nothing", text === "–" || text === "0");
    cell.textContent = text;
  };
  return {
    name,
    label,
    width,
    rank,
    hint,
    isNumber: true,
    value: (table, row) => numberAt(table, name, row),
    draw,
  };
}

/**
 * @param {string} name @param {string} label @param {number} width @param {number} rank @param
 * {string} hint @returns {Column}
 */
function timeColumn(name, label, width, rank, hint) {
  /** @type {Column["draw"]} */
  const draw = (cell, table, row) => {
    const value = numberAt(table, name, row);
    // a branch has layers with different bounds
    const bound = name === "total_ms" && isBranch(table.end, row) ? "" : table.bound[row];
    const bar = h("i", { class: `pf-bar pf-${bound || "unknown"}`, "aria-hidden": "true" });
    bar.style.width = `${(100 * barLength(value, longest(table, name))).toFixed(1)}%`;
    cell.classList.add("pf-time");
    fresh(
      cell,
      bar,
      name === "self_ms" && boundSign(table.bound[row]),
      h("b", {}, readableMs(value)),
    );
  };
  return {
    name,
    label,
    width,
    rank,
    hint,
    isNumber: true,
    value: (table, row) => numberAt(table, name, row),
    draw,
  };
}

/** @type {WeakMap<LayerTable, Record<string, number>>} */
const LONGEST = new WeakMap();

/** The largest value of a column, computed once. @param {LayerTable} table @param {string} name */
function longest(table, name) {
  const known = LONGEST.get(table) ?? {};
  known[name] ??= (table.numbers[name] ?? []).reduce(
    (most, value) => (value > most ? value : most),
    0,
  );
  LONGEST.set(table, known);
  return known[name];
}
