/**
 * A grid of rows by columns: sorted, filtered, folded, and moved through by keys; only the visible
 * rows are in the page. A view says in its own class what stands in the cells and what a row does.
 */

import { Arrangement } from "./arrangement.js";
import { fresh, h, set } from "./dom.js";
import { measureIn } from "./fitted_name.js";
import { gridHead } from "./grid_head.js";
import { isPlainKey, movedBy } from "./grid_keys.js";
import { RowWindow } from "./row_window.js";

/** @typedef {import("./arrangement.js").GridTable} GridTable */
/**
 * A column. Of several that do not fit, the one with the lowest `rank` gives way, and one without a
 * rank stays; the name has no `width`, and takes what is left once others have their `most`. A cell
 * is drawn again when `key` says another thing.
 * @template T
 * @typedef {{
 *   name: string, label: string, width: number, most?: number, rank?: number, hint?: string, isNumber?: boolean,
 *   value: (table: T, row: number) => number | string,
 *   key?: (table: T, row: number) => string,
 *   draw: (cell: HTMLElement, table: T, row: number) => void,
 * }} Column
 */
/**
 * `isPassing`: an arrow is held down, and the row is only one on the way. `onEnter`: Enter on a row
 * that has nothing of its own to open or to press.
 * @typedef {{ onChoose: (layer: string, isPassing: boolean) => void, onShown?: (shown: number, all:
 * number) => void, onEnter?: (layer: string) => void }} GridHandlers
 */

/** @param {{ width: number }[]} columns */
function widthOf(columns) {
  return columns.reduce((sum, column) => sum + column.width, 0);
}

/**
 * The columns that fit, in their order.
 * @template {{ width: number, rank?: number }} C @param {C[]} columns @param {number} width @param
 * {number} nameWidth @returns {C[]}
 */
export function fittingColumns(columns, width, nameWidth) {
  const kept = new Set(columns.filter((column) => column.rank === undefined));
  let left = width - nameWidth - widthOf([...kept]);
  const others = columns.filter((column) => !kept.has(column));
  for (const column of others.sort((first, second) => (second.rank ?? 0) - (first.rank ?? 0))) {
    if (column.width > left) break;
    kept.add(column);
    left -= column.width;
  }
  return columns.filter((column) => kept.has(column));
}

const HEAD_EDGES = 28; // around a head's words: its padding, and the arrow once it is sorted

/**
 * The columns with what is left of the width shared out, the first ones first.
 * @template {{ width: number, most?: number }} C @param {C[]} columns @param {number} left @returns
 * {C[]}
 */
export function grownColumns(columns, left) {
  return columns.map((column) => {
    const more = Math.max(0, Math.min(left, (column.most ?? 0) - column.width));
    left -= more;
    return { ...column, width: column.width + more };
  });
}

/** The controls in a row. @param {Element} element @returns {HTMLElement[]} */
export function rowControls(element) {
  return [...element.querySelectorAll("select, button, input")].map(
    (element) => /** @type {HTMLElement} */ (element),
  );
}

/** The key of each cell's content, to skip unchanged cells. @type {WeakMap<Element, string>} */
const DRAWN_CELLS = new WeakMap();
/** Which columns a row has cells for. @type {WeakMap<Element, string>} */
const DRAWN_ROWS = new WeakMap();

/** @template {GridTable} T */
export class Grid {
  /**
   * @param {GridHandlers} handlers
   * @param {{ table: T, label: string, rowHeight: number, look?: string, isTree?: boolean }} how
   *   `table`: an empty one
   */
  constructor(handlers, { table, label, rowHeight, look = "", isTree = false }) {
    this.handlers = handlers;
    this.rowHeight = rowHeight;
    this.isTree = isTree;
    this.shown = new Arrangement(table, () => this.all(this.element.clientWidth));
    /** @type {Column<T>[]} */
    this.columns = [];
    this.nameWidth = 0;
    /** By weight; asking the page for its font in each row would have it styled in each. */
    this.measures = /** @type {Record<number, import("./fitted_name.js").Measure>} */ ({});
    this.edition = 0;
    this.isPassing = false;
    this.id = `pf-${Math.random().toString(36).slice(2)}`;
    this.head = gridHead(
      (column) => this.sort(column),
      () => this.foldAll(),
    );
    this.heads = h("div", { class: "pf-heads", role: "rowgroup" }, this.head.element);
    this.body = h("div", { class: "pf-rows", role: "rowgroup" });
    const role = isTree ? "treegrid" : "grid";
    this.element = h(
      "div",
      { class: `pf-layer-grid ${look}`, role, tabindex: "0", "aria-label": label },
      this.heads,
      this.body,
    );
    this.element.style.setProperty("--pf-row", `${rowHeight}px`);
    this.window = new RowWindow({
      scroller: this.element,
      body: this.body,
      rowHeight,
      headHeight: () => this.heads.offsetHeight,
      make: () => h("div", { class: "pf-row", role: "row" }),
      draw: (row, index) => this.drawRow(row, index),
      keep: () => this.shown.index,
    });
    this.body.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("keyup", () => this.settle());
    this.sizes = new ResizeObserver(() => this.fit() || this.window.follow());
    this.sizes.observe(this.element);
  }

