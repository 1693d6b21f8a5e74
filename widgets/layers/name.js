/**
 * The cell of a layer's name: in the tree its indented own name with a fold button; in a list its
 * whole path.
 */

import { fresh, h } from "../shared/dom.js";
import { piecesOf } from "../shared/order.js";
import { isBranch, ownName } from "../shared/tree.js";

const INDENT = 14;
const TWISTY = 34; // the fold button and the cell's edges
const COUNT = 30; // the number of layers in a closed branch

/**
 * The label of a layer; the root, without a path, is the model itself.
 * @param {import("../shared/unpack.js").LayerTable} table @param {number} row
 */
export function titleOf(table, row) {
  return table.layers[row] || table.workload || "the model";
}

/** The layer's own name in the tree. @param {import("../shared/unpack.js").LayerTable} table @param {number} row */
function nameInTree(table, row) {
  const parent = table.parent[row];
  return ownName(titleOf(table, row), parent >= 0 ? table.layers[parent] : "");
}

/**
 * The room that a name takes in the tree with what stands around it.
 * @param {import("../shared/unpack.js").LayerTable} table @param {number} row @param {(weight:
 * number) => (text: string) => number} measure
 */
export function nameRoom(table, row, measure) {
  const isGroup = isBranch(table.end, row);
  const text = measure(isGroup ? 600 : 400)(nameInTree(table, row));
  return text + TWISTY + INDENT * table.depth[row] + (isGroup ? COUNT : 0);
}

/**
 * @param {HTMLElement} cell @param {import("../shared/unpack.js").LayerTable} table @param {number}
 * row
 * @param {{ isTree: boolean, isClosed: boolean, words: string[], onFold: (row: number) => void,
 * fit: (name: string, taken: number, weight: number) => string }} how `fit` cuts a name in its
 * middle to the room that is left
 */
export function drawName(cell, table, row, how) {
  cell.title = titleOf(table, row);
  cell.style.paddingLeft = how.isTree ? `${6 + INDENT * table.depth[row]}px` : "10px";
  cell.classList.toggle("pf-whole", how.isTree && isBranch(table.end, row));
  if (how.isTree) return void fresh(cell, ...inTree(table, row, how));
  const title = titleOf(table, row);
  fresh(cell, ...(how.words.length ? inList(title, how.words) : [how.fit(title, 18, 400)]));
}

/**
 * @param {import("../shared/unpack.js").LayerTable} table @param {number} row
 * @param {{ isClosed: boolean, onFold: (row: number) => void,
 * fit: (name: string, taken: number, weight: number) => string }} how
 */
function inTree(table, row, how) {
  const isGroup = isBranch(table.end, row);
  const taken = TWISTY + INDENT * table.depth[row] + (isGroup && how.isClosed ? COUNT : 0);
  const own = nameInTree(table, row);
  const name = h("span", { class: "pf-text" }, how.fit(own, taken, isGroup ? 600 : 400));
  if (!isGroup) return [h("span", { class: "pf-twisty" }), name];
  const twisty = h("span", { class: "pf-twisty", "aria-hidden": "true" }, how.isClosed ? "▸" : "▾");
  twisty.addEventListener("click", (event) => {
    event.stopPropagation();
    how.onFold(row);
  });
  return [twisty, name, how.isClosed && h("small", {}, `${table.end[row] - row - 1}`)];
}

/** @param {string} path @param {string[]} words */
function inList(path, words) {
  const cut = path.lastIndexOf(".") + 1;
  const where = h("span", { class: "pf-where" }, ...marked(path.slice(0, cut), words));
  return [
    h(
      "span",
      { class: "pf-text pf-path" },
      where,
      h("span", {}, ...marked(path.slice(cut), words)),
    ),
  ];
}

/** @param {string} text @param {string[]} words */
function marked(text, words) {
  return piecesOf(text, words).map((piece) =>
    piece.isHit ? h("mark", {}, piece.text) : piece.text,
  );
}
