/** The memory view's texts for an event and for a cell of the map. No DOM. */

import { heldAt } from "./layout.js";
import { readableBytes, readablePercent, threeFigures } from "../shared/format.js";

/** @typedef {import("./layout.js").Timeline} Timeline */
/** @typedef {import("./map.js").MapCell} MapCell */

const MOST_NAMED = 6;

/** The name of a group or layer; the root has none. @param {string} name */
export function nameOrModel(name) {
  return name || "the model itself";
}

/**
 * An event: a heading, what happened, and what is alive then beyond the weights, the largest first.
 * @param {Timeline} timeline @param {number} event
 * @returns {[string, string, [string, string][]]}
 */
export function eventWords(timeline, event) {
  const held = heldAt(timeline, event).filter((one) => one.kind !== "weights");
  const rest = held.slice(MOST_NAMED).reduce((sum, one) => sum + one.bytes, 0);
  const change = timeline.change[event];
  const layer = nameOrModel(timeline.layers[timeline.layerOf[event]]);
  const verb = change < 0 ? "gives back" : "takes";
  /** @type {[string, string][]} */
  const named = held
    .slice(0, MOST_NAMED)
    .map((one) => [readableBytes(one.bytes), `${nameOrModel(one.layer)}, ${one.kind}`]);
  if (rest) named.push([readableBytes(rest), `${held.length - MOST_NAMED} more`]);
  return [
    `${readableBytes(timeline.alive[event])} after ${threeFigures(timeline.time[event])} ms`,
    `${layer} ${verb} ${readableBytes(Math.abs(change))}`,
    named,
  ];
}

/** The layer of a cell. @param {Timeline | null} timeline @param {MapCell} cell */
export function cellName(timeline, { held }) {
  return nameOrModel(held.layer || (timeline?.workload ?? ""));
}

/**
 * A cell's bytes, and its share of all cells.
 * @param {MapCell[]} cells @param {MapCell} cell @returns {[string, string][]}
 */
export function cellFigures(cells, { held }) {
  const total = cells.reduce((sum, cell) => sum + cell.held.bytes, 0);
  return [
    [readableBytes(held.bytes), "held"],
    [readablePercent(held.bytes / total), "of all that is alive"],
  ];
}

/**
 * A cell in a line of text.
 * @param {Timeline | null} timeline @param {MapCell[]} cells @param {MapCell} cell
 */
export function cellWords(timeline, cells, cell) {
  const figures = cellFigures(cells, cell).map(([value, name]) => `${value} ${name}`);
  return [cellName(timeline, cell), cell.held.kind, ...figures].join(", ");
}