  // What a view says for itself.

  /** All columns, of which those that fit are shown. @param {number} width @returns {Column<T>[]} */
  all(width) {
    return [];
  }

  /** The least room of the name. @param {number} width */
  leastNameWidth(width) {
    return 0;
  }

  /** The room of a column: its head is read whole. @param {Column<T>} column */
  widthOf({ width, label }) {
    return width && label
      ? Math.max(width, Math.ceil(this.measure(600)(label)) + HEAD_EDGES)
      : width;
  }

  /** Whether a row is shown as chosen. @param {number} row */
  isChosen(row) {
    return row === this.shown.cursor;
  }

  /** What a row tells as a whole. @param {HTMLElement} element @param {number} row */
  describe(element, row) {}

  /** Enter or Space on a row: fold a branch; of a leaf, go to its first control. @param {number} index @param {string} [key] */
  act(index, key) {
    const row = this.shown.rows[index];
    if (this.shown.canFold(row)) return this.fold(row);
    const controls = rowControls(this.rowAt(index));
    const first = controls.find((control) => !control.matches(":disabled"));
    if (first) first.focus();
    else this.handlers.onEnter?.(this.shown.table.layers[row]);
  }

  /** Left closes a branch or goes to its parent, right opens it or goes to its first part. @param {number} index @param {boolean} isRight */
  step(index, isRight) {
    const { shown } = this;
    const row = shown.rows[index];
    const canFold = shown.canFold(row);
    const parent = shown.table.parent[row];
    if (canFold && shown.isClosed(row) === isRight) this.fold(row);
    else if (canFold && isRight) this.moveTo(index + 1, false);
    else if (!isRight && shown.isTree && parent >= 0)
      this.moveTo(shown.rows.indexOf(parent), false);
  }

  // What every grid does.

  /** @param {T} table */
  show(table) {
    this.edition += 1;
    this.shown.take(table);
    this.element.style.setProperty("--pf-all-rows", String(table.layers.length));
    if (!this.fit()) this.draw();
  }

  /** Choose a layer and bring it into view; null is none. @param {string | null} layer */
  choose(layer) {
    const before = this.shown.rows;
    this.shown.choose(layer);
    if (before === this.shown.rows) this.mark();
    else this.draw();
    this.reveal();
  }

  /** @param {string} query */
  filter(query) {
    this.shown.filter(query);
    this.element.scrollTop = 0;
    this.draw();
    if (!query) this.reveal();
  }

  /** @param {string} name */
  sort(name) {
    this.shown.sort(name);
    this.element.scrollTop = 0;
    this.draw();
    if (!this.shown.sorting) this.reveal();
  }

  /** Open or close a branch. @param {number} row */
  fold(row) {
    this.following(() => this.shown.fold(row));
  }

  foldAll() {
    this.following(() => this.shown.foldAll());
    this.reveal();
  }

  /** Redraw the cells whose key changed. */
  refresh() {
    this.window.each((element, index) => this.drawRow(element, index));
    this.point();
  }

  /** Come from the filter: to the chosen row, or else to the first. */
  enter() {
    this.element.focus();
    if (this.shown.rows.length && this.shown.index < 0) this.moveTo(0, false);
  }

  /** @param {number} index @param {boolean} isPassing */
  moveTo(index, isPassing) {
    this.shown.cursor = this.shown.rows[index];
    this.mark();
    this.window.reveal(index);
    this.isPassing = isPassing;
    this.handlers.onChoose(this.shown.chosen ?? "", isPassing);
  }

  /** On key up: report the row that was reached. */
  settle() {
    if (this.isPassing) this.handlers.onChoose(this.shown.chosen ?? "", false);
    this.isPassing = false;
  }

  destroy() {
    this.sizes.disconnect();
    this.window.destroy();
  }

  // Private to the grid.

  /** @param {number} index @returns {HTMLElement} */
  rowAt(index) {
    return /** @type {HTMLElement} */ (this.window.rows.get(index));
  }

  /** Choose the columns that there is room for; whether there is any. */
  fit() {
    const width = this.element.clientWidth;
    if (!width) return false;
    this.measures = {};
    const least = this.leastNameWidth(width);
    const all = this.all(width).map((column) => ({ ...column, width: this.widthOf(column) }));
    const fitting = fittingColumns(all, width, least);
    this.columns = grownColumns(fitting, width - least - widthOf(fitting));
    this.nameWidth = width - widthOf(this.columns);
    const widths = this.columns.map((column) =>
      column.width ? `${column.width}px` : `minmax(${Math.min(least, this.nameWidth)}px, 1fr)`,
    );
    this.element.style.setProperty("--pf-columns", widths.join(" "));
    this.draw();
    return true;
  }

  /** Measures texts of a weight. @param {number} weight */
  measure(weight) {
    return (this.measures[weight] ??= measureIn(this.element, weight));
  }

