/**
 * The heads of a table's columns: a click sorts, another turns it round, a third gives the tree
 * back.
 */

import { fresh, h } from "./dom.js";
import { rovingTabindex } from "./roving_tabindex.js";

/** @typedef {{ name: string, label: string, isNumber?: boolean, hint?: string }} Headed without a label it is not sorted by */

/**
 * @param {(column: string) => void} onSort @param {() => void} onFold
 * @returns {{ element: HTMLElement, show: (columns: Headed[], sorting: import("./order.js").Sorting
 * | null, fold: string | null) => void }}
 */
export function gridHead(onSort, onFold) {
  const element = h("div", { class: "pf-row pf-column-heads", role: "row", "aria-rowindex": 1 });
  const stopAt = rovingTabindex(element, "button");
  /** @type {Map<string, HTMLElement>} */
  const cells = new Map();
  const folder = h("button", { class: "pf-folder", type: "button", onclick: onFold });
  let drawn = "";

  /** @param {Headed[]} columns */
  function build(columns) {
    cells.clear();
    for (const column of columns)
      cells.set(
        column.name,
        headCell(column, () => onSort(column.name)),
      );
    cells.get("layer")?.prepend(folder);
    fresh(element, ...cells.values());
    stopAt(element.querySelector("button.pf-sort"));
  }

  return {
    element,
    show(columns, sorting, fold) {
      const names = columns.map((column) => column.name).join();
      if (names !== drawn) build(columns);
      drawn = names;
      for (const [name, cell] of cells)
        showSorting(cell, sorting?.column === name ? sorting.isDown : null);
      folder.hidden = fold === null;
      folder.textContent = fold === "open" ? "▸" : "▾";
      folder.setAttribute("aria-label", fold === "open" ? "open all" : "fold all");
      folder.title = fold === "open" ? "open all" : "fold all";
    },
  };
}

/** @param {Headed} column @param {() => void} onclick */
function headCell(column, onclick) {
  const arrow = h("span", { class: "pf-arrow", "aria-hidden": "true" });
  const attributes = { class: "pf-sort", type: "button", title: column.hint, onclick };
  return h(
    "div",
    {
      class: `pf-cell ${column.isNumber ? "pf-number" : ""} pf-is-${column.name}`,
      role: "columnheader",
    },
    column.label && h("button", attributes, column.label, arrow),
  );
}

/** @param {HTMLElement} cell @param {boolean | null} isDown */
function showSorting(cell, isDown) {
  const order = isDown === null ? "none" : isDown ? "descending" : "ascending";
  cell.setAttribute("aria-sort", order);
  const arrow = cell.querySelector(".pf-arrow");
  if (arrow) arrow.textContent = isDown === null ? "" : isDown ? "▾" : "▴";
}
