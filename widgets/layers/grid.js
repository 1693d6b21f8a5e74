/** The grid of the layer table. Independent of Python and the other views. */

import { Arrangement } from "./arrangement.js";
import { fittingColumns, layerColumns, nameWidthIn } from "./columns.js";
import { h } from "../shared/dom.js";
import { fittedName, measureIn } from "../shared/fitted_name.js";
import { gridHead } from "../shared/grid_head.js";
import { listenToKeys } from "./keyboard.js";
import { drawName } from "./name.js";
import { chooseRow, drawCells, emptyRow, placeRow, rowControls } from "./row.js";
import { wordsOf } from "../shared/order.js";
import { RowWindow } from "../shared/row_window.js";

const ROW_HEIGHT = 24;

/** @typedef {import("./columns.js").Column} Column */

export class LayerGrid {
  /**
   * @param {{ onChoose: (layer: string, isPassing: boolean) => void, onShown: (shown: number, all:
   * number) => void }} handlers
   *   `isPassing`: an arrow is held down, and the row is only one on the way
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.shown = new Arrangement(() => this.all());
    /** @type {Column[]} */
    this.extras = [];
    /** @type {Column[]} */
    this.columns = this.all();
    this.nameWidth = 0;
    /** By weight; asking the page for its font in each row would have it styled in each. */
    this.measures = /** @type {Record<number, import("../shared/fitted_name.js").Measure>} */ ({});
    this.edition = 0;
    this.isPassing = false;
    this.id = `pf-${Math.random().toString(36).slice(2)}`;
    this.head = gridHead(
      (column) => this.sort(column),
      () => this.foldAll(),
    );
    this.heads = h("div", { class: "pf-heads", role: "rowgroup" }, this.head.element);
    this.body = h("div", { class: "pf-rows", role: "rowgroup" });
    this.element = h(
      "div",
      { class: "pf-layer-grid", role: "treegrid", tabindex: "0", "aria-label": "layers" },
      this.heads,
      this.body,
    );
    this.element.style.setProperty("--pf-row", `${ROW_HEIGHT}px`);
    this.window = this.openWindow();
    this.body.addEventListener("click", (event) => this.onClick(event));
    listenToKeys(this);
    this.sizes = new ResizeObserver(() => this.fit() || this.window.follow());
    this.sizes.observe(this.element);
  }

  /** @param {import("../shared/unpack.js").LayerTable} table */
  show(table) {
    this.edition += 1;
    const names = this.names();
    this.shown.take(table);
    this.element.style.setProperty("--pf-all-rows", String(table.layers.length));
    const isFitted = this.nameWidth > 0 && names === this.names();
    if (isFitted || !this.fit()) this.draw();
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

  /** Columns beside the profile's own. @param {Column[]} columns */
  addColumns(columns) {
    this.extras = columns;
    this.fit();
  }

  /** Redraw the cells whose key changed. */
  refresh() {
    this.window.each((element, index) => this.drawRow(element, index));
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

  /** How many rows a page is. */
  get pageLength() {
    return Math.max(1, Math.floor(this.window.height / ROW_HEIGHT) - 1);
  }

  /** @param {number} index @returns {HTMLElement} */
  rowAt(index) {
    return /** @type {HTMLElement} */ (this.window.rows.get(index));
  }

  destroy() {
    this.sizes.disconnect();
    this.window.destroy();
  }

  // Private to the grid.

  openWindow() {
    return new RowWindow({
      scroller: this.element,
      body: this.body,
      rowHeight: ROW_HEIGHT,
      headHeight: () => this.heads.offsetHeight,
      make: emptyRow,
      draw: (row, index) => this.drawRow(row, index),
      keep: () => this.shown.index,
    });
  }

  /** @returns {Column[]} */
  all() {
    const { shown } = this;
    const { before, engine } = shown.table ?? {};
    const own = layerColumns(() => shown.isTree, Boolean(before), Boolean(engine));
    return [this.nameColumn(), ...own, ...this.extras];
  }

  names() {
    return this.all()
      .map((column) => column.name)
      .join();
  }

  /** @returns {Column} */
  nameColumn() {
    return {
      name: "layer",
      label: "Layer",
      width: 0,
      rank: Infinity,
      value: (table, row) => table.layers[row],
      key: (_, row) =>
        `${this.shown.isTree} ${this.shown.isClosed(row)} ${this.shown.query} ${this.nameWidth}`,
      draw: (cell, table, row) => drawName(cell, table, row, this.nameStyle(row)),
    };
  }

  /** @param {number} row */
  nameStyle(row) {
    const { isTree, query } = this.shown;
    return {
      isTree,
      isClosed: this.shown.isClosed(row),
      words: wordsOf(query),
      fit: (
        /** @type {string} */ name,
        /** @type {number} */ taken,
        /** @type {number} */ weight,
      ) => {
        this.measures[weight] ??= measureIn(this.element, weight);
        return fittedName(name, this.nameWidth - taken, this.measures[weight]);
      },
      onFold: (/** @type {number} */ row) => this.fold(row),
    };
  }

  /** Choose the columns that there is room for; whether there is any. */
  fit() {
    const width = this.element.clientWidth;
    if (!width) return false;
    const nameWidth = nameWidthIn(width);
    const [name, ...rest] = this.all();
    this.columns = [name, ...fittingColumns(rest, width, nameWidth)];
    const widths = this.columns.slice(1).map((column) => `${column.width}px`);
    this.nameWidth = width - this.columns.reduce((sum, column) => sum + column.width, 0);
    this.element.style.setProperty(
      "--pf-columns",
      [`minmax(${nameWidth}px, 1fr)`, ...widths].join(" "),
    );
    this.draw();
    return true;
  }

  draw() {
    this.measures = {};
    const { rows, sorting, isTree, closed, table } = this.shown;
    this.element.setAttribute("aria-rowcount", String(rows.length + 1));
    this.element.setAttribute("aria-colcount", String(this.columns.length));
    this.head.show(
      this.columns,
      sorting,
      isTree && table.layers.length ? (closed.size ? "open" : "fold") : null,
    );
    this.window.renew(rows.length);
    this.point();
    this.handlers.onShown(rows.length, table.layers.length);
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
    if (element.dataset.index !== String(index) && element.contains(document.activeElement))
      this.element.focus({ preventScroll: true });
    drawCells(element, this.columns, shown.table, row, String(this.edition));
    placeRow(element, {
      id: `${this.id}-${index}`,
      index,
      level: shown.isTree ? shown.table.depth[row] + 1 : 0,
      isOpen: shown.canFold(row) ? !shown.isClosed(row) : null,
      isChosen: row === shown.cursor,
    });
  }

  /** Show which row is chosen, and nothing else. */
  mark() {
    this.window.each((element, index) =>
      chooseRow(element, this.shown.rows[index] === this.shown.cursor),
    );
    this.point();
  }

  point() {
    const { index } = this.shown;
    if (index < 0) this.element.removeAttribute("aria-activedescendant");
    else this.element.setAttribute("aria-activedescendant", `${this.id}-${index}`);
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const element = /** @type {HTMLElement | null} */ (target.closest(".pf-row"));
    if (!element) return;
    if (!rowControls(element).some((control) => control.contains(target)))
      this.element.focus({ preventScroll: true });
    this.moveTo(Number(element.dataset.index), false);
  }
}
