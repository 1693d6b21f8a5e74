/**
 * The column of the layer table that shows how much a layer matters: a small cell a format.
 */

import { fresh, set } from "../shared/dom.js";
import { heatStrip, heatWords } from "../sensitivity/heat_cells.js";
import { predictedAt } from "../sensitivity/table.js";

const STRIP_ROOM = 116;

/**
 * @param {import("../sensitivity/table.js").SensitivityTable} table @param {(layer: string) =>
 * string} chosen the format of a layer
 * @returns {import("../layers/columns.js").Column}
 */
export function heatColumn(table, chosen) {
  const cell = Math.max(
    8,
    Math.min(24, Math.floor(STRIP_ROOM / Math.max(1, table.formats.length))),
  );
  const names = table.formats.join(", ");
  const quantity = table.unit === "loss" ? "rise of the loss" : "error of the output";
  return {
    name: "sensitivity",
    label: "What it loses",
    width: Math.max(90, 16 + cell * table.formats.length),
    rank: 93,
    isNumber: true,
    hint: `${names}, from left to right: ${quantity}, predicted; sorted by the worst`,
    value: (layers, row) => worstOf(table, layers.layers[row]),
    key: (layers, row) => `${chosen(layers.layers[row])} ${keyOf(table)}`,
    draw: (box, layers, row) =>
      drawStrip(box, table, layers.layers[row], chosen(layers.layers[row]), cell),
  };
}

/**
 * A layer's cost in its worst format; NaN if unknown.
 * @param {import("../sensitivity/table.js").SensitivityTable} table @param {string} layer
 */
function worstOf(table, layer) {
  const row = table.place.get(layer);
  if (row === undefined) return NaN;
  const known = table.formats
    .map((format) => predictedAt(table, row, format))
    .filter((value) => !Number.isNaN(value));
  return known.length ? Math.max(...known) : NaN;
}

/**
 * @param {HTMLElement} box @param {import("../sensitivity/table.js").SensitivityTable} table @param
 * {string} layer @param {string} chosen @param {number} width
 */
function drawStrip(box, table, layer, chosen, width) {
  const row = table.place.get(layer);
  const words = row === undefined ? "" : heatWords(table, row);
  box.title = words;
  set(box, { "aria-label": words || null });
  box.style.setProperty("--pf-heat-width", `${width}px`);
  fresh(box, row !== undefined && heatStrip(table, row, chosen));
}

/** One number per table: cells are redrawn for another table. @type {WeakMap<object, number>} */
const TABLE_KEYS = new WeakMap();
let keysGiven = 0;

/** @param {object} table */
function keyOf(table) {
  if (!TABLE_KEYS.has(table)) TABLE_KEYS.set(table, (keysGiven += 1));
  return TABLE_KEYS.get(table);
}