  draw() {
    const { rows, sorting, isTree, closed, table } = this.shown;
    const canFold = this.isTree && isTree && table.layers.length > 0;
    set(this.element, { "aria-rowcount": rows.length + 1, "aria-colcount": this.columns.length });
    this.head.show(this.columns, sorting, canFold ? (closed.size ? "open" : "fold") : null);
    this.window.renew(rows.length);
    this.point();
    this.handlers.onShown?.(rows.length, table.layers.length);
  }

  /** Change the folding; notify the host if that moves the choice. @param {() => void} change */
  following(change) {
    const { chosen } = this.shown;
    change();
    this.draw();
    if (this.shown.chosen !== chosen) this.handlers.onChoose(this.shown.chosen ?? "", false);
  }

  reveal() {
    if (this.shown.index >= 0) this.window.reveal(this.shown.index);
  }

  /** @param {HTMLElement} element @param {number} index */
  drawRow(element, index) {
    const { shown } = this;
    const row = shown.rows[index];
    const hadFocus = element.contains(document.activeElement);
    const isOther = element.dataset.index !== String(index);
    this.drawCells(element, row);
    if (hadFocus && (isOther || !element.contains(document.activeElement)))
      this.element.focus({ preventScroll: true });
    set(element, {
      id: `${this.id}-${index}`,
      "data-index": index,
      "aria-rowindex": index + 2,
      "aria-level": this.isTree && shown.isTree ? shown.table.depth[row] + 1 : null,
      "aria-expanded": shown.canFold(row) ? String(!shown.isClosed(row)) : null,
    });
    this.describe(element, row);
    this.chooseRow(element, row);
  }

  /**
   * Fill a row; cells whose key is the same stay as they are, so that an open list of choices stays
   * open.
   * @param {HTMLElement} element @param {number} row
   */
  drawCells(element, row) {
    const { table } = this.shown;
    const names = this.columns.map((column) => column.name).join();
    if (DRAWN_ROWS.get(element) !== names) fresh(element, ...this.columns.map(emptyCell));
    DRAWN_ROWS.set(element, names);
    this.columns.forEach((column, place) => {
      const cell = /** @type {HTMLElement} */ (element.children[place]);
      const key = `${this.edition} ${row} ${column.key?.(table, row) ?? ""}`;
      if (DRAWN_CELLS.get(cell) !== key) column.draw(cell, table, row);
      DRAWN_CELLS.set(cell, key);
    });
  }

  /** @param {HTMLElement} element @param {number} row */
  chooseRow(element, row) {
    const isChosen = this.isChosen(row);
    element.classList.toggle("pf-chosen", isChosen);
    element.setAttribute("aria-selected", String(isChosen));
    const isHere = row === this.shown.cursor;
    element.classList.toggle("pf-at-cursor", isHere);
    for (const control of rowControls(element)) control.tabIndex = isHere ? 0 : -1;
  }

  /** Show which row is chosen, and nothing else. */
  mark() {
    this.window.each((element, index) => this.chooseRow(element, this.shown.rows[index]));
    this.point();
  }

  /** Name the row at the cursor to screen readers. */
  point() {
    const { index } = this.shown;
    set(this.element, { "aria-activedescendant": index < 0 ? null : `${this.id}-${index}` });
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    // not what is around the target now: a button may have been drawn anew by its own click
    const path = /** @type {HTMLElement[]} */ (event.composedPath());
    const element = path.find((part) => part.classList?.contains("pf-row"));
    if (!element) return;
    if (!rowControls(element).some((control) => control.contains(target)))
      this.element.focus({ preventScroll: true });
    this.moveTo(Number(element.dataset.index), false);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (!isPlainKey(event)) return;
    const isInside = event.target !== this.element;
    if (!(isInside ? this.isLeft(event) : this.isObeyed(event))) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Escape returns from a control in a row to the row. @param {KeyboardEvent} event */
  isLeft(event) {
    if (event.key !== "Escape" || !this.body.contains(/** @type {Node} */ (event.target)))
      return false;
    this.element.focus({ preventScroll: true });
    return true;
  }

  /** Whether a key meant something here. @param {KeyboardEvent} event */
  isObeyed({ key, repeat }) {
    const { index, rows } = this.shown;
    const page = Math.max(1, Math.floor(this.window.height / this.rowHeight) - 1);
    const target = movedBy(key, index, rows.length, page);
    if (target !== null) this.moveTo(target, repeat);
    else if (index >= 0 && (key === "Enter" || key === " ")) this.act(index, key);
    else if (index >= 0 && (key === "ArrowLeft" || key === "ArrowRight"))
      this.step(index, key === "ArrowRight");
    else return false;
    return true;
  }
}

/** @param {{ name: string, width: number, isNumber?: boolean }} column */
function emptyCell(column) {
  const role = column.width ? "gridcell" : "rowheader";
  const look = `pf-cell ${column.isNumber ? "pf-number" : ""} pf-is-${column.name}`;
  return h("div", { class: look, role });
}
