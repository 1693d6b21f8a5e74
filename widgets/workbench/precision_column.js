/**
 * The workbench's columns of the layer table: a precision to choose, and the recipe's effect on a
 * layer.
 */

import { fresh, h } from "../shared/dom.js";
import { isBranch } from "../shared/tree.js";

/** @typedef {import("../layers/columns.js").Column} Column */
/** @typedef {import("./expected.js").Expected} Expected */
/**
 * @typedef {{ value: string, reason: string, isAsked: boolean, choices: string[] }} PrecisionChoice
 */

/**
 * @param {() => Expected} state @param {(layer: string, name: string) => void} onChoose @returns
 * {Column[]}
 */
export function benchColumns(state, onChoose) {
  return [precisionColumn(state, onChoose), changeColumn(state)];
}

/**
 * The precision choices of a layer; null for a container, which has no weights of its own.
 * @param {Expected} state @param {string} layer @param {boolean} isLeaf @returns {PrecisionChoice |
 * null}
 */
export function precisionOf(state, layer, isLeaf) {
  const isAsked = layer in state.askedPrecisions;
  const value = (isAsked ? state.askedPrecisions[layer] : state.precisions[layer]) ?? "";
  const reason = state.cannot[layer] ?? "";
  if (!state.choices.length || (!isLeaf && !value && !reason)) return null;
  const choices = state.choices.includes(value) ? state.choices : [...state.choices, value];
  return { value, reason, isAsked, choices };
}

/**
 * @param {() => Expected} state @param {(layer: string, name: string) => void} onChoose @returns
 * {Column}
 */
function precisionColumn(state, onChoose) {
  /**
   * @type {(table: import("../shared/unpack.js").LayerTable, row: number) => PrecisionChoice |
   * null}
   */
  const choiceOf = (table, row) =>
    precisionOf(state(), table.layers[row], !isBranch(table.end, row));
  return {
    name: "precision",
    label: "Format",
    width: 84,
    rank: 99, // what one can do with a layer stays longer than its bars
    hint: "the format that the layer computes in",
    value: (table, row) => choiceOf(table, row)?.value ?? "",
    key: (table, row) => JSON.stringify(choiceOf(table, row)),
    draw: (cell, table, row) =>
      drawPrecision(cell, table.layers[row], choiceOf(table, row), onChoose),
  };
}

/**
 * @param {HTMLElement} cell @param {string} layer @param {PrecisionChoice | null} choice @param
 * {(layer: string, name: string) => void} onChoose
 */
function drawPrecision(cell, layer, choice, onChoose) {
  cell.title = choice?.reason ?? "";
  cell.classList.toggle("pf-asked", Boolean(choice?.isAsked));
  const old = /** @type {HTMLSelectElement | null} */ (cell.querySelector("select"));
  const isKept = choice && old && old.dataset.layer === layer && isSameChoice(old, choice);
  const select = isKept ? old : choice && precisionSelect(layer, choice, onChoose);
  if (!isKept) fresh(cell, select);
  if (!select || !choice) return;
  select.value = choice.value;
  select.classList.toggle("pf-unset", !choice.value);
}

/**
 * Whether only the value differs: then the field, and its focus, stays.
 * @param {HTMLSelectElement} old @param {PrecisionChoice} choice
 */
function isSameChoice(old, choice) {
  return (
    old.disabled === Boolean(choice.reason) &&
    [...old.options].map((option) => option.value).join() === choice.choices.join()
  );
}

/**
 * @param {string} layer @param {PrecisionChoice} choice @param {(layer: string, name: string) =>
 * void} onChoose
 */
function precisionSelect(layer, choice, onChoose) {
  const label = `precision of ${layer}${choice.reason ? `: ${choice.reason}` : ""}`;
  const options = choice.choices.map((name) =>
    h("option", { value: name }, name || (choice.reason ? "–" : "default")),
  );
  const select = /** @type {HTMLSelectElement} */ (
    h("select", { "aria-label": label, disabled: Boolean(choice.reason) }, ...options)
  );
  select.dataset.layer = layer;
  select.addEventListener("change", () => onChoose(layer, select.value));
  return select;
}

/** @param {() => Expected} state @returns {Column} */
function changeColumn(state) {
  /** @type {(table: import("../shared/unpack.js").LayerTable, row: number) => string} */
  const textOf = (table, row) => state().changes[table.layers[row]] ?? "";
  return {
    name: "change",
    label: "Change",
    width: 124,
    most: 280,
    rank: 73,
    hint: "what the recipe made of the layer",
    value: textOf,
    key: textOf,
    draw(cell, table, row) {
      cell.textContent = textOf(table, row);
      cell.title = cell.textContent;
    },
  };
}
