/** One row of the layer table: created once, refilled as layers scroll into view. */

import { fresh, h, set } from "../shared/dom.js";

/** @typedef {import("./columns.js").Column} Column */

/** The key of each cell's content, to skip unchanged cells. @type {WeakMap<Element, string>} */
const DRAWN_CELLS = new WeakMap();

/** Which columns a row has cells for. @type {WeakMap<Element, string>} */
const DRAWN_ROWS = new WeakMap();

/** @returns {HTMLElement} */
export function emptyRow() {
  return h("div", { class: "pf-row", role: "row" });
}

/**
 * Fill a row; cells whose key is the same stay as they are, so that an open list of choices stays
 * open.
 * @param {HTMLElement} element @param {Column[]} columns @param
 * {import("../shared/unpack.js").LayerTable} table @param {number} row
 * @param {string} edition of the table: another one draws all
 */
export function drawCells(element, columns, table, row, edition) {
  const names = columns.map((column) => column.name).join();
  if (DRAWN_ROWS.get(element) !== names) fresh(element, ...columns.map(emptyCell));
  DRAWN_ROWS.set(element, names);
  columns.forEach((column, place) => {
    const cell = /** @type {HTMLElement} */ (element.children[place]);
    const key = `${edition} ${row} ${column.key?.(table, row) ?? ""}`;
    if (DRAWN_CELLS.get(cell) !== key) column.draw(cell, table, row);
    DRAWN_CELLS.set(cell, key);
  });
}

/**
 * Set the ARIA attributes of a row's position and choice.
 * @param {HTMLElement} element @param {{ id: string, index: number, level: number, isOpen: boolean
 * | null, isChosen: boolean }} place
 */
export function placeRow(element, place) {
  set(element, {
    id: place.id,
    "aria-rowindex": place.index + 2,
    "aria-level": place.level || null,
    "aria-expanded": place.isOpen === null ? null : String(place.isOpen),
  });
  element.dataset.index = String(place.index);
  chooseRow(element, place.isChosen);
}

/** @param {HTMLElement} element @param {boolean} isChosen */
export function chooseRow(element, isChosen) {
  element.classList.toggle("pf-chosen", isChosen);
  element.setAttribute("aria-selected", String(isChosen));
  for (const control of rowControls(element)) control.tabIndex = isChosen ? 0 : -1;
}

/** The controls in a row. @param {Element} element @returns {HTMLElement[]} */
export function rowControls(element) {
  return [...element.querySelectorAll("select, button, input")].map(
    (element) => /** @type {HTMLElement} */ (element),
  );
}

/** @param {Column} column @param {number} place */
function emptyCell(column, place) {
  const role = place === 0 ? "rowheader" : "gridcell";
  return h("div", {
    class: `pf-cell ${column.isNumber ? "pf-number" : ""} pf-is-${column.name}`,
    role,
  });
}
