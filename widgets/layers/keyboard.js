/** The layer table without a mouse. */

import { isPlainKey, movedBy } from "../shared/grid_keys.js";
import { rowControls } from "./row.js";

/** @typedef {import("./grid.js").LayerGrid} LayerGrid */

/** @param {LayerGrid} grid */
export function listenToKeys(grid) {
  grid.element.addEventListener("keyup", () => grid.settle());
  grid.element.addEventListener("keydown", (event) => {
    if (!isPlainKey(event)) return;
    const isInside = event.target !== grid.element;
    if (!(isInside ? isLeft(grid, event) : isObeyed(grid, event))) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/**
 * Escape returns from a control in a row to the row.
 * @param {LayerGrid} grid @param {KeyboardEvent} event
 */
function isLeft(grid, event) {
  if (event.key !== "Escape" || !grid.body.contains(/** @type {Node} */ (event.target)))
    return false;
  grid.element.focus({ preventScroll: true });
  return true;
}

/** Whether a key meant something here. @param {LayerGrid} grid @param {KeyboardEvent} event */
function isObeyed(grid, event) {
  const { index, rows } = grid.shown;
  const target = movedBy(event.key, index, rows.length, grid.pageLength);
  if (target !== null) grid.moveTo(target, event.repeat);
  else if (index >= 0 && (event.key === "Enter" || event.key === " ")) enterRow(grid, index);
  else if (index >= 0 && event.key === "ArrowLeft") stepOut(grid, index);
  else if (index >= 0 && event.key === "ArrowRight") stepIn(grid, index);
  else return false;
  return true;
}

/**
 * Open or close a branch; of a leaf, focus its first control.
 * @param {LayerGrid} grid @param {number} index
 */
function enterRow(grid, index) {
  const row = grid.shown.rows[index];
  if (grid.shown.canFold(row)) grid.fold(row);
  else
    rowControls(grid.rowAt(index))
      .find((control) => !control.matches(":disabled"))
      ?.focus();
}

/** Close a branch, or go to its parent. @param {LayerGrid} grid @param {number} index */
function stepOut(grid, index) {
  const { shown } = grid;
  const row = shown.rows[index];
  const parent = shown.table.parent[row];
  if (shown.canFold(row) && !shown.isClosed(row)) grid.fold(row);
  else if (shown.isTree && parent >= 0) grid.moveTo(shown.rows.indexOf(parent), false);
}

/** Open a branch, or go to its first part. @param {LayerGrid} grid @param {number} index */
function stepIn(grid, index) {
  const row = grid.shown.rows[index];
  if (!grid.shown.canFold(row)) return;
  if (grid.shown.isClosed(row)) grid.fold(row);
  else grid.moveTo(index + 1, false);
}
